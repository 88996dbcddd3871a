"""Sources: random access to samples by number.

Reading a source doesn't change it, so many threads and processes may read it at once.
``SequenceSource`` is the only kind whose items are whole batches. ``as_source`` wraps user data
with the first entry of ``kinds`` that accepts it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from adapters.sources.arrays import ArraySource as ArraySource
from adapters.sources.arrays import holds_arrays as holds_arrays
from adapters.sources.arrays import refuse_parts_in_a_list as refuse_parts_in_a_list
from adapters.sources.arrays import stretch_of as stretch_of
from adapters.sources.arrays import take_rows as take_rows
from adapters.sources.datasets import MapSource as MapSource
from adapters.sources.sequence import SequenceSource as SequenceSource
from adapters.sources.sequence import base_without_keras as base_without_keras
from adapters.sources.sequence import reduce_iterator as reduce_iterator
from adapters.sources.source import Source as Source
from adapters.sources.source import Subset as Subset
from adapters.sources.stored import Stored as Stored
from adapters.sources.stored import holds_stored as holds_stored
from adapters.sources.stored import is_sparse
from adapters.sources.stored import is_stored as is_stored

Kind = Callable[[Any], "Source | None"]


def _as_it_is(data: Any) -> Source | None:
    return data if isinstance(data, Source) else None


def _of_a_path(data: Any) -> Source | None:
    if not isinstance(data, (str, os.PathLike)):
        return None
    from adapters.sources.records import open_guessed

    return open_guessed(data)


def _of_arrays(data: Any) -> Source | None:
    stored = is_stored(data) and not np.dtype(data.dtype).hasobject  # As strings are.
    holds = isinstance(data, (tuple, dict)) or holds_arrays(data) or stored or is_sparse(data)
    return ArraySource(data) if holds else None


def _of_samples(data: Any) -> Source | None:
    if isinstance(data, bytes) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        return None
    return MapSource(data)


kinds: list[Kind] = [_as_it_is, _of_a_path, _of_arrays, _of_samples]
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
