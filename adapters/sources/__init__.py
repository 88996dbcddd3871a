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
from adapters.sources.arrays import ArraySource as ArraySource
from adapters.sources.arrays import holds_arrays as holds_arrays
from adapters.sources.arrays import refuse_parts_in_a_list as refuse_parts_in_a_list
from adapters.sources.arrays import stretch_of as stretch_of
from adapters.sources.arrays import take_rows as take_rows
from adapters.sources.datasets import MapSource as MapSource
from adapters.sources.sequence import SequenceSource as SequenceSource
from adapters.sources.sequence import reduce_iterator as reduce_iterator
from adapters.sources.source import Source as Source
from adapters.sources.source import Subset as Subset
from adapters.sources.stored import Stored as Stored
from adapters.sources.stored import holds_stored as holds_stored
from adapters.sources.stored import is_sparse
from adapters.sources.stored import is_stored as is_stored

if TYPE_CHECKING:
    from adapters.sources.concatenation import Concatenation as Concatenation
    from adapters.sources.concatenation import joined as joined
    from adapters.sources.decoders import Decoded as Decoded
    from adapters.sources.decoders import Images as Images
    from adapters.sources.decoders import guessed as guessed
    from adapters.sources.decoders import identity as identity
    from adapters.sources.examples import Examples as Examples
    from adapters.sources.features import Feature as Feature
    from adapters.sources.folders import names_images as names_images
    from adapters.sources.folders import open_images as open_images
    from adapters.sources.imagefiles import ImageSource as ImageSource
    from adapters.sources.imagefiles import ImageTuples as ImageTuples
    from adapters.sources.records import ExampleSource as ExampleSource
    from adapters.sources.records import RecordSource as RecordSource
    from adapters.sources.records import open_guessed as open_guessed
    from adapters.sources.records import open_records as open_records
    from adapters.sources.suggestion import suggested as suggested
    from adapters.sources.targets import Boxes as Boxes
    from adapters.sources.targets import Points as Points
else:  # Imported on first use: programs with arrays don't need these.
    _MODULES = {
        "concatenation": ("Concatenation", "joined"),
        "decoders": ("Decoded", "Images", "guessed", "identity"),
        "examples": ("Examples",),
        "features": ("Feature",),
        "folders": ("names_images", "open_images"),
        "imagefiles": ("ImageSource", "ImageTuples"),
        "records": ("ExampleSource", "RecordSource", "open_guessed", "open_records"),
        "suggestion": ("suggested",),
        "targets": ("Boxes", "Points"),
    }
    __getattr__ = bound(
        __name__,
        {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names},
    )


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
