"""Tags in TIFF directories. A TIFF has one directory a page; EXIF is a TIFF without an image.

::

    TIFF       "II" or "MM" | u16 42 | u32 offset of the first directory
    BigTIFF    "II" or "MM" | u16 43 | u16 8 | u16 0 | u64 offset of the first directory
    directory  u16 (u64) entries | entry | ... | entry | u32 (u64) offset of the next one, or 0
    entry      u16 tag | u16 type | u32 (u64) count | 4 (8) bytes: the values, or their offset

Source: TIFF 6.0, and the BigTIFF of libtiff.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

SUBFILE, WIDTH, HEIGHT, BITS, PHOTOMETRIC, ORIENTATION = 254, 256, 257, 258, 262, 274
SAMPLES, PLANAR, EXTRA, FORMAT = 277, 284, 338, 339
_HEAD = re.compile(rb"II[*+]\0|MM\0[*+]")
# libtiff's limit on a directory's entries; integer types.
_MOST_ENTRIES = 4096
_NUMBERS = {1: "B", 3: "H", 4: "I", 16: "Q"}
# Bits of a page's subfile type: a smaller version of another page, or its mask.
_NO_PAGE = 1 | 4


class Tag(NamedTuple):
    """An entry of a directory.

    Args:
        tag: Number of the tag.
        kind: TIFF's number of the type.
        value: First of its integers; None for other types.
    """

    tag: int
    kind: int
    value: int | None


def is_tiff(buffer: memoryview | bytes) -> bool:
    """True if the buffer begins like a TIFF or a BigTIFF."""
    return _HEAD.match(bytes(buffer[:4])) is not None


def directories(buffer: memoryview | bytes) -> Iterator[list[Tag]]:
    """Yield the tags of each directory, in order.

    Raises:
        ValueError, struct.error: The part of the buffer that was read is damaged.
    """
    view = memoryview(buffer)
    order = "<" if view[0] == ord("I") else ">"
    is_big = struct.unpack_from(f"{order}H", view, 2) == (43,)
    offset, count = "QQ" if is_big else "IH"
    entry = struct.Struct(f"{order}HHQ8s" if is_big else f"{order}HHI4s")
    (at,) = struct.unpack_from(order + offset, view, 8 if is_big else 4)
    seen: set[int] = set()
    while at and at not in seen:
        seen.add(at)
        if at > len(view):
            raise ValueError(f"its directory would lie at byte {at}")
        (entries,) = struct.unpack_from(order + count, view, at)
        at += struct.calcsize(order + count)
        directory = view[at : at + entry.size * min(entries, _MOST_ENTRIES)]
        whole = directory[: len(directory) // entry.size * entry.size]
        yield [_tag(view, order, offset, *each) for each in entry.iter_unpack(whole)]
        at += entry.size * entries
        is_inside = at + struct.calcsize(order + offset) <= len(view)
        at = struct.unpack_from(order + offset, view, at)[0] if is_inside else 0


def _tag(view: memoryview, order: str, offset: str, tag: int, kind: int, *rest: object) -> Tag:
    count, field = rest
    assert isinstance(count, int)
    assert isinstance(field, bytes)
    if kind not in _NUMBERS or not count:
        return Tag(tag, kind, None)
    code = order + _NUMBERS[kind]
    if struct.calcsize(code) * count <= len(field):
        return Tag(tag, kind, struct.unpack_from(code, field)[0])
    (at,) = struct.unpack(order + offset, field)
    inside = at + struct.calcsize(code) <= len(view)
    return Tag(tag, kind, struct.unpack_from(code, view, at)[0] if inside else None)


def numbers(directory: list[Tag]) -> dict[int, int]:
    """Select the tags with integer values."""
    return {tag: value for tag, _, value in directory if value is not None}


def pages(buffer: memoryview | bytes) -> int:
    """Count the images of a TIFF, except smaller versions of others and masks."""
    count = 0
    try:
        for directory in directories(buffer):
            count += not numbers(directory).get(SUBFILE, 0) & _NO_PAGE
    except (struct.error, ValueError):
        pass  # Decoding the first page reports the damage.
    return count
