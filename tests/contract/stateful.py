# ruff: noqa: SIM115 - they are open for as long as the data set is
"""Data sets as users write them, whose ``__getitem__`` changes something that the next call needs.

Each has 40 samples: the number, and 32 bytes that follow from it. Between the two steps of a read,
as between ``seek`` and ``read``, each waits a moment, so that a second thread inside is seen.
Worker processes import this module; heavy libraries are imported when one is used.
"""

from __future__ import annotations

import bz2
import collections
import gzip
import hashlib
import io
import lzma
import mmap
import os
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np

LENGTH = 40
SIZE = 32


def pause() -> None:
    """Let another thread in, if one may come in."""
    time.sleep(0.0002)


def content(number: int) -> bytes:
    """The bytes of a sample."""
    return hashlib.sha256(str(int(number)).encode()).digest()


def array(data: Any) -> np.ndarray:
    """Bytes as uint8 ``(32,)``."""
    return np.frombuffer(bytes(data), np.uint8)


def raw_file(folder: Path) -> Path:
    """A file of all samples, one after another."""
    path = folder / "samples.bin"
    path.write_bytes(b"".join(map(content, range(LENGTH))))
    return path


class Stateful:
    """Numbered samples of 32 bytes; each subclass has its own way to read them.

    Args:
        folder: For what it reads.
    """

    def __init__(self, folder: Path) -> None:
        self.prepare(folder)

    def prepare(self, folder: Path) -> None:
        """Write what is read, and open it."""

    def read(self, number: int) -> Any:
        """The bytes of a sample."""
        raise NotImplementedError

    def expected(self, number: int) -> bytes:
        """The right bytes."""
        return content(number)

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, number: int) -> Any:
        return np.int64(number), array(self.read(int(number)))

    def close(self) -> None:
        """Close what is open."""
        for each in vars(self).values():
            if hasattr(each, "close"):
                each.close()


class SlowFile(io.FileIO):
    """Gives other threads the time to come between ``seek`` and ``read``."""

    def seek(self, *arguments: Any) -> int:
        """Wait a moment, too."""
        place = super().seek(*arguments)
        pause()
        return place


# --- files ---


class File(Stateful):
    def prepare(self, folder):
        self.handle = open(raw_file(folder), "rb")

    def read(self, number):
        self.handle.seek(number * SIZE)
        pause()
        return self.handle.read(SIZE)


class LazyFile(Stateful):
    def prepare(self, folder):
        self.path, self.handle = raw_file(folder), None

    def read(self, number):
        if self.handle is None:
            self.handle = open(self.path, "rb")
        self.handle.seek(number * SIZE)
        pause()
        return self.handle.read(SIZE)


class PicklableFile(LazyFile):
    """Leaves its handle at home."""

    def __getstate__(self):
        return {**vars(self), "handle": None}


class Descriptor(Stateful):
    def prepare(self, folder):
        self.descriptor = os.open(raw_file(folder), os.O_RDONLY)

    def read(self, number):
        os.lseek(self.descriptor, number * SIZE, os.SEEK_SET)
        pause()
        return os.read(self.descriptor, SIZE)

    def close(self):
        os.close(self.descriptor)


class Mapped(Stateful):
    def prepare(self, folder):
        with open(raw_file(folder), "rb") as file:
            self.handle = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def read(self, number):
        self.handle.seek(number * SIZE)
        pause()
        return self.handle.read(SIZE)


class Memmap(Stateful):
    def prepare(self, folder):
        self.rows = np.memmap(raw_file(folder), np.uint8, "r", shape=(LENGTH, SIZE))
        self.cursor = 0

    def read(self, number):
        self.cursor = number
        pause()
        return self.rows[self.cursor]


class Memory(Stateful):
    def prepare(self, folder):
        self.handle = io.BytesIO(raw_file(folder).read_bytes())

    def read(self, number):
        self.handle.seek(number * SIZE)
        pause()
        return self.handle.read(SIZE)


class Gzip(File):
    opened: Any = staticmethod(gzip.open)

    def prepare(self, folder):
        path = folder / "samples.compressed"
        with self.opened(path, "wb") as file:
            file.write(raw_file(folder).read_bytes())
        self.handle = self.opened(path, "rb")


class Bzip2(Gzip):
    opened = staticmethod(bz2.open)


class Lzma(Gzip):
    opened = staticmethod(lzma.open)


class Scratch(Stateful):
    """Unpacks what it has read into one bytearray."""

    def prepare(self, folder):
        self.handle, self.scratch = open(raw_file(folder), "rb"), bytearray(SIZE)

    def read(self, number):
        self.handle.seek(number * SIZE)
        self.handle.readinto(self.scratch)
        pause()
        return struct.unpack_from(f"{SIZE}s", self.scratch)[0]


# --- other shapes of data set ---


class Several(File):
    """Is asked for several samples at once."""

    def __getitems__(self, numbers):
        return [self[number] for number in numbers]


Sample = collections.namedtuple("Sample", ["number", "data"])


class Named(File):
    """Gives named tuples."""

    def __getitem__(self, number):
        return Sample(*super().__getitem__(number))


class Dictionaries(File):
    """Gives dicts."""

    def __getitem__(self, number):
        number, data = super().__getitem__(number)
        return {"number": number, "data": data}


class Wrapped(Stateful):
    """Hands on what another data set gives, as a subset does."""

    def prepare(self, folder):
        self.inner = File(folder)

    def __getitem__(self, number):
        return self.inner[number]
