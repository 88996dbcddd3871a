"""Memory of batches: files shared between processes, and blocks of this process used again.

A Linux memory file (``memfd_create``) has no name in ``/dev/shm``. So it isn't bound by that
mount's size (64 MB in a container, by default), needs no unlinking, and leaves nothing behind when
its process is killed. Other processes of the same user open it through ``/proc``.

Ownership: the process that makes a ``SharedFile`` keeps it open as long as others may map it. A
mapping stays valid as long as an array refers to it, independently of the file.

A batch of a worker process lies in a slot, which is such a file: arrays, each padded to 64 bytes.
The trainer's process owns all slots. Each is in one of these states:

| state | who writes to it                | until                                               |
|-------|---------------------------------|-----------------------------------------------------|
| free  | none                            | a batch is submitted                                |
| taken | the worker that has the task     | the batch is delivered or discarded                 |
| held  | the user, through the arrays    | the last array that refers to it is gone            |

A slot is never free sooner, because frameworks read from it without a copy. A worker maps the slot
named in its task and makes it longer when the batch needs it, so that no batch is too large for it.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import logging
import math
import mmap
import os
import resource
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.alignment import ALIGNMENT_BYTES, aligned_empty


class FileName(NamedTuple):
    """Name under which another process opens a shared file."""

    path: str
    inode: int
    """Inode of the file, which a later file with the same path doesn't have."""


def is_open(name: FileName) -> bool:
    """True if the process that made a shared file hasn't closed it."""
    try:
        return os.stat(name.path).st_ino == name.inode
    except OSError:
        return False


class SharedFile:
    """A memory file, owned by the process that makes it; empty at first.

    Any process with its name may map it and make it longer.
    """

    _descriptor = -1

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("loader-adapters", os.MFD_CLOEXEC)
        path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        self.name = FileName(path, os.fstat(self._descriptor).st_ino)
        _files.add(self)

    @property
    def size(self) -> int:
        """Size in bytes; any process may have changed it."""
        return os.fstat(self._descriptor).st_size

    def grow(self, size: int) -> None:
        """Make the file at least ``size`` bytes long."""
        grow(self._descriptor, size)

    def map(self) -> mmap.mmap:
        """Map the whole file; writes are visible to all processes."""
        return mmap.mmap(self._descriptor, self.size)

    def close(self) -> None:
        """Close the file; mappings stay valid."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)  # Once, also after Ctrl-C: another file may have the number then.

    def __del__(self) -> None:
        self.close()


_files: weakref.WeakSet[SharedFile] = weakref.WeakSet()


def close_inherited() -> None:
    """Close the trainer's files in a forked worker, which opens those that it needs by name."""
    for file in list(_files):
        file.close()


def grow(descriptor: int, size: int) -> None:
    """Make a file at least ``size`` bytes long, and allocate its memory now.

    Raises:
        MemoryError: There is too little memory; writing to a mapping would kill the process.
    """
    if os.fstat(descriptor).st_size >= size:
        return
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        raise MemoryError(
            f"shared memory for {size:,} bytes could not be had ({error.strerror}): use a smaller "
            "batch_size or max_queue_size, fewer workers, or threads (use_multiprocessing=False)"
        ) from error


@contextlib.contextmanager
def _opened(name: FileName, flags: int) -> Iterator[int]:
    """Open another process's file, and yield the descriptor."""
    try:
        descriptor = os.open(name.path, flags)
    except PermissionError as error:
        raise PermissionError(
            error.errno,
            "a worker process may not open the training's shared memory: start the training as "
            "the user that it runs as, without prctl(PR_SET_DUMPABLE, 0), or use threads "
            "(use_multiprocessing=False)",
            name.path,
        ) from None
    try:
        if os.fstat(descriptor).st_ino != name.inode:
            raise FileNotFoundError(f"{name.path} is another file by now")
        yield descriptor
    finally:
        os.close(descriptor)


def map_private(name: FileName) -> mmap.mmap:
    """Map another process's file; writes stay in this process."""
    with _opened(name, os.O_RDONLY) as descriptor:
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)


# --- slots ---

log = logging.getLogger("adapters")

# Per slot in the trainer's process: its own descriptor, and its mapping's.
_DESCRIPTORS_OF_A_SLOT = 2
# Per worker: its socket and its process, and during its start the socket's other end.
_DESCRIPTORS_OF_A_WORKER = 3
# Reserved for the rest of the program: an eighth of all descriptors, but at least this many.
_SPARE_DESCRIPTORS = 24


@dataclass(frozen=True)
class ArrayInSlot:
    """An array in a slot."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


class Slot(SharedFile):
    """One shared file in the trainer's process; arrays that refer to it stay valid."""

    in_fork = False
    """True if a forked process may hold it for ever."""
    _memory: Any = b""

    def view(self) -> Any:
        """The slot's memory as a new object; arrays made from it keep that object alive."""
        if len(self._memory) < self.size:
            self._memory = self.map()
        return (ctypes.c_char * len(self._memory)).from_buffer(self._memory)


class Slots:
    """Slots of one executor. Any thread may call this, and it never blocks.

    Args:
        held: Maximum number of held slots. A batch delivered beyond that is copied out of its slot,
            so that a user who keeps all batches of an epoch doesn't run out of file descriptors.
    """

    def __init__(self, held: int) -> None:
        self._most_held = held
        self._held: set[Slot] = set()
        self._free: collections.deque[Slot] = collections.deque()
        self._closed = False
        _all.add(self)

    def take(self) -> Slot:
        """Take a free slot, or make a new one."""
        try:
            return self._free.pop()
        except IndexError:
            return Slot()

    def give_back(self, slot: Slot) -> None:
        """Take back a slot that no array refers to."""
        self._held.discard(slot)
        if self._closed or slot.in_fork:
            slot.close()
        else:
            self._free.append(slot)

    def deliver(self, slot: Slot, leaves: list[Any]) -> list[Any]:
        """Replace places by arrays in the slot, which comes back when the last of them is gone."""
        loan = slot.view()
        full = len(self._held) >= self._most_held
        delivered = list(leaves)
        for number, place in enumerate(leaves):
            if isinstance(place, ArrayInSlot):
                array = delivered[number] = _array(loan, place)
                if full:
                    copy = delivered[number] = aligned_empty(array.shape, array.dtype)
                    copy[...] = array
        if full:
            self.give_back(slot)
        else:
            self._held.add(slot)
            weakref.finalize(loan, self.give_back, slot).atexit = False
        return delivered

    def close(self) -> None:
        """Free unused slots; held ones are freed with their arrays."""
        self._closed = True
        while self._free:
            self._free.pop().close()


_all: weakref.WeakSet[Slots] = weakref.WeakSet()


def _leave_to_a_fork() -> None:
    for slots in list(_all):
        for slot in list(slots._held):
            slot.in_fork = True


os.register_at_fork(before=_leave_to_a_fork)


class SlotWriter:
    """A slot in a worker process. It keeps no descriptor except that of its mapping."""

    def __init__(self, name: FileName) -> None:
        self._name = name
        self._end = 0
        # The newest mapping is the longest; arrays may still be in an older one.
        self._maps: list[tuple[int, mmap.mmap]] = []
        self._map(mmap.PAGESIZE)

    def start_over(self) -> None:
        """Use the slot's memory for another batch."""
        self._end = 0
        del self._maps[:-1]

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Allocate an array in the slot; outside of it for Python objects, which aren't shared."""
        dtype = np.dtype(dtype)
        if dtype.hasobject:
            return np.empty(shape, dtype)
        place = ArrayInSlot(self._end, shape, dtype)
        self._end += -(-place.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        if self._end > len(self._maps[-1][1]):
            self._map(self._end)
        return _array(self._maps[-1][1], place)

    def put(self, array: NDArray[Any]) -> ArrayInSlot:
        """Copy ``array`` into the slot unless it is there; return its place."""
        if not array.nbytes:
            return ArrayInSlot(0, array.shape, array.dtype)
        if array.flags.c_contiguous:
            address = array.__array_interface__["data"][0]
            for base, memory in self._maps:
                if base <= address and address + array.nbytes <= base + len(memory):
                    return ArrayInSlot(address - base, array.shape, array.dtype)
        copy = self.allocate(array.shape, array.dtype)
        copy[...] = array
        return self.put(copy)

    def _map(self, size: int) -> None:
        """Map the whole file, which is made at least this long."""
        with _opened(self._name, os.O_RDWR) as descriptor:
            grow(descriptor, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
            memory = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
        address = np.frombuffer(memory, np.uint8, 1).__array_interface__["data"][0]
        self._maps.append((address, memory))


def _array(memory: Any, place: ArrayInSlot) -> NDArray[Any]:
    if not place.nbytes:
        return np.empty(place.shape, place.dtype)
    count = place.nbytes // place.dtype.itemsize
    return np.frombuffer(memory, place.dtype, count, place.offset).reshape(place.shape)


# --- how many fit ---


def room_for(window: int, workers: int) -> tuple[int, int]:
    """Reduce a window to the slots that fit, and warn if it had to be reduced.

    Args:
        window: Requested number of batches under way.
        workers: Number of worker processes.

    Returns:
        The number of batches under way ahead of the consumer, and the number of delivered ones that
        stay in their slots; further ones are copied out.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    free = limit - len(os.listdir("/proc/self/fd")) - max(_SPARE_DESCRIPTORS, limit // 8)
    slots = (free - _DESCRIPTORS_OF_A_WORKER * workers) // _DESCRIPTORS_OF_A_SLOT
    held = 2 * window + 8
    fits = window if window + held <= slots else max(1, min(window, slots // 2))
    if fits < window:
        log.warning(
            "batches that may be ready ahead are bounded to %d, not %d: this process may open %d "
            "files, and each batch of a worker process takes %d; raise the limit by `ulimit -n`, "
            "or use threads",
            fits,
            window,
            limit,
            _DESCRIPTORS_OF_A_SLOT,
        )
    return fits, max(0, min(held, slots - fits))


# --- blocks of this process ---

# Smaller blocks are cached by glibc's allocator, which is 3% faster (uint8 images, 10 MB).
_LEAST_BYTES = 32 << 20
# Maximum number of free blocks: batches are freed one by one, and a worker starts on the next.
_MOST_FREE = 4


class Arena:
    """Memory of large batches, reused when no array refers to it any more.

    The system zeroes the pages of new memory first: two threads that decode JPEGs into float32
    ``(64, 3, 224, 224)`` were a seventh slower with new memory.

    A block is lent as an array, and every view of that array keeps the loan alive. The block is
    free again when the last of them is gone, never sooner, because frameworks read from it without
    a copy. The garbage collector ends no loan early: it doesn't traverse NumPy arrays. Any thread
    may call this, and it never blocks. If many blocks are freed at once, most go back to the
    system.
    """

    def __init__(self) -> None:
        self._free: collections.deque[NDArray[np.uint8]] = collections.deque(maxlen=_MOST_FREE)
        self._closed = False

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Allocate an uninitialised array, as ``aligned_empty`` does."""
        dtype = np.dtype(dtype)
        count = math.prod(shape)
        size = count * dtype.itemsize
        if dtype.hasobject or size < _LEAST_BYTES:
            return aligned_empty(shape, dtype)
        block = self._take(size)
        loan: Any = (ctypes.c_char * size).from_buffer(block.data)
        weakref.finalize(loan, self._give_back, block).atexit = False
        array: NDArray[Any] = np.frombuffer(loan, dtype, count).reshape(shape)
        return array

    def close(self) -> None:
        """Return free blocks to the system, and the others when their arrays are gone."""
        self._closed = True
        self._free.clear()

    def _take(self, size: int) -> NDArray[np.uint8]:
        """Take a free block of up to twice the size, or make a new one."""
        for _ in range(len(self._free)):
            try:
                block = self._free.pop()
            except IndexError:  # Another thread was faster.
                break
            if size <= block.nbytes <= 2 * size:
                return block
            self._free.appendleft(block)
        return aligned_empty((size,), np.dtype(np.uint8))

    def _give_back(self, block: NDArray[np.uint8]) -> None:
        if not self._closed:
            self._free.append(block)
