# ruff: noqa: SIM115 - they are open for as long as the data set is
"""Data sets as users write them, whose ``__getitem__`` changes something that the next call needs.

Each has 40 samples: the number, and 32 bytes that follow from it. Between the two steps of a read,
as between ``seek`` and ``read``, each waits a moment, so that a second thread inside is seen.
One of a kind: what can't be sent to a process, what can, what belongs to a thread, what returns
memory of its own. Worker processes import this module.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
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


class Stateful:
    """Numbered samples of 32 bytes; each subclass has its own way to read them, from a folder."""

    def __init__(self, folder: Path) -> None:
        self.prepare(folder)

    def prepare(self, folder: Path) -> None:
        """Write what is read, and open it."""

    def read(self, number: int) -> Any:
        """The bytes of a sample."""
        raise NotImplementedError

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, number: int) -> Any:
        return np.int64(number), array(self.read(int(number)))

    def close(self) -> None:
        """Close what is open."""
        for each in vars(self).values():
            if hasattr(each, "close"):
                each.close()


class File(Stateful):
    """Samples one after another."""

    def prepare(self, folder):
        self.path, self.handle = folder / "samples.bin", None
        self.path.write_bytes(b"".join(map(content, range(LENGTH))))
        self.open()

    def open(self):
        self.handle = open(self.path, "rb")

    def read(self, number):
        self.handle.seek(number * SIZE)
        pause()
        return self.handle.read(SIZE)


class PicklableFile(File):
    """Opens its file at the first read, and leaves its handle at home."""

    def open(self):
        pass

    def read(self, number):
        if self.handle is None:
            super().open()
        return super().read(number)

    def __getstate__(self):
        return {**vars(self), "handle": None}


class Database(Stateful):
    """A connection of the thread that has made it, as sqlite3 has it by default."""

    def prepare(self, folder):
        path = folder / "samples.db"
        with sqlite3.connect(path) as connection:
            connection.execute("create table samples (number integer, data blob)")
            rows = [(number, content(number)) for number in range(LENGTH)]
            connection.executemany("insert into samples values (?, ?)", rows)
        connection.close()
        self.connection = sqlite3.connect(path)

    def read(self, number):
        found = self.connection.execute("select data from samples where number = ?", (number,))
        pause()
        return found.fetchone()[0]

    def close(self):
        # Another thread may have opened it.
        with contextlib.suppress(sqlite3.ProgrammingError):
            super().close()


class Buffer(Stateful):
    """Returns the same array each time."""

    def prepare(self, folder):
        self.buffer = np.zeros(SIZE, np.uint8)

    def __getitem__(self, number):
        self.buffer[:] = array(content(number))
        pause()
        return np.int64(number), self.buffer


class Transform:
    """Writes the bytes of a sample into one buffer, and returns that."""

    def __init__(self) -> None:
        self.scratch = np.zeros(SIZE, np.uint8)

    def __call__(self, number: Any) -> Any:
        self.scratch[:] = array(content(number))
        pause()
        return np.int64(number), self.scratch
