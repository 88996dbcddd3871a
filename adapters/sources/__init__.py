"""Random access to samples: what a batch is fetched from.

A source answers by sample number, changes nothing while it answers, and may be asked by many
threads and processes at once. ``SequenceSource`` is the one kind whose items are whole batches.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from adapters.sources.arrays import ArraySource, holds_arrays, stretch_of, take_rows
from adapters.sources.contents import Images, guessed, identity
from adapters.sources.mapped import MapSource, Rows, has_rows
from adapters.sources.records import RecordSource, open_guessed, open_records
from adapters.sources.sequence import SequenceSource, reduce_iterator
from adapters.sources.stored import is_stored

__all__ = [
    "AnySource",
    "ArraySource",
    "Images",
    "MapSource",
    "RecordSource",
    "SampleSource",
    "SequenceSource",
    "as_source",
    "guessed",
    "holds_arrays",
    "identity",
    "open_guessed",
    "open_records",
    "reduce_iterator",
    "stretch_of",
    "take_rows",
]


class SampleSource(Protocol):
    """What ``assemble`` asks of a source of single samples."""

    @property
    def makes_samples(self) -> bool:
        """Whether code of the user's own makes them, and may use its memory again."""
        ...

    def __len__(self) -> int:
        """Number of samples."""
        ...

    def samples(self, numbers: NDArray[np.int64]) -> Sequence[Any]:
        """The samples of these numbers, in their order."""
        ...

    def sample(self, number: int) -> Any:
        """The sample of this number."""
        ...


AnySource = SampleSource | SequenceSource


def as_source(data: Any) -> ArraySource | MapSource | RecordSource:
    """Wrap what a user gives as the source of single samples.

    Args:
        data: An array, a tuple or dict (nested too) of arrays of equal length, what
            ``open_records`` returns or the path of a record file, an array of zarr's, whose rows
            are read as they are needed, or an object with ``__len__`` and ``__getitem__``.

    Raises:
        OSError: A path of nothing that can be read.
        RecordError: A path of something that is no record file.
        TypeError: ``data`` has no length or no random access.
        ValueError: Arrays of unequal lengths, or no sample at all.
    """
    source: ArraySource | MapSource | RecordSource
    if isinstance(data, RecordSource):
        source = data
    elif isinstance(data, (str, os.PathLike)):
        source = open_guessed(data)
    elif isinstance(data, (tuple, dict)) or holds_arrays(data) or _is_stored_array(data):
        source = ArraySource(data)
    elif has_rows(data):
        source = MapSource(Rows(data))
    elif isinstance(data, bytes) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise TypeError(
            "source must be an array, a tuple or dict of arrays, or an object with __len__ and "
            f"__getitem__, got {type(data).__name__}: random access is what lets any worker "
            "compute any batch; turn a generator into a list, or give a map-style data set"
        )
    else:
        source = MapSource(data)
    if not len(source):
        raise ValueError("source must hold at least one sample, got 0")
    return source


def _is_stored_array(data: Any) -> bool:
    """Whether rows can be gathered of it; those of texts, or of lengths that vary, are objects."""
    return is_stored(data) and not np.dtype(data.dtype).hasobject
