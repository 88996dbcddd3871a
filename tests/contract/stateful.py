# ruff: noqa: SIM115 - they are open for as long as the data set is
"""Data sets as users write them, whose ``__getitem__`` changes something that the next call needs.

Each has 40 samples: the number, and 32 bytes that follow from it. Between the two steps of a read,
as between ``seek`` and ``read``, each waits a moment, so that a second thread inside is seen.
Nothing looks into them, so one of a kind will do: what can't be sent to a process, what can, what
belongs to a thread, what returns memory of its own. Worker processes import this module.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import io
import socket
import sqlite3
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
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
        self.handle = self.opened(raw_file(folder))

    def opened(self, path: Path) -> Any:
        return open(path, "rb")

    def read(self, number):
        self.handle.seek(number * SIZE)
        pause()
        return self.handle.read(SIZE)


class LazyFile(File):
    def prepare(self, folder):
        self.path, self.handle = raw_file(folder), None

    def read(self, number):
        if self.handle is None:
            self.handle = open(self.path, "rb")
        return super().read(number)


class PicklableFile(LazyFile):
    """Leaves its handle at home."""

    def __getstate__(self):
        return {**vars(self), "handle": None}


class Memory(File):
    def opened(self, path):
        return io.BytesIO(path.read_bytes())


class Tar(Stateful):
    def prepare(self, folder):
        path = folder / "samples.tar"
        with tarfile.open(path, "w") as archive:
            for number in range(LENGTH):
                member = tarfile.TarInfo(str(number))
                member.size = SIZE
                archive.addfile(member, io.BytesIO(content(number)))
        self.file = SlowFile(path)
        self.archive = tarfile.open(fileobj=self.file)

    def read(self, number):
        return self.archive.extractfile(str(number)).read()


class Database(Stateful):
    """A connection of the thread that has made it, as sqlite3 has it by default."""

    def prepare(self, folder):
        self.path = folder / "samples.db"
        with sqlite3.connect(self.path) as connection:
            connection.execute("create table samples (number integer, data blob)")
            rows = [(number, content(number)) for number in range(LENGTH)]
            connection.executemany("insert into samples values (?, ?)", rows)
        connection.close()
        self.connection = self.connect()

    def connect(self):
        return sqlite3.connect(self.path)

    def read(self, number):
        if self.connection is None:
            self.connection = sqlite3.connect(self.path)
        found = self.connection.execute("select data from samples where number = ?", (number,))
        pause()
        return found.fetchone()[0]

    def close(self):
        # Another thread may have opened it.
        with contextlib.suppress(sqlite3.ProgrammingError):
            super().close()


class LazyDatabase(Database):
    def connect(self):
        return None


def _answer(server: socket.socket) -> None:
    with server, server.makefile("rb") as questions:
        while question := questions.readline():
            server.sendall(content(int(question)))


class Socket(Stateful):
    def prepare(self, folder):
        self.client, server = socket.socketpair()
        self.server = threading.Thread(target=_answer, args=(server,))
        self.server.start()

    def read(self, number):
        self.client.sendall(b"%d\n" % number)
        pause()
        return self.client.recv(SIZE, socket.MSG_WAITALL)

    def close(self):
        self.client.close()
        self.server.join(10)


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


# --- memory ---


class Recent(Stateful):
    """Keeps the four samples that were used last."""

    def prepare(self, folder):
        self.recent = collections.OrderedDict()

    def read(self, number):
        if number not in self.recent:
            if len(self.recent) >= 4:
                oldest = next(iter(self.recent))
                pause()
                del self.recent[oldest]
            self.recent[number] = content(number)
        self.recent.move_to_end(number)
        return self.recent[number]


class Buffer(Stateful):
    """Returns the same array each time."""

    def prepare(self, folder):
        self.buffer = np.zeros(SIZE, np.uint8)

    def __getitem__(self, number):
        self.buffer[:] = array(content(number))
        pause()
        return np.int64(number), self.buffer


_GLOBAL = bytearray(SIZE)


class OfTheModule(Stateful):
    """Has its buffer in the module."""

    def read(self, number):
        _GLOBAL[:] = content(number)
        pause()
        return _GLOBAL


# --- transforms, collations, decoders and samplers ---


class Transform:
    """Writes the bytes of a sample into one buffer, and returns that."""

    def __init__(self) -> None:
        self.scratch = np.zeros(SIZE, np.uint8)

    def __call__(self, number: Any) -> Any:
        self.scratch[:] = array(content(number))
        pause()
        return np.int64(number), self.scratch


def closure() -> Callable[[Any], Any]:
    """A transform whose buffer is in its closure."""
    scratch = bytearray(SIZE)

    def transform(number: Any) -> Any:
        scratch[:] = content(number)
        pause()
        return np.int64(number), array(scratch)

    return transform


class BatchTransform:
    """Makes the batch in its own memory."""

    def __init__(self) -> None:
        self.scratch = np.zeros((LENGTH, SIZE), np.uint8)

    def __call__(self, batch: Any) -> Any:
        numbers = batch.asnumpy() if hasattr(batch, "asnumpy") else np.asarray(batch)
        for row, number in zip(self.scratch, numbers):
            row[:] = array(content(number))
            pause()
        return numbers, self.scratch[: len(numbers)].copy()


class Collate:
    """Stacks in its own memory."""

    def __init__(self) -> None:
        self.scratch = np.zeros((LENGTH, SIZE), np.uint8)

    def __call__(self, samples: list[Any]) -> Any:
        for row, number in zip(self.scratch, samples):
            row[:] = array(content(number))
            pause()
        return np.array(samples, np.int64), self.scratch[: len(samples)].copy()


class Decode:
    """Takes a record apart in its own memory."""

    def __init__(self) -> None:
        self.scratch = bytearray(SIZE)

    def __call__(self, record: bytes) -> Any:
        self.scratch[:] = record[1:]
        pause()
        return np.int64(record[0]), array(self.scratch)


class Sampler:
    """Keeps its order, and its place in it."""

    def __init__(self, order: list[int] | None = None) -> None:
        self.order, self.place = order or list(range(LENGTH))[::-1], 0

    def __iter__(self) -> Iterator[int]:
        self.place = 0
        while self.place < len(self.order):
            number = self.order[self.place]
            pause()
            self.place += 1
            yield number

    def __len__(self) -> int:
        return len(self.order)


class BatchSampler:
    """Fills one list, batch after batch."""

    def __init__(self, size: int) -> None:
        self.size, self.numbers = size, []

    def __iter__(self) -> Iterator[list[int]]:
        for start in range(0, LENGTH, self.size):
            self.numbers[:] = range(start, start + self.size)
            pause()
            yield list(self.numbers)

    def __len__(self) -> int:
        return LENGTH // self.size
