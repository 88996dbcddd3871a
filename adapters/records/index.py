"""Index files in the formats of MXNet and DALI: the offset of each record.

RecordIO's has MXNet's lines, ``key<TAB>offset``, in any order. TFRecord's has DALI's, ``offset
size``, where the size includes the 16 bytes of lengths and CRCs. ``sidecar`` defines the names and
places of index files.
"""

from __future__ import annotations

import itertools
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.errors import RecordError
from adapters.records.codec import Codec
from adapters.records.peeking import mapped_lightly, will_peek
from adapters.records.storage import Storage

# Headers compared before an index is accepted; the others are checked when they are read.
LOOKED_AT = 64
# Fewer for an object behind a URL, where each takes a request.
LOOKED_AT_OF_OBJECT = 2
# Shorter indexes are parsed faster by Python than by NumPy. Worth it: 0.44 us a line, against 2.9,
# for 20 lines; for 100,000 lines, NumPy takes 0.10 us and Python 0.35 (2 cores, CPU time, 2026-11).
_SHORT_BYTES = 4096
_TWO_INTEGERS = re.compile(rb"(?:[0-9]{1,18}[\t ][0-9]{1,18}\n)*")


class Index(NamedTuple):
    """Positions of the records of a file.

    Args:
        offsets: Offsets of their first bytes; int64 ``(records,)``.
        sizes: Sizes with headers and padding; int64 ``(records,)``, or None if the index has none.
        damage: Errors of damaged records by record number. Such a record has the file's size as its
            offset and a size of 1, so that it can't be read.
    """

    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64] | None
    damage: Mapping[int, RecordError] = MappingProxyType({})


def parse(text: bytes, codec: Codec) -> Index:
    """Parse an index.

    Raises:
        ValueError: The lines are not in this format.
    """
    if not text.strip():
        return Index(np.empty(0, np.int64), np.empty(0, np.int64) if codec.has_sizes else None)
    columns = len(_columns(_first_line(text), codec))
    if columns < 2 or (codec.has_sizes and columns > 2):
        raise ValueError(f"its lines are no {codec.name} index's: {_first_line(text)[:60]!r}")
    try:
        both = _integers(text)
    except ValueError:
        if not codec.has_sizes:  # Keys that are not integers, or more columns.
            # Offsets that no file has, such as 2^63 and above, become -1.
            offsets = [at if 0 <= at < 1 << 63 else -1 for at in _second_column(text)]
            return Index(np.array(offsets, np.int64), None)
        # Other line endings, or blank lines.
        both = _integers(b"\n".join(filter(None, map(bytes.strip, text.splitlines()))))
    first, second = np.ascontiguousarray(both.T)
    return Index(first, second) if codec.has_sizes else Index(second, None)


def resembles(text: bytes, codec: Codec) -> bool:
    """True if a text that isn't a valid index of this format begins like one."""
    columns = _columns(_first_line(text), codec)
    numbers = columns[:2] if codec.has_sizes else columns[1:2]
    return len(columns) > 1 and all(number.isdigit() for number in numbers)


def _first_line(text: bytes) -> bytes:
    head = text[:_SHORT_BYTES].lstrip()
    return head.splitlines()[0].strip() if head else b""


def _columns(line: bytes, codec: Codec) -> list[bytes]:
    return line.split(b" " if codec.has_sizes else b"\t")


def _second_column(text: bytes) -> list[int]:
    """Return what MXNet reads of each line: the number after the key, whatever follows it.

    Raises:
        ValueError: Not a number, or one of several.
    """
    lines = text.decode("utf-8", "replace").splitlines()
    behind_keys = [line.partition("\t")[2] for line in lines if line.strip()]
    if "\t" in "".join(behind_keys):
        columns = [each.split("\t") for each in behind_keys]
        if any(each.strip().isdigit() for row in columns for each in row[1:2]):
            raise ValueError("there are several numbers behind a key")
        behind_keys = [row[0] for row in columns]
    return list(map(int, behind_keys))


def text_of(index: Index, codec: Codec, keys: Sequence[int] | None = None) -> bytes:
    """Format an index as its file's text.

    Args:
        index: The index.
        codec: The record file's format.
        keys: Keys by which MXNet's ``read_idx`` finds records; None for the record numbers.
    """
    offsets = index.offsets.tolist()
    if not codec.has_sizes:
        lines = [f"{key}\t{offset}\n" for key, offset in zip(keys or itertools.count(), offsets)]
    else:
        assert index.sizes is not None
        lines = [f"{offset} {size}\n" for offset, size in zip(offsets, index.sizes.tolist())]
    return "".join(lines).encode()


def misfit(
    index: Index, storage: Storage, codec: Codec, newer: bool, looked_at: int = LOOKED_AT
) -> str | None:
    """Return the reason why an index can't belong to this file, or None.

    Args:
        index: The parsed index.
        storage: The file.
        codec: Its format.
        newer: True if the index was written after the file; it may then leave out records.
        looked_at: Number of records whose headers are compared.
    """
    offsets = index.offsets
    if not len(offsets):
        return f"it lists no record of {storage.size} bytes" if storage.size else None
    order = np.argsort(offsets, kind="stable") if (np.diff(offsets) < 0).any() else slice(None)
    inorder = offsets[order]
    last = int(inorder[-1])
    if inorder[0] < 0 or last >= storage.size:
        wrong = last if last >= storage.size else int(inorder[0])
        return f"it has a record at byte {wrong} of {storage.size}"
    # A duplicate offset counts as a gap: the first of the two records ends elsewhere.
    ends, gap = None, bool(inorder[0] != 0 or (np.diff(inorder) == 0).any())
    if index.sizes is not None:
        ends = inorder + index.sizes[order]
    try:
        # Evenly spaced, including the last.
        places = _looked_at(len(inorder), looked_at)
        will_peek(storage, inorder[places].tolist())
        with mapped_lightly(storage) as some:
            for place in places:
                last_end = codec.end(some, int(inorder[place]))
                if ends is not None and ends[place] != last_end:
                    return f"its record at byte {inorder[place]} has another size"
                if place + 1 < len(inorder):
                    gap = gap or last_end != inorder[place + 1]
    except RecordError as error:
        return f"at byte {error.offset}, {error.expected} expected, {error.found} found"
    gap = gap or last_end != storage.size  # The last record was looked at, too.
    if ends is not None:
        gap = gap or bool((ends[:-1] != inorder[1:]).any())
    if gap and not newer:
        return "it leaves out records, and is no newer than the file"
    return None


def _looked_at(records: int, most: int) -> list[int]:
    if records <= most:
        return list(range(records))
    places = np.linspace(0, records - 1, most).astype(int)
    return [*dict.fromkeys(places.tolist())]


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it appears complete or not at all."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _integers(text: bytes) -> NDArray[np.int64]:
    """Parse two integers a line as int64 ``(lines, 2)``; larger ones become 2^63 - 1.

    Raises:
        ValueError: Anything else.
    """
    if len(text) < _SHORT_BYTES and _TWO_INTEGERS.fullmatch(text):
        return np.array([*map(int, text.split())], np.int64).reshape(-1, 2)
    raw = np.frombuffer(text if text.endswith(b"\n") else text + b"\n", np.uint8)
    ends = np.flatnonzero((raw - 48) > 9)  # Not a digit; unsigned, so values below 48 wrap.
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1] + 1
    lengths = ends - starts
    if len(ends) % 2 or not lengths.all() or (raw[ends[1::2]] != 10).any():
        raise ValueError("its lines are not two integers each")
    if lengths.max() > 18:
        lengths = np.minimum(lengths, 20)
    values = np.zeros(len(ends), np.int64)
    for place in range(int(lengths.max())):
        has = lengths > place
        values = np.where(has, values * 10 + raw[np.where(has, starts + place, 0)] - 48, values)
    values[lengths > 18] = np.iinfo(np.int64).max
    return values.reshape(-1, 2)
