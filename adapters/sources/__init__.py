"""Sources: random access to samples by number.

Reading a source doesn't change it, so many threads and processes may read it at once.
``SequenceSource`` is the only kind whose items are whole batches. ``as_source`` wraps user data
with the first entry of ``kinds`` that accepts it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from adapters.lazily import bound
from adapters.sources.arrays import (
    ArraySource,
    holds_arrays,
    refuse_parts_in_a_list,
    stretch_of,
    take_rows,
)
from adapters.sources.datasets import MapSource, Rows, has_rows
from adapters.sources.sequence import SequenceSource, reduce_iterator
from adapters.sources.source import Source, Subset
from adapters.sources.stored import Stored, holds_stored, is_sparse, is_stored

if TYPE_CHECKING:
    from adapters.sources.concatenation import Concatenation, joined
    from adapters.sources.decoders import Decoded, Images, guessed, identity
    from adapters.sources.examples import Examples
    from adapters.sources.features import Feature
    from adapters.sources.folders import names_images, open_images
    from adapters.sources.imagefiles import ImageSource, ImageTuples
    from adapters.sources.records import ExampleSource, RecordSource, open_guessed, open_records
    from adapters.sources.suggestion import suggested
    from adapters.sources.targets import Boxes, Points
else:  # Imported on first use: programs with arrays don't need these.
    __getattr__ = bound(
        __name__,
        {
            "Boxes": "adapters.sources.targets",
            "Concatenation": "adapters.sources.concatenation",
            "Decoded": "adapters.sources.decoders",
            "ExampleSource": "adapters.sources.records",
            "Examples": "adapters.sources.examples",
            "Feature": "adapters.sources.features",
            "ImageSource": "adapters.sources.imagefiles",
            "ImageTuples": "adapters.sources.imagefiles",
            "Images": "adapters.sources.decoders",
            "Points": "adapters.sources.targets",
            "RecordSource": "adapters.sources.records",
            "guessed": "adapters.sources.decoders",
            "identity": "adapters.sources.decoders",
            "joined": "adapters.sources.concatenation",
            "names_images": "adapters.sources.folders",
            "open_guessed": "adapters.sources.records",
            "open_images": "adapters.sources.folders",
            "open_records": "adapters.sources.records",
            "suggested": "adapters.sources.suggestion",
        },
    )

__all__ = [
    "ArraySource",
    "Boxes",
    "Concatenation",
    "Decoded",
    "ExampleSource",
    "Examples",
    "Feature",
    "ImageSource",
    "ImageTuples",
    "Images",
    "MapSource",
    "Points",
    "RecordSource",
    "SequenceSource",
    "Source",
    "Stored",
    "Subset",
    "as_source",
    "guessed",
    "holds_arrays",
    "holds_stored",
    "identity",
    "is_stored",
    "joined",
    "kinds",
    "names_images",
    "open_guessed",
    "open_images",
    "open_records",
    "reduce_iterator",
    "refuse_parts_in_a_list",
    "stretch_of",
    "suggested",
    "take_rows",
]


Kind = Callable[[Any], "Source | None"]


def _as_it_is(data: Any) -> Source | None:
    return data if isinstance(data, Source) else None


def _of_a_path(data: Any) -> Source | None:
    if not isinstance(data, (str, os.PathLike)):
        return None
    from adapters.sources.records import open_guessed

    return open_guessed(data)


def _of_arrays(data: Any) -> Source | None:
    arrays = isinstance(data, (tuple, dict)) or holds_arrays(data) or _is_stored_array(data)
    return ArraySource(data) if arrays or is_sparse(data) else None


def _of_rows(data: Any) -> Source | None:
    return MapSource(Rows(data)) if has_rows(data) else None


def _of_samples(data: Any) -> Source | None:
    if isinstance(data, bytes) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        return None
    return MapSource(data)


kinds: list[Kind] = [_as_it_is, _of_a_path, _of_arrays, _of_rows, _of_samples]
"""Source factories, tried in order; each returns None for data of another kind."""


def as_source(data: Any) -> Source:
    """Wrap user data as a source of single samples.

    Args:
        data: An array, a tuple or dict (nested too) of arrays of equal length, a result of
            ``open_records`` or ``open_images``, the path of a record file or of a folder with one
            folder of images per class, a zarr array, whose rows are read when needed, a SciPy
            sparse matrix, whose rows become dense, or an object with ``__len__`` and
            ``__getitem__``.

    Raises:
        OSError: The path can't be read.
        RecordError: The path is no record file.
        TypeError: ``data`` has no length or no random access.
        ValueError: Arrays of unequal lengths, or no samples.
    """
    source = next((source for kind in kinds if (source := kind(data)) is not None), None)
    if source is None:
        raise TypeError(
            "source must be an array, a tuple or dict of arrays, or an object with __len__ and "
            f"__getitem__, got {type(data).__name__}: random access is what lets any worker "
            "compute any batch; turn a generator into a list, or give a map-style data set"
        )
    if not len(source):
        raise ValueError("source must hold at least one sample, got 0")
    return source


def _is_stored_array(data: Any) -> bool:
    """True if rows can be gathered from it; strings and variable-length rows are objects."""
    return is_stored(data) and not np.dtype(data.dtype).hasobject
