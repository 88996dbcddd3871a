"""Whole files into memory: one `open`, one `fstat`, one read and one `close` for each.

``Reading`` is what is asked of whoever reads files; ``FileReading`` reads those of this machine,
and ``ObjectReading`` of ``objectreading`` what lies behind URLs.

No descriptor stays open, and a batch's files are read into memory that is used again. Worth it: 11
us for a JPEG of 47 kB in the page cache, and 17 where it is mapped, whose pages must be faulted in
(2 cores, CPU time, 2026-11).
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.records.ahead import AHEAD
from adapters.sources.files import Files

# Nobody has a picture of that size.
MOST_BYTES = 1 << 30
# Files whose size stands for that of all: looking at one takes 2 us, on NFS a millisecond.
_MEASURED = 256

Room = Callable[[int], memoryview]
"""Gives the memory for so many bytes."""


class Reading(Protocol):
    """Reads files by number. Any thread may ask."""

    uses_room: bool
    """Whether what is read lies in the memory that it is given; else it is there already."""

    def read(self, number: int, room: Room) -> memoryview:
        """A whole file.

        Raises:
            ContentError: No file, an empty one, or one that is too large.
            OSError: It isn't there, or can't be read.
        """
        ...

    def start(self, numbers: NDArray[np.int64]) -> None:
        """All of these are asked for now: begin to fetch at once what takes long."""
        ...

    def expect(self, numbers: NDArray[np.int64], elsewhere: bool) -> None:
        """These are going to be asked for, perhaps in another process."""
        ...

    def will_read(self, first: int, last: int) -> None:
        """These are going to be read: read ahead, and wait for nothing."""
        ...

    @property
    def store_is_cached(self) -> bool | None:
        """Whether a cache keeps what is fetched from a store; None without a store."""
        ...

    @property
    def mean_bytes(self) -> float | None:
        """Bytes of a file on average; None where none is there."""
        ...

    def stamps(self, numbers: Sequence[int]) -> list[str]:
        """Of each of these files, what changes when it does; "missing" where it isn't there."""
        ...

    def only(self, number: int) -> tuple[Files, Reading]:
        """One of the files by itself, wherever this process works by now, and who reads it."""
        ...

    def close(self) -> None:
        """Let go of memory, and fetch nothing more."""
        ...


class FileReading:
    """Reads files of this machine.

    Args:
        files: They are named by number.
    """

    uses_room = True
    store_is_cached = None

    def __init__(self, files: Files) -> None:
        self._files = files

    def read(self, number: int, room: Room) -> memoryview:
        """A whole file, in memory from ``room``."""
        return read_file(self._files.path(number), room)

    def start(self, numbers: NDArray[np.int64]) -> None:
        """They are read one after another."""

    def expect(self, numbers: NDArray[np.int64], elsewhere: bool) -> None:
        """The system reads ahead where it is told to."""

    def will_read(self, first: int, last: int) -> None:
        """Have the system read these files ahead."""
        for number in range(first, last):
            AHEAD.read(self._files.path(number))

    @property
    def mean_bytes(self) -> float | None:
        """Of some that stand at equal distances."""
        return mean_size(map(self._files.path, measured(len(self._files))))

    def stamps(self, numbers: Sequence[int]) -> list[str]:
        """Sizes and times of files."""
        return [_stamp(self._files.path(number)) for number in numbers]

    def only(self, number: int) -> tuple[Files, Reading]:
        """One of the files by itself."""
        files = self._files.only(number)
        return files, FileReading(files)

    def close(self) -> None:
        """Nothing is open."""


def _stamp(path: bytes) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return "missing"
    return f"{status.st_size} {status.st_mtime_ns}"


def measured(count: int) -> list[int]:
    """Of so many files, those whose size stands for that of all."""
    numbers: list[int] = np.unique(np.linspace(0, count - 1, _MEASURED).astype(np.int64)).tolist()
    return numbers


def read_file(path: bytes, room: Room) -> memoryview:
    """Read a whole file.

    Args:
        path: The file.
        room: Gives the memory for so many bytes.

    Returns:
        That memory.

    Raises:
        ContentError: No file, but a folder or a pipe, an empty one, or one of more than a GiB; or
            it became shorter meanwhile.
        OSError: It isn't there, or can't be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # A pipe isn't waited for.
    try:
        status = os.fstat(descriptor)
        size = status.st_size
        if not stat.S_ISREG(status.st_mode) or not 0 < size <= MOST_BYTES:
            raise _refused(status)
        memory = room(size)
        done = os.readv(descriptor, (memory,))
        while done < size:
            count = os.readv(descriptor, (memory[done:],))
            if not count:
                raise ContentError(f"{size:,} bytes", f"{done:,}: the file was cut meanwhile")
            done += count
    finally:
        os.close(descriptor)
    return memory


def mean_size(paths: Iterable[bytes]) -> float | None:
    """Bytes of a file on average, of those that are there; None if none is."""
    sizes = []
    for path in paths:
        with contextlib.suppress(OSError):
            sizes.append(os.stat(path).st_size)
    return sum(sizes) / len(sizes) if sizes else None


def _refused(status: os.stat_result) -> ContentError:
    """Why a file isn't read."""
    if stat.S_ISDIR(status.st_mode):
        return ContentError("a file", "a folder")
    if not stat.S_ISREG(status.st_mode):
        return ContentError("a file", "something else")
    if not status.st_size:
        return ContentError("an image", "an empty file")
    return ContentError(
        f"an image of at most {MOST_BYTES:,} bytes", f"a file of {status.st_size:,}"
    )


def new_memory(size: int) -> memoryview:
    """Room for a file, by itself."""
    return np.empty(size, np.uint8).data
