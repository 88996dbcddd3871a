"""Conversion of arguments: user data to sources of single samples, numbers to exact fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from adapters.sources import Source, as_source, refuse_parts_in_a_list

# Classes whose items are whole batches; found by name, so that nothing is imported.
_WHOLE_BATCHES = {"PyDataset", "Sequence"}
_LIBRARIES = {"keras", "tf_keras", "tensorflow"}
# Largest denominator of a fraction; the error of a float is far smaller.
_MOST_PARTS = 10**9


def source_given(data: Any, name: str) -> Source:
    """Wrap anything that ``SafeSequence`` takes, except whole batches; ``name`` is the argument."""
    whole = isinstance(data, Source) and data.whole_batches
    if whole or any(
        base.__name__ in _WHOLE_BATCHES and base.__module__.partition(".")[0] in _LIBRARIES
        for base in type(data).__mro__
    ):
        raise TypeError(
            f"{name} must give single samples, got a {type(data).__name__}, whose items are whole "
            "batches: give what these are made of, its arrays or its data set"
        )
    refuse_parts_in_a_list(data)
    if type(data) is tuple:
        while data and data[-1] is None:  # (x, y, None), as in Keras.
            data = data[:-1]
    return as_source(data)


def sources_given(sources: Any, wrap: Callable[[Any, str], Source] = source_given) -> list[Source]:
    """Wrap a list of sources, each by ``source_given`` or ``wrap``."""
    single = isinstance(sources, (str, bytes, dict, set, frozenset, Source))
    if single or hasattr(sources, "shape") or not hasattr(sources, "__iter__"):
        raise TypeError(
            f"sources must be a list of sources, got {type(sources).__name__}; one source is "
            "[source]"
        )
    given = [wrap(source, f"sources[{place}]") for place, source in enumerate(sources)]
    if not given:
        raise ValueError("sources must hold at least one source, got none")
    return given


def ordinary_source(data: Any, name: str) -> Source:
    """Wrap like ``source_given``, and refuse a mix."""
    source = source_given(data, name)
    if source.arranged(False, 0) is not None:
        raise ValueError(
            f"{name} must have no order of its own, which would be lost, got a mix: use its "
            "sources here, and mix what comes of that"
        )
    return source


def fractions_given(values: Any, name: str) -> list[Fraction]:
    """Convert numbers above 0 as they were meant: 0.1 is a tenth, and 4 / 9 four ninths."""
    if isinstance(values, (str, bytes, dict, set, frozenset)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} must be a list of numbers such as [0.8, 0.2], got {values!r}")
    found = []
    for place, value in enumerate(values):
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise TypeError(f"{name} must be numbers, got {value!r} as {name}[{place}]") from None
        if isinstance(value, bool) or not (math.isfinite(number) and number > 0):
            raise ValueError(
                f"{name} must be finite and above 0, got {value!r} as {name}[{place}]; leave out "
                "what is to get nothing"
            )
        try:
            exact = Fraction(str(value))
        except ValueError:
            exact = Fraction(number)
        simple = exact.limit_denominator(_MOST_PARTS)
        found.append(simple if float(simple) == number else exact)
    return found
