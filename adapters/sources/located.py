"""Where the encoded images of records lie, and their labels, so that each is taken apart once.

What a record is made of takes longer to find out than to read; the second epoch needn't. Worth it:
22 against 30 us for a TFRecord's image of 32x32, decoded, and 163 against 173 for one of 160x160 to
128x128; in RecordIO 22 against 26, and 153 against 157 (2 cores, CPU time, 2026-11).
"""

from __future__ import annotations

import math
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from adapters.records import RecordFiles

# What the four bytes of a size hold.
_MOST_BYTES = (1 << 32) - 1
# Longer labels are for the file to keep.
_MOST_LABEL_BYTES = 64


class Found(NamedTuple):
    """Of the records that were asked for, the images that are known, and where they lie.

    Args:
        places: Which of the records these are, ``(images,)``.
        buffers: The files, mapped for as long as somebody holds them.
        pieces: Number of the file, first byte and size, int64 ``(images, 3)``.
    """

    places: NDArray[np.int64]
    buffers: list[memoryview]
    pieces: NDArray[np.int64]


class Located:
    """The images that were found, by the number of the record.

    Any thread may ask and note; what two of them note about a record is the same. It is 12 bytes
    and a label for a record, which count as memory once a record near it was noted. Where labels
    are long, nothing is noted.

    Args:
        files: The records.
        shape: Of a label.
        dtype: Of a label.
    """

    def __init__(self, files: RecordFiles, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self._files = files
        self._begins = np.zeros(len(files), np.int64)
        self._sizes = np.zeros(len(files), np.uint32)  # 0 of those that aren't known.
        short = math.prod(shape) * np.dtype(dtype).itemsize <= _MOST_LABEL_BYTES
        self._labels = np.zeros((len(files) if short else 0, *shape), dtype)

    def note(self, number: int, payload: memoryview, image: memoryview, label: object) -> None:
        """Remember that this record's payload holds this image, a part of it, and this label."""
        if isinstance(payload.obj, bytes):
            return  # A copy, of a record in parts.
        if not len(self._labels) or not 0 < len(image) <= _MOST_BYTES:
            return
        shard, own = self._files.locate(number)
        start = int(shard.offsets[own]) + shard.codec.header_bytes
        self._begins[number] = start + _address(image) - _address(payload)
        self._labels[number] = label
        self._sizes[number] = len(image)  # At last, for who asks meanwhile.

    def find(
        self, numbers: NDArray[np.int64], rows: NDArray[np.int64], labels: NDArray[np.generic]
    ) -> Found:
        """Where the images of these records lie.

        Args:
            numbers: Of the records.
            rows: Of ``labels``, which belong to them.
            labels: Where the labels of those that are known are written.
        """
        sizes = self._sizes[numbers]
        places: NDArray[np.int64] = np.flatnonzero(sizes)
        if len(places) < len(numbers):
            numbers, rows, sizes = numbers[places], rows[places], sizes[places]
        if not len(places):
            return Found(places, [], np.zeros((0, 3), np.int64))
        labels[rows] = self._labels[numbers]
        begins, shards = self._begins[numbers], self._files.shards
        one_file = len(shards) == 1
        owners = repeat(0) if one_file else self._files.places(numbers)[0].tolist()
        buffers: list[memoryview] = []
        own, opened, gone = [], dict[int, int](), []
        for at, (owner, begin, size) in enumerate(zip(owners, begins.tolist(), sizes.tolist())):
            try:
                self._files.check_open()  # Reading would open it again.
                buffer = shards[owner].storage.covering(begin, size)
            except Exception:  # Which reading the record says, or does without a map.
                gone.append(at)
                continue
            if owner not in opened:
                opened[owner] = len(buffers)
                buffers.append(buffer)
            own.append(opened[owner])
        if gone:
            places, begins, sizes = (np.delete(each, gone) for each in (places, begins, sizes))
        pieces = np.empty((len(places), 3), np.int64)
        pieces[:, 0], pieces[:, 1], pieces[:, 2] = own, begins, sizes
        return Found(places, buffers, pieces)


def _address(view: memoryview) -> int:
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address
