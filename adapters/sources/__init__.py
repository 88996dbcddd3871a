"""Sources: random access to samples by number.

Reading a source doesn't change it, so many threads and processes may read it at once.
``SequenceSource`` is the only kind whose items are whole batches. ``as_source`` wraps user data
with the first entry of ``kinds`` that accepts it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
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
from adapters.sources.stored import is_sparse, is_stored

# Classes whose items are whole batches; found by name, so that nothing is imported.
_WHOLE_BATCHES = {"PyDataset", "Sequence"}
_LIBRARIES = {"keras", "tf_keras", "tensorflow"}

Kind = Callable[[Any], "Source | None"]


def _of_a_path(data: Any) -> Source | None:
    if not isinstance(data, (str, os.PathLike)):
        return None
    from adapters.sources.records import open_guessed

    return open_guessed(data)


def _of_arrays(data: Any) -> Source | None:
    # Such as a file of ``np.savez`` or HDF5; with numbers as keys, it maps those to samples.
    if isinstance(data, Mapping) and isinstance(next(iter(data), None), str):
        data = dict(data)
    sparse = is_sparse(data)  # A kind of it is a dict.
    if isinstance(data, dict) and not sparse and data and data.keys() == set(range(len(data))):
        return None  # Numbers of samples.
    stored = is_stored(data) and not np.dtype(data.dtype).hasobject  # As strings are.
    holds = isinstance(data, (tuple, dict)) or holds_arrays(data) or stored or sparse
    is_table = hasattr(data, "column_names") and hasattr(data, "__array__")  # pyarrow's.
    return ArraySource(data) if holds or is_table else None


def _of_samples(data: Any) -> Source | None:
    if isinstance(data, bytes) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        return None
    own = itertools.takewhile(lambda base: "__getitem__" not in vars(base), type(data).__mro__)
    if any(base.__name__ == "IterableDataset" for base in own):
        return None  # PyTorch's inherits one that only raises.
    return MapSource(data)


kinds: list[Kind] = [_of_a_path, _of_arrays, _of_samples]
"""Source factories, tried in order; each returns None for data of another kind."""


def as_source(data: Any, name: str = "source") -> Source:
    """Wrap user data as a source of single samples.

    Args:
        data: An array, a tuple or dict (nested too) of arrays of equal length, a result of
            ``open_records`` or ``open_images``, the path of a record file or of a folder with one
            folder of images per class, a zarr array, whose rows are read when needed, a SciPy
            sparse matrix, whose rows become dense, or an object with ``__len__`` and
            ``__getitem__``.
        name: The argument, for errors.

    Raises:
        OSError: The path can't be read.
        RecordError: The path is no record file.
        TypeError: ``data`` has no length or no random access.
        ValueError: Arrays of unequal lengths, or no samples.
    """
    if isinstance(data, type):
        raise TypeError(
            f"{name} must be an object, got the class {data.__name__}: give {data.__name__}(...)"
        )
    found = (source for kind in kinds if (source := kind(data)) is not None)
    source = data if isinstance(data, Source) else next(found, None)
    if source is None:
        raise TypeError(
            f"{name} must be an array, a tuple or dict of arrays, or an object with __len__ and "
            f"__getitem__, got {type(data).__name__}: random access is what lets any worker "
            "compute any batch; turn a generator into a list, or give a map-style data set"
        )
    if not len(source):
        raise ValueError(f"{name} must hold at least one sample, got 0")
    return source


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
    return as_source(data, name)
