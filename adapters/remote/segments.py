"""Segment files of the cache: a part of an object, stored by pages as these were read.

::

    segment:  pages of 4,096 bytes, where they stand in the object | table
    table:    u64 for each page: 0 while it isn't there, else its CRC | which CRC << 32

The file is sparse: missing pages take no disk space. A page is written before its entry and used
only if its CRC matches. So a kill or a power loss leaves pages that are missing or are fetched
again, never a wrong one. Processes that write the same page write the same bytes, so they need no
lock. All numbers are little-endian.
"""

from __future__ import annotations

import os
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images.kernel import load

SUFFIX = ".seg"
PAGE_BYTES = 4096
ENTRY = np.dtype("<u8")
_ZLIB, _CASTAGNOLI = 1 << 32, 2 << 32

try:
    from google_crc32c import value as _crc32c
except ImportError:  # zlib's is slower: 1.3 us a page, against 0.6 (2026-11).
    _crc32c = None


def crc_of(data: bytes | memoryview) -> int:
    """Compute the table entry of a page."""
    return zlib.crc32(data) | _ZLIB if _crc32c is None else _crc32c(bytes(data)) | _CASTAGNOLI


def entries_of(data: memoryview, pages: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Compute the table entries of these pages of ``data``."""
    begins, kernel = pages * PAGE_BYTES, load()
    if kernel is None:
        return np.array([crc_of(data[at : at + PAGE_BYTES]) for at in begins.tolist()], ENTRY)
    crcs = np.frombuffer(kernel.crcs(data, begins, begins + PAGE_BYTES), np.uint32)
    entries: NDArray[np.uint64] = crcs.astype(ENTRY) | np.uint64(_CASTAGNOLI)
    return entries


def write_all(descriptor: int, data: Any, offset: int) -> None:
    """Write all of these bytes to a place in a file."""
    while len(data):
        count = os.pwrite(descriptor, data, offset)
        data, offset = data[count:], offset + count
