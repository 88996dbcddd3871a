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

SUBFILE, WIDTH, HEIGHT, BITS, PHOTOMETRIC, ORIENTATION = 254, 256, 257, 258, 262, 274
SAMPLES, PLANAR, EXTRA, FORMAT = 277, 284, 338, 339
_HEAD = re.compile(rb"II[*+]\0|MM\0[*+]")
# libtiff's limit on a directory's entries; integer types.
_MOST_ENTRIES = 4096
_NUMBERS = {1: "B", 3: "H", 4: "I", 16: "Q"}
# Bits of a page's subfile type: a smaller version of another page, or its mask.
_NO_PAGE = 1 | 4

Tags = dict[int, "int | None"]
"""First number of each tag, the largest one if it is there twice; None if one is no integer."""


def is_tiff(buffer: memoryview | bytes) -> bool:
    """True if the buffer begins like a TIFF or a BigTIFF."""
    return _HEAD.match(bytes(buffer[:4])) is not None


def directories(buffer: memoryview | bytes) -> Iterator[Tags]:
    """Yield the tags of each directory, in order.

    Raises:
        ValueError, struct.error: The part of the buffer that was read is damaged.
    """
    view = memoryview(buffer)
    order = "<" if view[0] == ord("I") else ">"
    is_big = struct.unpack_from(f"{order}H", view, 2) == (43,)
    offset, count = (order + "Q", order + "Q") if is_big else (order + "I", order + "H")
    entry = struct.Struct(f"{order}HHQ8s" if is_big else f"{order}HHI4s")
    (at,) = struct.unpack_from(offset, view, 8 if is_big else 4)
    seen: set[int] = set()
    while at and at not in seen:
        seen.add(at)
        if at > len(view):
            raise ValueError(f"its directory would lie at byte {at}")
        (entries,) = struct.unpack_from(count, view, at)
        at += struct.calcsize(count)
        directory = view[at : at + entry.size * min(entries, _MOST_ENTRIES)]
        tags: Tags = {}
        for tag, kind, values, field in entry.iter_unpack(
            directory[: len(directory) // entry.size * entry.size]
        ):
            code = order + _NUMBERS[kind] if kind in _NUMBERS and values else ""
            if struct.calcsize(code) * values > len(field):
                (place,) = struct.unpack(offset, field)
                field = bytes(view[place : place + struct.calcsize(code)])
            is_whole = code and len(field) >= struct.calcsize(code)
            number = int(struct.unpack_from(code, field)[0]) if is_whole else None
            known = tags.get(tag, 0)
            tags[tag] = None if number is None or known is None else max(number, known)
        yield tags
        at += entry.size * entries
        is_inside = at + struct.calcsize(offset) <= len(view)
        at = struct.unpack_from(offset, view, at)[0] if is_inside else 0


def first_page(buffer: memoryview | bytes) -> tuple[Tags, int]:
    """Read the tags of the first directory, and count the images, up to a damaged directory.

    Smaller versions of others and masks don't count. Errors as for ``directories``.
    """
    first: Tags | None = None
    count = 0
    try:
        for tags in directories(buffer):
            first = tags if first is None else first
            count += not (tags.get(SUBFILE) or 0) & _NO_PAGE
    except (struct.error, ValueError):
        if first is None:
            raise
    return first or {}, count
