"""TFRecord, as TensorFlow writes it.

::

    record:  u64 length | u32 masked CRC of the length's 8 bytes | data | u32 masked CRC of the data

All numbers are little-endian; the CRC is CRC-32C. Source: TensorFlow,
``tensorflow/core/lib/io/record_writer.h``.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import RecordError
from adapters.images.kernel import load
from adapters.records.codec import Codec, cut_short, unlike_index
from adapters.records.storage import Storage

NAME = "tfrecord"
HEADER = struct.Struct("<QI")
FOOTER = struct.Struct("<I")
# Size of a record minus its payload.
OVERHEAD_BYTES = HEADER.size + FOOTER.size
_WINDOW_BYTES = 1 << 20
# First window that is searched after damage; it usually covers a record.
_SHORT_BYTES = 4096
# Limit of the search for the end of a damaged record whose data look like records.
_MOST_SEARCHED_BYTES = 8 << 20
_MASK_DELTA = 0xA282EAD8

try:
    from google_crc32c import extend as _extend
    from google_crc32c import value as _value
except ImportError:

    def _value(data: Any) -> int:
        raise ImportError(
            "TFRecord files need google-crc32c: pip install 'loader-adapters[records]'"
        )


def masked_crc(data: bytes | memoryview) -> int:
    """Compute the CRC-32C of ``data``, masked as TFRecord does.

    Masking keeps the CRC useful for data that contain CRCs themselves. Source: TensorFlow,
    ``tensorflow/core/lib/hash/crc32c.h``.
    """
    return masked(_value(data if isinstance(data, bytes) else bytes(data)))


def masked(crc: int) -> int:
    """Mask a CRC-32C for storage."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def masked_crcs_of(
    view: memoryview, begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Compute the masked CRC-32C of each range of ``view``, ``(ranges,)``."""
    kernel = load()
    if kernel is None:
        parts = zip(begins.tolist(), ends.tolist())
        return np.array([masked_crc(view[begin:end]) for begin, end in parts], np.uint32)
    crc = np.frombuffer(kernel.crcs(view, begins, ends), np.uint32)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA).astype(np.uint32)


def encode(payload: bytes) -> bytes:
    """Frame a payload as a record."""
    length = len(payload).to_bytes(8, "little")
    crc_of_length, crc = FOOTER.pack(masked_crc(length)), FOOTER.pack(masked_crc(payload))
    return b"".join((length, crc_of_length, payload, crc))


def read(
    storage: Storage, offset: int, number: int, verify: bool = True, size: int | None = None
) -> memoryview:
    """Return the payload of the record at ``offset``, uncopied; ``verify`` checks both CRCs."""
    length = _length_at(storage, offset, number, verify)
    if size is not None and size != length + OVERHEAD_BYTES:
        raise unlike_index(storage.name, number, offset, size, length + OVERHEAD_BYTES)
    payload = storage.read(offset + HEADER.size, length)
    if verify:
        at = offset + HEADER.size + length
        (crc,) = FOOTER.unpack(storage.read(at, FOOTER.size))
        expected = masked_crc(payload)
        if crc != expected:
            raise _wrong_crc(storage.name, number, offset, "data", crc, expected)
    return payload


def end(storage: Storage, offset: int, verify: bool = True) -> int:
    """Return the end of the record at ``offset``, by its header alone."""
    return offset + _length_at(storage, offset, 0, verify) + OVERHEAD_BYTES


def _length_at(storage: Storage, offset: int, number: int, verify: bool) -> int:
    """Return the length of the payload of the record at ``offset``."""
    header = storage.read(offset, HEADER.size) if offset >= 0 else memoryview(b"")
    left = max(0, storage.size - offset)
    if len(header) < HEADER.size:
        raise cut_short(storage.name, number, offset, OVERHEAD_BYTES, left)
    length: int
    length, crc = HEADER.unpack(header)
    if verify:
        expected = masked_crc(header[:8])
        if crc != expected:
            raise _wrong_crc(storage.name, number, offset, "length", crc, expected)
    if length + OVERHEAD_BYTES > left:
        raise cut_short(storage.name, number, offset, length + OVERHEAD_BYTES, left)
    return length


def begins_here(head: bytes | memoryview) -> bool:
    """True if a file's first bytes are a length and its CRC."""
    if len(head) < HEADER.size:
        return False
    crc: int = HEADER.unpack_from(head)[1]
    return masked_crc(head[:8]) == crc


def following(storage: Storage, last: int | None, broken: int) -> tuple[int, int]:
    """Find the next intact record: one whose CRCs of length and data are both right.

    A record whose length is damaged may contain intact records. If that record's own CRC shows that
    they are its data, they are not taken for records of the file.
    """
    if begins_here(storage.read(broken, HEADER.size)):
        return broken, storage.size  # The file ends within this record.
    damaged = broken if last is None or _is_whole(storage, last) else last
    first: int | None = None
    # If the damaged record ends at a candidate, the bytes before it are the CRC of its data.
    data_crc, crc_until = 0, damaged + HEADER.size
    for candidate in itertools.chain(_headers(storage, damaged + 1), [storage.size]):
        if candidate < storage.size and not _is_whole(storage, candidate):
            continue
        if first is not None and candidate - first > _MOST_SEARCHED_BYTES:
            break
        while crc_until < candidate - FOOTER.size:
            size = min(_WINDOW_BYTES, candidate - FOOTER.size - crc_until)
            piece = storage.read(crc_until, size)
            data_crc, crc_until = _extend(data_crc, bytes(piece)), crc_until + len(piece)
        footer = bytes(storage.read(crc_until, candidate - crc_until))
        if footer == FOOTER.pack(masked(data_crc)):
            first = candidate
            break
        first = candidate if first is None else first
    assert first is not None
    return damaged if first < broken else broken, first


def _headers(storage: Storage, start: int) -> Iterator[int]:
    """Yield each offset from ``start`` on that has a plausible length and its CRC."""
    size, most = storage.size - OVERHEAD_BYTES + 1, _SHORT_BYTES
    while start < size:
        count, most = min(most, size - start), min(2 * most, _WINDOW_BYTES)
        window = storage.read(start, count + HEADER.size - 1)
        lengths: NDArray[np.uint64] = np.ndarray(count, "<u8", window, 0, (1,))
        left = np.arange(size - 1 - start, size - 1 - start - count, -1).astype(np.uint64)
        found: NDArray[np.uint32] = np.ndarray(count, "<u4", window, 8, (1,))
        # Skip zeros, which are common in damaged files.
        places = np.flatnonzero((lengths <= left) & ((lengths > 0) | (found > 0)))
        right = masked_crcs_of(window, places, places + 8) == found[places]
        yield from (start + places[right]).tolist()
        start += count


def _is_whole(storage: Storage, offset: int) -> bool:
    try:
        read(storage, offset, 0)
    except RecordError:
        return False
    return True


def _wrong_crc(
    name: str, number: int, offset: int, what: str, found: int, expected: int
) -> RecordError:
    return RecordError(
        name, number, offset, f"{expected:#010x}, the CRC of the {what}", f"{found:#010x}"
    )


CODEC = Codec(
    name=NAME,
    title="TFRecord",
    encode=encode,
    read=read,
    end=end,
    begins=begins_here,
    header_bytes=HEADER.size,
    has_sizes=True,
    suffixes=(".tfrecord", ".tfrecords", ".tfrec", ".record", ".records"),
    kernel_kind=1,  # TFRECORD_EXAMPLE
    compressible=True,
    following=following,
)
