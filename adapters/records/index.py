"""Index files in the formats of MXNet and DALI: the offset of each record.

RecordIO's has MXNet's lines, ``key<TAB>offset``, in any order. TFRecord's has DALI's, ``offset
size``, where the size includes the 16 bytes of lengths and CRCs. ``sidecar`` defines the names and
places of index files. Without one, a file is searched for its records, damaged files included.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.errors import RecordError
from adapters.records.codec import Codec
from adapters.records.storage import Storage, peeked

# Headers compared before an index is accepted; the others are checked when they are read.
LOOKED_AT = 64
# Fewer for an object behind a URL, where each takes a request.
LOOKED_AT_OF_OBJECT = 2
_DIGITS, _TABS_AS_SPACES = b"0123456789", bytes.maketrans(b"\t", b" ")


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


class OtherIndexError(ValueError):
    """Raised if a text begins like the index of another format, or like none."""


def parse(text: bytes, codec: Codec) -> Index:
    """Parse an index.

    Raises:
        OtherIndexError: The first line is not in this format.
        ValueError: Another one isn't.
    """
    separator, head = b" " if codec.has_sizes else b"\t", text.lstrip()[:4096]
    if not head:
        return Index(np.empty(0, np.int64), np.empty(0, np.int64) if codec.has_sizes else None)
    line = head.splitlines()[0].strip()
    columns = line.count(separator) + 1
    if columns < 2 or (codec.has_sizes and columns > 2):
        raise OtherIndexError(f"its lines are no {codec.name} index's: {line[:60]!r}")
    try:
        both = _integers(text)
    except ValueError:  # Other line endings, blank lines, keys that are no integers, more columns.
        lines = (line.split(separator) for line in map(bytes.strip, text.splitlines()) if line)
        both = np.array([_numbers(columns, codec.has_sizes) for columns in lines], np.int64)
    first, second = np.ascontiguousarray(both.T)
    return Index(first, second) if codec.has_sizes else Index(second, None)


def _integers(text: bytes) -> NDArray[np.int64]:
    """Parse two integers a line as int64 ``(lines, 2)``; too large ones become 2^63 - 1."""
    text = text if text.endswith(b"\n") else text + b"\n"
    separators, lines = text.translate(_TABS_AS_SPACES, _DIGITS), text.count(b"\n")
    if separators != b" \n" * lines:
        raise ValueError("its lines are not two integers each")
    values = np.fromstring(text, np.int64, sep=" ")
    return values.reshape(lines, 2)  # A ValueError if a number is missing.


def _numbers(columns: list[bytes], has_sizes: bool) -> list[int]:
    """Return what DALI or MXNet reads of a line; numbers that no file has become -1."""
    first, second, *others = columns
    if others and (has_sizes or others[0].strip().isdigit()):
        raise ValueError("there are several numbers behind the first")
    numbers = int(first) if has_sizes else 0, int(second)
    return [number if 0 <= number < 1 << 63 else -1 for number in numbers]


def text_of(index: Index, codec: Codec, keys: Sequence[int] | None = None) -> bytes:
    """Format an index as its file's text.

    ``keys`` are those by which MXNet's ``read_idx`` finds records; None for the record numbers.
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

    An index that is ``newer`` than the file may leave out records. The headers of ``looked_at``
    records are compared.
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
    if (np.diff(inorder) == 0).any():
        return "it lists a record twice"
    ends, gap = None, bool(inorder[0] != 0)
    if index.sizes is not None:
        ends = inorder + index.sizes[order]
        gap = gap or bool((ends[:-1] != inorder[1:]).any())
    try:
        places = list(range(len(inorder)))
        if len(places) > looked_at:  # Evenly spaced, including the last.
            places = np.unique(np.linspace(0, places[-1], looked_at).astype(int)).tolist()
        some = peeked(storage, inorder[places].tolist())
        for place in places:
            end = codec.end(some, int(inorder[place]))
            if ends is not None and ends[place] != end:
                return f"its record at byte {inorder[place]} has another size"
            # A record that overlaps the next one has a wrong length: reading it says so.
            gap = gap or end < (inorder[place + 1] if place + 1 < len(inorder) else storage.size)
    except RecordError as error:
        return f"at byte {error.offset}, {error.expected} expected, {error.found} found"
    if gap and not newer:
        return "it leaves out records, and is no newer than the file"
    return None


def searched(storage: Storage, codec: Codec, verify: bool = True) -> Index:
    """Find the records of a file by their headers, and each damaged range as one record.

    Raises:
        RecordError: The file doesn't begin like this format and has no intact record, or the format
            can't find records after damage.
    """
    begins, ends = array("q"), array("q")
    damage: dict[int, RecordError] = {}
    position, last = 0, None
    while position < storage.size:
        try:
            end = codec.end(storage, position, verify)
        except RecordError as error:
            if codec.following is None:
                raise
            if not verify:  # In a damaged file, all is checked.
                return searched(storage, codec)
            damaged, following = codec.following(storage, last, position)
            if damaged == last:  # Replace that record, too.
                position = damaged
                del begins[-1], ends[-1]
            number = len(begins)
            try:
                codec.read(storage, position, number, True)
                found = RecordError(storage.name, number, position, error.expected, error.found)
            except RecordError as of_reading:
                found = of_reading
            damage[number] = found
            begins.append(storage.size)
            ends.append(storage.size + 1)
            position, last = following, None
        else:
            begins.append(position)
            ends.append(end)
            position, last = end, position
    if 0 < len(begins) == len(damage) and not codec.begins(bytes(storage.read(0, 16))):
        raise damage[0]
    offsets = np.array(begins, np.int64)
    # RecordIO's sizes have no CRC; in a damaged file, the next header is compared instead.
    has_sizes = codec.has_sizes or not damage
    return Index(offsets, np.array(ends, np.int64) - offsets if has_sizes else None, damage)
