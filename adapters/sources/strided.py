"""Raw arrays of one shape, gathered out of a record file without a step in Python for each.

Where all records of a file are equally long and each holds an array in NPY's format, the file is a
matrix: a row per record, in which pixels and label stand at the same place in every row. What a row
holds besides is compared with the first record's, so that one that is laid out otherwise, and as
long by chance, is noticed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError, RecordError
from adapters.images import decode as decode_image
from adapters.records import example, irheader, recordio, tfrecord
from adapters.records.crc import masked_crc
from adapters.records.shard import Shard
from adapters.sources.contents import Images

Span = tuple[int, int]


@dataclass(frozen=True)
class Strided:
    """One file as a matrix.

    Args:
        shard: The file.
        stride: Bytes of a record.
        shape: Of the array that a record holds.
        dtype: Of the array that a record holds.
        pixels: Where the array's bytes begin and end in a record.
        label: Where those of the label do.
        label_kind: How the label is written: one varint, or little-endian float32.
        fixed: What begins and ends where, and is the same in every record.
        first: The first record, uint8 ``(stride,)``.
    """

    shard: Shard
    stride: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pixels: Span
    label: Span
    label_kind: Literal["varint", "floats"]
    fixed: tuple[Span, ...]
    first: NDArray[np.uint8]

    def gather(
        self, numbers: NDArray[np.int64], images: NDArray[Any], labels: NDArray[Any]
    ) -> NDArray[np.bool_]:
        """Write these records' arrays and labels.

        Args:
            numbers: In the file, ``(rows,)``.
            images: ``(rows, *shape)``.
            labels: ``(rows,)`` or ``(rows, labels)``.

        Returns:
            Which rows are right; the others must be read one by one, to see what is wrong.
        """
        storage = self.shard.storage
        start = int(self.shard.offsets[0])
        storage.will_touch(len(numbers) * self.stride)
        matrix = np.frombuffer(storage.view(), np.uint8, len(self.shard) * self.stride, start)
        rows = matrix.reshape(-1, self.stride)[numbers]
        right = np.ones(len(rows), bool)
        for begin, end in self.fixed:
            same = rows[:, begin:end] == self.first[begin:end]
            if not same.all():
                right &= same.all(1)
        self._check(numbers, rows, right)
        images[...] = rows[:, slice(*self.pixels)].view(self.dtype).reshape(-1, *self.shape)
        written = rows[:, slice(*self.label)]
        if self.label_kind == "floats":
            labels[...] = written.view("<f4").reshape(labels.shape)
        else:
            right &= (written[:, -1] < 128) & (written[:, :-1] > 127).all(1)
            shifts = np.arange(written.shape[1], dtype=np.int64) * 7
            labels[...] = ((written & 127).astype(np.int64) << shifts).sum(1)
        return right

    def _check(
        self, numbers: NDArray[np.int64], rows: NDArray[np.uint8], right: NDArray[np.bool_]
    ) -> None:
        """Compare CRCs, of those records that weren't compared before."""
        checked = self.shard.checked
        if self.shard.codec is not tfrecord or checked[numbers].all():
            return
        found = rows[:, -4:].copy().view("<u4")[:, 0]
        for row in np.flatnonzero(~checked[numbers] & right).tolist():
            data = rows[row, tfrecord.HEADER.size : -4].tobytes()
            right[row] = masked_crc(data) == found[row]
        checked[numbers[right]] = True


def strided_of(shard: Shard, content: Images) -> Strided | None:
    """The file as a matrix; None where its records aren't alike, or hold no raw arrays."""
    if content.decoder is not None or not len(shard):
        return None
    start = int(shard.offsets[0])
    try:
        stride = _stride(shard)
        if stride is None:
            return None
        payload = shard.codec.read(shard.storage, start, 0, False)
        encoded, _ = content.split(payload, shard.format)
        array = decode_image(encoded)
        label, kind = _label_in(payload, shard, content)
    except (ContentError, RecordError):
        return None
    row = np.frombuffer(shard.storage.view(), np.uint8, stride, start)
    is_raw = bytes(encoded[:6]) == b"\x93NUMPY" and array.flags.c_contiguous and array.size
    if not is_raw or label is None:
        return None
    pixels, label_span = _span(array, row), _span(np.frombuffer(label, np.uint8), row)
    if pixels is None or label_span is None:
        return None  # A record in parts, whose payload is a copy.
    varying = [pixels, label_span]
    if shard.codec is tfrecord:
        varying.append((stride - 4, stride))
    else:
        begin = recordio.HEADER.size
        varying.append((begin + 8, begin + irheader.HEADER.size))  # The image's two numbers.
    return Strided(
        shard,
        stride,
        array.shape,
        array.dtype,
        pixels,
        label_span,
        kind,
        tuple(_between(varying, stride)),
        row.copy(),
    )


def _stride(shard: Shard) -> int | None:
    """How far one record is from the next, where that is the same for all."""
    first, last = int(shard.offsets[0]), int(shard.offsets[-1])
    stride: int = shard.codec.end(shard.storage, first) - first
    if shard.codec.end(shard.storage, last) - last != stride:
        return None
    return stride if bool((np.diff(shard.offsets) == stride).all()) else None


def _label_in(
    payload: memoryview, shard: Shard, content: Images
) -> tuple[memoryview | None, Literal["varint", "floats"]]:
    """Where the bytes of the label lie."""
    if shard.codec is recordio:
        flag = irheader.HEADER.unpack_from(payload)[0]
        size = irheader.HEADER.size
        return payload[size : size + 4 * flag] if flag else payload[4:8], "floats"
    kind, view = example.lists(payload)[content.label]
    if kind == example.FLOAT_LIST:
        return view[len(view) - 4 * len(example.values(kind, view)) :], "floats"
    if kind != example.INT64_LIST or len(example.values(kind, view)) != 1:
        return None, "varint"
    packed = example.strings(view)
    return packed[0] if packed else view[1:], "varint"


def _span(part: NDArray[Any], row: NDArray[np.uint8]) -> Span | None:
    """Where ``part`` begins and ends in ``row``, whose memory it should be."""
    begin = int(part.__array_interface__["data"][0] - row.__array_interface__["data"][0])
    return (begin, begin + part.nbytes) if 0 <= begin <= len(row) - part.nbytes else None


def _between(varying: Iterable[Span], end: int) -> Iterable[Span]:
    at = 0
    for begin, stop in sorted(varying):
        if begin > at:
            yield at, begin
        at = max(at, stop)
    if at < end:
        yield at, end
