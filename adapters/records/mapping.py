"""Memory maps that don't hold a file descriptor each; the system's limit on maps applies.

``mmap.mmap`` holds a duplicate of the file's descriptor while any view of the map is alive, and a
process usually has 1,024. This module maps with the C library, so the file can be closed at once. A
map lives as long as any view of it. Thread-safe.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)
_mmap, _munmap, _madvise = _libc.mmap, _libc.munmap, _libc.madvise
_mmap.restype = ctypes.c_void_p
_range = (ctypes.c_void_p, ctypes.c_size_t)
_mmap.argtypes = (*_range, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_munmap.argtypes = _range
_madvise.argtypes = (*_range, ctypes.c_int)
_FAILED = ctypes.c_void_p(-1).value
_MAP_FIXED = 0x10
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)

# Start addresses of the existing maps.
_living: set[int] = set()


class NoMapError(OSError):
    """Raised if there are too many maps, or the address space is exhausted."""


class Memory:
    """Address range that is unmapped with its last view. Thread-safe."""

    def __init__(self, address: int, size: int) -> None:
        self._address, self._size = address, size
        self._parts = [address]
        _living.add(address)
        # Not `__del__`: while it ran, a weak reference would still give this map to another thread.
        weakref.finalize(self, _unmap, self._parts, size).atexit = False
        self.__array_interface__ = {
            "data": (address, True),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }

    def view(self) -> memoryview:
        """Return a read-only view of all bytes."""
        return np.asarray(self).data


class Mapping(Memory):
    """Bytes of a file that isn't empty; its descriptor may be closed afterwards."""

    def __init__(self, descriptor: int, size: int) -> None:
        address = _mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        super().__init__(_checked(address), size)

    def read_nothing_around(self) -> None:
        """Tell the system to read only pages that are touched, without read-around."""
        _madvise(self._address, self._size, mmap.MADV_RANDOM)


class Reserved(Memory):
    """Address range into which bytes are written or parts of files are mapped.

    Unfilled parts read as zeros, so the owner must know which parts are filled.

    Args:
        size: Size in bytes, not 0.
        writable: True to use ``write``, False to use ``put``.
    """

    def __init__(self, size: int, writable: bool) -> None:
        kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        allowed = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        super().__init__(_checked(_mmap(None, size, allowed, kind, -1, 0)), size)
        _madvise(self._address, size, mmap.MADV_NOHUGEPAGE)  # A byte must not take 2 MiB.

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Copy bytes to an offset."""
        size = memoryview(data).nbytes
        there: Any = (ctypes.c_char * size).from_address(self._place(offset, size))
        np.frombuffer(there, np.uint8)[:] = np.frombuffer(data, np.uint8)

    def put(self, offset: int, descriptor: int, size: int) -> None:
        """Map the first bytes of a file at a page boundary; it may be closed afterwards."""
        address, kind = self._place(offset, size), mmap.MAP_SHARED | _MAP_FIXED
        _checked(_mmap(address, size, mmap.PROT_READ, kind, descriptor, 0))
        self._parts.append(address)
        _living.add(address)

    def _place(self, offset: int, size: int) -> int:
        if not 0 <= offset <= self._size - size:
            raise ValueError(f"offset must be in range(0, {self._size - size + 1}), got {offset}")
        return self._address + offset


def _checked(address: int | None) -> int:
    if address is None or address == _FAILED:
        number = ctypes.get_errno()
        kind = NoMapError if number == errno.ENOMEM else OSError
        raise kind(number, f"{os.strerror(number)}, with {living()} files mapped")
    return address


def _unmap(parts: list[int], size: int) -> None:
    for address in parts:
        _living.discard(address)  # Before another thread may get the same address.
    _munmap(parts[0], size)


def living() -> int:
    """Number of mapped files, including those kept alive only by a view."""
    return len(_living)


def most() -> int:
    """Number of files to keep mapped: a quarter of the process's limit.

    The rest is left to libraries, threads, memory, and maps that views keep alive beyond that.
    """
    try:
        return max(1, int(Path("/proc/sys/vm/max_map_count").read_text()) // 4)
    except (OSError, ValueError):
        return 65_530 // 4  # Linux's default.
