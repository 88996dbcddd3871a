"""Conversion of user data to a source of single samples."""

from __future__ import annotations

from typing import Any

from adapters.sources import Source, as_source, refuse_parts_in_a_list

# Classes whose items are whole batches; found by name, so that nothing is imported.
_WHOLE_BATCHES = {"PyDataset", "Sequence"}
_LIBRARIES = {"keras", "tf_keras", "tensorflow"}


def sources_given(sources: Any) -> list[Source]:
    """Wrap a list of anything that ``SafeSequence`` takes, except whole batches."""
    single = isinstance(sources, (str, bytes, dict, set, frozenset, Source))
    if single or hasattr(sources, "shape") or not hasattr(sources, "__iter__"):
        raise TypeError(
            f"sources must be a list of sources, got {type(sources).__name__}; one source is "
            "[source]"
        )
    given = [source_given(source, f"sources[{place}]") for place, source in enumerate(sources)]
    if not given:
        raise ValueError("sources must hold at least one source, got none")
    return given


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
