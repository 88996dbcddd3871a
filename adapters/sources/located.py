"""``Located``: where records' encoded images and labels lie, so that each is parsed once.

If the kernel can, it finds an image and its label and checks the record's CRC (``look``). Other
records are parsed in Python, one by one (``note``).

Parsing a record takes longer than reading it, and the second epoch needn't do it. Worth it: 22
instead of 30 us for a TFRecord's image of 32x32, decoded, and 163 instead of 173 for one of 160x160
to 128x128; in RecordIO 22 instead of 26, and 153 instead of 157 (2 cores, CPU time, 2026-11).
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

# Largest size that four bytes hold.
_MOST_BYTES = (1 << 32) - 1
# Records with longer labels aren't remembered.
_MOST_REST_BYTES = 64
_GONE = -1


class Found(NamedTuple):
    """Requested records whose images are known, and where these lie.

    Args:
        places: Places of these among the requested records, ``(found,)``.
        buffers: The files, mapped as long as they are referenced.
        pieces: Number of the file, first byte and size, int64 ``(images of a record, found, 3)``.
    """

    places: NDArray[np.int64]
    buffers: list[memoryview]
    pieces: NDArray[np.int64]


class Located:
    """Images found so far, by record number.

    Thread-safe: what two threads note about a record is the same. It takes 12 bytes per image plus
    the rest of a record; memory is used once a nearby record is noted. If the rest is long, nothing
    is noted.

    Args:
        files: The records.
        images: Images per record.
        rest: Shape and dtype of what else a record holds, such as a label.
    """

    def __init__(self, files: RecordFiles, images: int, rest: Sequence[Leaf]) -> None:
        self._files = files
        known = sum(math.prod(shape) * dtype.itemsize for shape, dtype in rest) <= _MOST_REST_BYTES
        self._begins = np.zeros((len(files), images), np.int64)
        self._sizes = np.zeros((len(files), images), np.uint32)  # 0 if unknown.
        self._rest = [np.zeros((len(files), *shape), dtype) for shape, dtype in rest if known]
        self._notes = known

    def note(
        self, number: int, payload: memoryview, images: Sequence[memoryview], rest: Sequence[Any]
    ) -> None:
        """Remember where the images of this record lie, and its other values."""
        if isinstance(payload.obj, bytes):
            return  # A copy of a record stored in parts.
        if not self._notes or not all(0 < len(image) <= _MOST_BYTES for image in images):
            return
        shard, own = self._files.locate(number)
        start = int(shard.offsets[own]) + shard.codec.header_bytes - _address(payload)
        self._begins[number] = [start + _address(image) for image in images]
        for column, value in zip(self._rest, rest):
            column[number] = value
        # Last: other threads may be reading.
        self._sizes[number] = [len(image) for image in images]

    def look(self, numbers: NDArray[np.int64], names: tuple[str, str]) -> None:
        """Have the kernel find the images of records with one image and a number as label.

        Records that it can't handle or read stay unknown.

        Args:
            numbers: Record numbers.
            names: Feature names of image and label, in formats with features.
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
        # 0 if only the record itself has it.
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
        self._sizes[numbers, 0] = known["size"]  # Last: other threads may be reading.

    def find(
        self, numbers: NDArray[np.int64], rows: NDArray[np.int64], rest: Sequence[NDArray[Any]]
    ) -> Found:
        """Find where the images of these records lie.

        Args:
            numbers: Record numbers.
            rows: Their rows in the arrays of ``rest``.
            rest: Arrays for the other values of known records.
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
        """Map the files of these bytes; return them and, for each piece, its file or ``_GONE``."""
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
        """Fetch from remote files, all pieces of a file at once; see ``_mapped``."""
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
