"""Files in memory without a descriptor for each: as many as the system has maps for.

``mmap.mmap`` keeps a duplicate of the file's descriptor, of which a process has 1,024 as a rule,
for as long as somebody holds a part of the map. So the C library maps here, and the file is closed
at once. A map lives for as long as somebody holds a part of it. Any thread may ask.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)
_mmap, _munmap, _madvise = _libc.mmap, _libc.munmap, _libc.madvise
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_FAILED = ctypes.c_void_p(-1).value

_MAP_LIMIT = "/proc/sys/vm/max_map_count"
_USUAL_LIMIT = 65_530  # Linux's own.

# Where the maps that there are begin.
_living: set[int] = set()


class NoMapError(OSError):
    """The system has no room for another map."""


class Mapping:
    """A file's bytes; ``view`` gives them, and whoever holds a part of one holds this.

    Args:
        descriptor: Of the file, which may be closed then.
        size: Of the file, not 0.

    Raises:
        NoMapError: There are too many maps, or there is no address space left.
        OSError: The file can't be mapped.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        address = _mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == _FAILED:
            number = ctypes.get_errno()
            kind = NoMapError if number == errno.ENOMEM else OSError
            raise kind(number, f"{os.strerror(number)}, with {living()} files mapped")
        _living.add(address)
        self._address, self._size = address, size
        # No `__del__`, during which a weak reference would still give this to another thread.
        weakref.finalize(self, _unmap, address, size).atexit = False
        self.__array_interface__ = {
            "data": (address, True),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }

    def view(self) -> memoryview:
        """All of it, read-only."""
        return np.asarray(self).data

    def let_go(self) -> None:
        """Drop the pages from this process's memory; who reads them gets them back."""
        if hasattr(mmap, "MADV_DONTNEED"):
            _madvise(self._address, self._size, mmap.MADV_DONTNEED)


def _unmap(address: int, size: int) -> None:
    _living.discard(address)  # Before another thread may be given the same one.
    _munmap(address, size)


def living() -> int:
    """How many files are mapped, those too of which somebody just holds a part."""
    return len(_living)


def most() -> int:
    """How many files to keep mapped: a quarter of what a process may have.

    The rest is for libraries, threads and memory, and for files that are held beyond that.
    """
    try:
        with open(_MAP_LIMIT, encoding="ascii") as file:
            return max(1, int(file.read()) // 4)
    except (OSError, ValueError):
        return _USUAL_LIMIT // 4
