"""Where the encoded images of records lie, and their labels, so that each is taken apart once.

Where the kernel can, it finds an image and its label, and checks their record's CRC (``look``);
others are found in Python, one by one (``note``).

What a record is made of takes longer to find out than to read; the second epoch needn't. Worth it:
22 against 30 us for a TFRecord's image of 32x32, decoded, and 163 against 173 for one of 160x160 to
128x128; in RecordIO 22 against 26, and 153 against 157 (2 cores, CPU time, 2026-11).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.images import kernel
from adapters.images.kernel import FLOATING, INTEGER, find_images
from adapters.records import RecordFiles
from adapters.records.remotefile import RemoteFile
from adapters.sources.source import Leaf

# What the four bytes of a size hold.
_MOST_BYTES = (1 << 32) - 1
# More than that of a label is for the file to keep.
_MOST_REST_BYTES = 64
_GONE = -1


class Found(NamedTuple):
    """Of the records that were asked for, those that are known, and where their images lie.

    Args:
        places: Which of the records these are, ``(found,)``.
        buffers: The files, mapped for as long as somebody holds them.
        pieces: Number of the file, first byte and size, int64 ``(images of a record, found, 3)``.
    """

    places: NDArray[np.int64]
    buffers: list[memoryview]
    pieces: NDArray[np.int64]


class Located:
    """The images that were found, by the number of the record.

    Any thread may ask and note; what two of them note about a record is the same. It is 12 bytes
    for an image and what else is in a record, which count as memory once a record near it was
    noted. Where that is long, nothing is noted.

    Args:
        files: The records.
        images: Of a record.
        rest: Shape and dtype of what else a record holds: a label.
    """

    def __init__(self, files: RecordFiles, images: int, rest: Sequence[Leaf]) -> None:
        self._files = files
        known = sum(math.prod(shape) * dtype.itemsize for shape, dtype in rest) <= _MOST_REST_BYTES
        self._begins = np.zeros((len(files), images), np.int64)
        self._sizes = np.zeros((len(files), images), np.uint32)  # 0 of those that aren't known.
        self._rest = [np.zeros((len(files), *shape), dtype) for shape, dtype in rest if known]
        self._notes = known

    def note(
        self, number: int, payload: memoryview, images: Sequence[memoryview], rest: Sequence[Any]
    ) -> None:
        """Remember that this record's payload holds these images, parts of it, and this besides."""
        if isinstance(payload.obj, bytes):
            return  # A copy, of a record in parts.
        if not self._notes or not all(0 < len(image) <= _MOST_BYTES for image in images):
            return
        shard, own = self._files.locate(number)
        start = int(shard.offsets[own]) + shard.codec.header_bytes - _address(payload)
        self._begins[number] = [start + _address(image) for image in images]
        for column, value in zip(self._rest, rest):
            column[number] = value
        # At last, for who asks meanwhile.
        self._sizes[number] = [len(image) for image in images]

    def look(self, numbers: NDArray[np.int64], names: tuple[str, str]) -> None:
        """Have the kernel find the images of records that hold one, and a number as label.

        What it says nothing of, and what can't be read, stays unknown.

        Args:
            numbers: Of the records.
            names: What the features of image and label are called, where there are features.
        """
        if not self._notes or self._begins.shape[1] != 1 or len(self._rest) != 1:
            return
        if kernel.load() is None:
            return
        (labels,) = self._rest
        if labels.ndim != 1 or labels.dtype not in (np.int64, np.float64):
            return
        wanted, field = (INTEGER, "integer") if labels.dtype == np.int64 else (FLOATING, "floating")
        places, own = (each.tolist() for each in self._files.places(numbers))
        shards = [self._files.shards[place] for place in places]
        begins = [int(shard.offsets[one]) for shard, one in zip(shards, own)]
        # 0 where only the record says it.
        sizes = [
            int(each.sizes[n]) if each.sizes is not None else 0 for each, n in zip(shards, own)
        ]
        if self._files.are_remote:
            extents = self._files.extents(numbers).tolist()
            buffers, owners = self._fetched(places, begins, extents)
        else:
            buffers, owners = self._mapped(places, begins, sizes)
        kinds = [shard.codec.kernel_kind for shard in shards]
        verify = [not shard.checked[one] for shard, one in zip(shards, own)]
        records = np.array([owners, begins, sizes, kinds, verify], np.int64).T.copy()
        found = find_images(buffers, records, names)
        if found is None:
            return
        right = np.flatnonzero(found["kind"] == wanted)
        for at in right.tolist():
            shards[at].checked[own[at]] = True
        known, numbers = found[right], numbers[right]
        self._begins[numbers, 0], labels[numbers] = known["begin"], known[field]
        self._sizes[numbers, 0] = known["size"]  # At last, for who asks meanwhile.

    def find(
        self, numbers: NDArray[np.int64], rows: NDArray[np.int64], rest: Sequence[NDArray[Any]]
    ) -> Found:
        """Where the images of these records lie.

        Args:
            numbers: Of the records.
            rows: Of the arrays of ``rest``, which belong to them.
            rest: Where what else is in those records that are known is written.
        """
        sizes = self._sizes[numbers]
        places: NDArray[np.int64] = np.flatnonzero(sizes[:, 0])
        if len(places) < len(numbers):
            numbers, rows, sizes = numbers[places], rows[places], sizes[places]
        if not len(places):
            return Found(places, [], np.zeros((sizes.shape[1], 0, 3), np.int64))
        for column, known in zip(rest, self._rest):
            column[rows] = known[numbers]
        begins = self._begins[numbers]
        images = begins.shape[1]
        of: Iterable[int] = repeat(0, begins.size)
        if len(self._files.shards) > 1:
            of = self._files.places(numbers)[0].repeat(images).tolist()
        mapped = self._fetched if self._files.are_remote else self._mapped
        buffers, owners = mapped(of, begins.ravel().tolist(), sizes.ravel().tolist())
        pieces = np.empty((images, len(places), 3), np.int64)
        pieces[:, :, 0] = np.array(owners).reshape(begins.shape).T
        pieces[:, :, 1], pieces[:, :, 2] = begins.T, sizes.T
        if _GONE in owners:
            here = (pieces[:, :, 0] != _GONE).all(0)
            places, pieces = places[here], np.ascontiguousarray(pieces[:, here])
        return Found(places, buffers, pieces)

    def _mapped(
        self, places: Iterable[int], begins: Sequence[int], sizes: Sequence[int]
    ) -> tuple[list[memoryview], list[int]]:
        """The files that these bytes are in, and which of them each is in, or ``_GONE``."""
        shards = self._files.shards
        buffers: list[memoryview] = []
        opened: dict[int, int] = {}
        owners: list[int] = []
        for place, begin, size in zip(places, begins, sizes):
            try:
                self._files.check_open()  # Reading would open it again.
                buffer = shards[place].storage.covering(begin, size)
            except Exception:
                owners.append(_GONE)
                continue
            if place not in opened:
                opened[place] = len(buffers)
                buffers.append(buffer)
            owners.append(opened[place])
        return buffers, owners

    def _fetched(
        self, places: Iterable[int], begins: Sequence[int], sizes: Sequence[int]
    ) -> tuple[list[memoryview], list[int]]:
        """As ``_mapped``, of remote files: all of a file at once, for one view of it."""
        first, length = np.array(begins), np.array(sizes)
        of = np.fromiter(places, np.int64, len(first))
        buffers: list[memoryview] = []
        owners = np.full(len(first), _GONE)
        for place in np.unique(of).tolist():
            own = np.flatnonzero(of == place)
            storage = self._files.shards[place].storage
            try:
                self._files.check_open()
                if isinstance(storage, RemoteFile):
                    buffer = storage.touch(first[own], length[own])
                else:
                    buffer = storage.will_touch(first[own], int(length[own].max()))
            except Exception:  # noqa: S112 - reading the record says it, or needs no map.
                continue
            owners[own] = len(buffers)
            buffers.append(buffer)
        return buffers, owners.tolist()


def _address(view: memoryview) -> int:
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address
