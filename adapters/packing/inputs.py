"""Inputs of ``pack``: a folder of images, a list or table of them, arrays, or any source.

Each becomes a sequence of ``Item``s in an order that depends on the input alone. A file sorted by
class is a trap for readers that take it a part at a time: an order in blocks, or a shuffle buffer,
gives batches of few classes. So inputs whose labels come in runs are permuted by a seed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.batch.permutation import PACKED, permute
from adapters.remote import clean, is_url
from adapters.remote.urls import as_path
from adapters.sources import ArraySource, Source, Subset, as_source
from adapters.sources.arrays import refuse_masked
from adapters.sources.folders import names_images, open_images
from adapters.sources.imagefiles import ImageSource
from adapters.sources.tables import lines_of_lst
from adapters.user_code import Gate

Content = bytes | NDArray[Any]
Seed = int | Literal["auto"] | None
# Pairs of neighbours whose labels are compared.
_MOST_PAIRS = 4096
# With fewer samples, neighbours say nothing.
_LEAST = 8
# Labels come in runs if they change less often than this fraction of a shuffled order's changes.
_RUNS = 0.5


class Item(NamedTuple):
    """Sample to be packed."""

    name: str
    """Name in messages: the file, or the sample's number."""
    number: int
    """Id of the record."""
    label: Any
    """A number, or several."""
    content: Callable[[], Content]
    """Reads the encoded image, or makes the array; any thread may call it, and, once it is pickled,
    any process."""
    held_bytes: int = 0
    """Bytes of the image that are in memory already."""


@dataclass(frozen=True)
class Inputs:
    """Samples to be packed, in the order in which they are written."""

    items: Sequence[Item]
    """Items, in their own order."""
    classes: list[str] | None
    """Names of the classes by label; None if there are none."""
    fingerprint: str | None
    """Changes when the input does, so that an interrupted run can resume; None if unknown."""
    fetch: Callable[[NDArray[np.int64]], None] | None = None
    """Starts to fetch items, by their numbers; None if nothing has to be fetched."""
    order: NDArray[np.int64] | None = None
    """Numbers of the items in the order in which they are written; None for their own."""
    seed: int | None = None
    """Seed of that order; None for their own."""

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int) -> Item:
        return self.items[number if self.order is None else int(self.order[number])]

    def prefetch(self, begin: int, end: int) -> None:
        """Start to fetch these, if they have to be fetched."""
        if self.fetch is not None:
            numbers = np.arange(begin, end)
            self.fetch(numbers if self.order is None else self.order[numbers])


def inputs_of(source: Any, root: str | os.PathLike[str] | None) -> Inputs:
    """Make inputs of what ``pack`` takes as its source; lists have their paths below ``root``."""
    source = as_path(source) if isinstance(source, str) else source
    root = as_path(root) if isinstance(root, str) else root
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        if path.endswith(".lst") and os.path.isfile(path):
            return _list(path, os.path.dirname(path) if root is None else root)
        if names_images(path):
            return _images(open_images(path, root=root))
        if not is_url(path) and not os.path.exists(path):
            raise FileNotFoundError(f"no folder and no list at {path!r}")
        raise ValueError(
            "source must be a folder with a folder per class, whose URL ends with a slash, an .lst "
            f"or .csv file, arrays or a source, got {clean(path)!r}; for record files, see "
            "`adapters convert`"
        )
    if root is not None:
        raise ValueError(f"root is for the paths in a list, got root={root!r} with another source")
    whole, numbers = source, None
    if isinstance(source, Subset):
        whole, numbers = source.whole, source.numbers.tolist()
    if isinstance(whole, ImageSource) and whole.function is None and whole.content.decoder is None:
        return _images(whole, numbers)
    samples = as_source(source)
    fingerprint = samples.version if isinstance(samples, ArraySource) else None
    return Inputs(_Labelled(samples), None, fingerprint)


def _list(path: str, root: str | os.PathLike[str]) -> Inputs:
    lines = list(lines_of_lst(path))
    source = open_images([(os.path.join(root, name), 0) for _, _, name in lines])
    labels = [labels[0] if len(labels) == 1 else np.array(labels) for _, labels, _ in lines]
    return _unchanged(source, range(len(lines)), labels, [number for number, _, _ in lines])


def _images(source: ImageSource, chosen: Sequence[int] | None = None) -> Inputs:
    numbers = range(len(source)) if chosen is None else chosen
    labels = source.labels.tolist()
    own = [labels[number] for number in numbers]
    return _unchanged(source, numbers, own, range(len(numbers)))


def _unchanged(
    source: ImageSource, numbers: Sequence[int], labels: Sequence[Any], ids: Sequence[int]
) -> Inputs:
    """Make inputs of the files with these numbers, unchanged."""
    items = [
        Item(source.files.named(number), identity, label, _Stored(source, number))
        for number, label, identity in zip(numbers, labels, ids)
    ]
    described = [*(source.classes or ()), "", repr(np.array(ids).tolist())]
    described += [repr(np.asarray(label).tolist()) for label in labels]
    described += map(" ".join, zip(map(source.files.named, numbers), source.stamps(numbers)))
    own = np.array(numbers, np.int64)

    def fetch(wanted: NDArray[np.int64]) -> None:
        source.prefetch(own[wanted], elsewhere=False)

    return Inputs(items, source.classes, digest(described), fetch)


class Samples(Sequence[Item]):
    """Base class of items of a source, made on access."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._count = len(source)  # A data set may grow.
        self._gate = Gate([("source", each) for each in source.users_code])

    def __len__(self) -> int:
        return self._count

    def read(self, number: int) -> Any:
        """Read a sample; users' code runs in one thread at a time unless it is thread-safe."""
        with self._gate:
            return self.source.sample(number)


class _Labelled(Samples):
    """Images and labels of a source."""

    def __getitem__(self, number: Any) -> Any:
        sample = self.read(number)
        if not isinstance(sample, tuple) or len(sample) != 2:
            raise TypeError(
                f"source must give (image, label), got {type(sample).__name__} for sample {number}"
            )
        image, label = sample
        if getattr(label, "ndim", 0) > 1:
            raise TypeError(
                "source must give (image, label) with a number as label, or several, got an array "
                f"{label.shape} for sample {number}: images and their masks become records by a "
                "RecordWriter, as two features"
            )
        is_encoded = isinstance(image, (bytes, bytearray, memoryview))
        content = bytes(image) if is_encoded else _as_array(image)
        size = len(content) if isinstance(content, bytes) else content.nbytes
        labels = _as_array(label)
        plain = labels.item() if labels.size == 1 else labels
        return Item(f"sample {number}", number, plain, partial(_held, content), size)


class _Stored:
    """Reader of one file of an image source; pickled without the other files."""

    def __init__(self, source: ImageSource, number: int) -> None:
        self._source = source
        self._number = number

    def __call__(self) -> bytes:
        return self._source.read(self._number)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Stored, (self._source.only(self._number), 0)


def _held(content: Content) -> Content:
    return content


def _as_array(member: Any) -> NDArray[Any]:
    refuse_masked(member)
    return np.asarray(member.asnumpy() if hasattr(member, "asnumpy") else member)


def digest(parts: Any) -> str:
    """Compute one digest of several texts."""
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def shuffled(inputs: Inputs, seed: Seed) -> Inputs:
    """Put inputs in the order of a seed; ``"auto"`` permutes only labels in runs, None nothing."""
    if seed == "auto":
        seed = 0 if _in_runs(inputs.items) else None
    if seed is None:
        return inputs
    size = len(inputs)
    order = permute(np.arange(size), size, (int(seed), 0, PACKED))
    return replace(inputs, order=order, seed=int(seed))


def _in_runs(items: Sequence[Item]) -> bool:
    """True if neighbours share a label far more often than in a random order."""
    if len(items) < _LEAST:
        return False
    count = min(len(items) - 1, _MOST_PAIRS)
    first = np.linspace(0, len(items) - 2, count).astype(np.int64)
    one, other = labels_in(items, first), labels_in(items, first + 1)
    if one is None or other is None:
        return False
    _, counts = np.unique(np.concatenate([one, other]), return_counts=True)
    parts = counts / counts.sum()
    expected = (1 - (parts**2).sum()) * len(items) / (len(items) - 1)
    return bool((one != other).mean() < _RUNS * expected)


def labels_in(items: Sequence[Item], numbers: NDArray[np.int64]) -> NDArray[Any] | None:
    """Return one label each; None if items have several, or labels aren't known yet."""
    if isinstance(items, Samples):
        try:
            known = items.source.labels_of(numbers)
        except Exception:  # Damage is reported when the sample is packed.
            return None
        return None if known is None else np.asarray(known)
    found = [items[number].label for number in numbers.tolist()]
    return None if any(np.ndim(label) for label in found) else np.array(found)
