"""Conversion of labels, names or numbers, to an array and class names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.remote.urls import clean, unescaped

# Most names listed in an error.
_MOST_LISTED = 8


def classes_argument(classes: Any) -> list[str] | None:
    """Check the ``classes`` argument: names, each once."""
    if classes is None:
        return None
    if isinstance(classes, (str, bytes, os.PathLike)) or not hasattr(classes, "__iter__"):
        raise TypeError(f"classes must be a list of names, got {classes!r}")
    if isinstance(classes, (set, frozenset, Mapping)):  # Such as Keras's class_indices.
        remedy = "sorted(classes, key=classes.get)" if isinstance(classes, Mapping) else "sorted"
        raise TypeError(
            f"classes must be a list of names, whose order says their numbers, got {classes!r}: "
            f"{remedy} makes one"
        )
    names = list(classes)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"classes must be names, got {name!r}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"classes must be one name or more, each once, got {listed(names)}")
    return [str(name) for name in names]


def by_folder(paths: Iterable[str]) -> list[str]:
    """Names of the folders that contain these files."""
    names: dict[str, str] = {}
    found = []
    for path in paths:
        folder = os.path.dirname(clean(path))
        name = names.get(folder)
        if name is None:
            name = os.path.basename(os.path.abspath(folder))
            names[folder] = name = unescaped(folder, name)
        found.append(name)
    return found


def encoded(
    labels: Sequence[Any], classes: list[str] | None
) -> tuple[NDArray[Any], list[str] | None, NDArray[np.bool_] | None]:
    """Convert labels to an array, with class names and a mask of the samples to keep.

    ``classes`` are the names to keep, in label order, or the names of the numbers from 0.

    Returns:
        Labels of the samples to keep: int64 or float64 ``(samples,)``, int64 or float32 ``(samples,
            labels)``, or an object array of variable-length arrays. The class names are None for
            unnamed numbers, the mask is None if all samples are kept.
    """
    if any(isinstance(label, str) for label in labels):
        return _of_names(labels, classes)
    array = _of_numbers(labels)
    if classes is not None:
        if array.ndim != 1 or array.dtype != np.int64:
            raise ValueError("classes must go with labels that are names, or one whole number each")
        wrong = np.flatnonzero((array < 0) | (array >= len(classes)))
        if len(wrong):
            place = int(wrong[0])
            raise ValueError(
                f"classes must name every label, got {len(classes)} names, for labels in "
                f"range({len(classes)}), and label {array[place]} in row {place}"
            )
    return array, classes, None


def listed(names: Sequence[Any]) -> str:
    """List the first names, for an error."""
    shown = ", ".join(map(repr, names[:_MOST_LISTED]))
    more = len(names) - _MOST_LISTED
    return f"[{shown}, and {more} more]" if more > 0 else f"[{shown}]"


def _of_names(
    labels: Sequence[Any], classes: list[str] | None
) -> tuple[NDArray[Any], list[str] | None, NDArray[np.bool_] | None]:
    for row, label in enumerate(labels):
        if not isinstance(label, str):
            raise TypeError(
                f"labels must all be names where one is, got {label!r} in row {row}: leave the row "
                "out, or give it a name"
            )
    found = sorted(set(labels))
    names = found if classes is None else classes
    numbers = {name: number for number, name in enumerate(names)}
    array = np.array([numbers.get(label, -1) for label in labels], np.int64)
    kept = array >= 0
    if not kept.any():
        raise ValueError(f"classes must name some of {listed(found)}, got {listed(names)}")
    return array[kept], list(names), None if kept.all() else kept


def _of_numbers(labels: Sequence[Any]) -> NDArray[Any]:
    try:
        array = np.asarray(labels)
    except ValueError:  # Variable lengths.
        return _one_by_one(labels)
    floats, is_flat = array.dtype.kind == "f", array.ndim == 1
    if floats and is_flat and all(isinstance(label, (int, np.integer)) for label in labels):
        raise ValueError(  # NumPy rounds 2**63 next to negative numbers.
            f"labels must be numbers that int64 holds, got {max(labels, key=abs)}"
        )
    if array.dtype.kind not in "biuf" or array.ndim > 2 or not array.size or np.isnan(array).any():
        return _one_by_one(labels)
    if floats:
        return array.astype(np.float64) if is_flat else _as_float32(array)
    if array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"labels must be numbers that int64 holds, got {array.max()}")
    return array.astype(np.int64)


def _as_float32(array: NDArray[Any]) -> NDArray[np.float32]:
    """Round to float32; whole numbers, which may be ids, must stay exact."""
    with np.errstate(over="ignore"):
        held: NDArray[np.float32] = array.astype(np.float32)
    wrong = array[(held != array) & (np.floor(array) == array)]
    if len(wrong):
        raise ValueError(
            "labels must be numbers that float32 holds, where a sample has several and they are no "
            f"integers, got {wrong[0]:.17g}: leave that column out, or make it smaller"
        )
    return held


def _one_by_one(labels: Sequence[Any]) -> NDArray[Any]:
    """Convert labels that form no array: variable lengths, or invalid labels."""
    arrays = [np.asarray(label) for label in labels]
    for row, array in enumerate(arrays):
        is_number = array.dtype.kind in "biuf" and array.ndim <= 1
        if not is_number or not array.size or np.isnan(array).any():
            raise ValueError(
                f"labels must be names, numbers, or several numbers, got {labels[row]!r:.80} in "
                f"row {row}: of others, such as boxes, give the row's number as the label, and "
                "have a transform look them up by it"
            )
    whole = all(array.dtype.kind != "f" for array in arrays)
    ragged = np.empty(len(arrays), object)
    flat = [array.reshape(-1) for array in arrays]
    ragged[:] = [array.astype(np.int64) if whole else _as_float32(array) for array in flat]
    return ragged
