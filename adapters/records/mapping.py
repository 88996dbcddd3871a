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

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)
_mmap, _munmap = _libc.mmap, _libc.munmap
_mmap.restype = ctypes.c_void_p
_range = (ctypes.c_void_p, ctypes.c_size_t)
_mmap.argtypes = (*_range, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_munmap.argtypes = _range
_FAILED = ctypes.c_void_p(-1).value
_MAP_FIXED = 0x10
MAP_NORESERVE = 0x4000

# Start addresses of the existing maps.
_living: set[int] = set()


class NoMapError(OSError):
    """Raised if there are too many maps, or the address space is exhausted."""


class Mapping:
    """Bytes of a file that isn't empty, unmapped with their last view; thread-safe.

    The descriptor may be closed afterwards. Without one, it is an address range for ``put``, of
    which other parts read as zeros.
    """

    def __init__(self, size: int, descriptor: int | None = None) -> None:
        if descriptor is None:
            kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
            address = _mapped(None, size, kind, -1)
        else:
            address = _mapped(None, size, mmap.MAP_SHARED, descriptor)
        self._address, self._size, self._parts = address, size, [address]
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

    def put(self, offset: int, descriptor: int, size: int) -> None:
        """Map the first bytes of a file at a page boundary; it may be closed afterwards."""
        if not 0 <= offset <= self._size - size:
            raise ValueError(f"offset must be in range(0, {self._size - size + 1}), got {offset}")
        kind = mmap.MAP_SHARED | _MAP_FIXED
        self._parts.append(_mapped(self._address + offset, size, kind, descriptor))


def _mapped(address: int | None, size: int, kind: int, descriptor: int) -> int:
    found: int | None = _mmap(address, size, mmap.PROT_READ, kind, descriptor, 0)
    if found is None or found == _FAILED:
        number = ctypes.get_errno()
        error = NoMapError if number == errno.ENOMEM else OSError
        raise error(number, f"{os.strerror(number)}, with {living()} files mapped")
    _living.add(found)
    return found


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
