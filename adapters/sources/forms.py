"""Element specs: structure of a source's samples, and shape and dtype of each leaf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.sources.source import Leaf, Source
from adapters.structure import flatten, unflatten

Form = tuple[Any, tuple[Leaf, ...]]

_NUMBERS = "biuf"
# Largest integer up to which float64 is exact.
_MOST_EXACT = 1 << 53


def form_of(source: Source) -> Form | None:
    """Spec of a source's samples, or None if unknown; gathers one row of arrays."""
    if source.gathers:
        leaves, skeleton = flatten(source.gather(np.zeros(1, np.int64), np.empty))
        return skeleton, tuple((leaf.shape[1:], leaf.dtype) for leaf in leaves)
    known = source.leaves
    return None if known is None else (source.skeleton, tuple(known))


def common_form(forms: Sequence[Form | None]) -> Form | None:
    """Spec common to all samples; None if no source knows its spec.

    Raises:
        ValueError: They differ.
    """
    known = [(place, form) for place, form in enumerate(forms) if form is not None]
    if not known:
        return None
    (first, (skeleton, leaves)), *others = known
    found = leaves
    for place, form in others:
        types = [_promoted(*pair) for pair in zip(found, form[1])]
        if form[0] != skeleton or len(form[1]) != len(found) or None in types:
            raise ValueError(
                "sources must have samples of one structure, shape and dtype: sources"
                f"[{first}] has {_told((skeleton, leaves))}, sources[{place}] has {_told(form)}; "
                "bring them into one form first"
            )
        found = tuple(leaf for leaf in types if leaf is not None)
    return skeleton, found


def _promoted(one: Leaf, other: Leaf) -> Leaf | None:
    """Common leaf of two; scalars such as labels are promoted. None if there is none."""
    if one == other:
        return one
    numbers = one[1].kind in _NUMBERS and other[1].kind in _NUMBERS
    if one[0] != () or other[0] != () or not numbers:
        return None
    both = np.promote_types(one[1], other[1])
    if both.kind == "f" and "f" not in (one[1].kind, other[1].kind):
        return None  # int64 and uint64: no type holds all of both.
    return (), both


def holds(dtype: np.dtype[Any], leaf: Any) -> bool:
    """True if this dtype can hold the leaf, and both are numbers."""
    own = np.asarray(leaf).dtype
    return own.kind in _NUMBERS and dtype.kind in _NUMBERS and np.promote_types(own, dtype) == dtype


def check_exact(numbers: NDArray[Any], dtype: np.dtype[Any]) -> None:
    """Check that integers stay exact as floats, unlike those beyond 2**53.

    Raises:
        ValueError: They don't.
    """
    if dtype.kind != "f" or numbers.dtype.kind not in "iu" or numbers.dtype.itemsize < 8:
        return
    wrong = numbers[(numbers > _MOST_EXACT) | (numbers < -_MOST_EXACT)]
    if wrong.size:
        raise ValueError(
            f"{wrong.flat[0]} is no {dtype} exactly, which the labels of all sources together are; "
            "bring them into one type first"
        )


def as_number(leaf: Any, dtype: np.dtype[Any]) -> Any:
    """Cast a number, which stays Python's or NumPy's; arrays are returned unchanged.

    Raises:
        ValueError: An integer isn't exact as a float.
    """
    if np.ndim(leaf) or dtype.kind not in _NUMBERS:
        return leaf
    check_exact(np.asarray(leaf), dtype)
    number = dtype.type(leaf)
    return number if isinstance(leaf, np.generic) else number.item()


def _told(form: Form) -> str:
    skeleton, leaves = form
    words = [f"{dtype} {tuple(shape)}" for shape, dtype in leaves]
    return str(unflatten(skeleton, words)).replace("'", "")
