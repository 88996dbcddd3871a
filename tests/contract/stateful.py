# ruff: noqa: SIM115 - they are open for as long as the data set is
"""Data sets as users write them, whose ``__getitem__`` changes something that the next call needs.

Each has 40 samples: the number, and 32 bytes that follow from it. Between the two steps of a read,
as between ``seek`` and ``read``, each waits a moment, so that a second thread inside is seen.
Worker processes import this module; heavy libraries are imported when one is used.
"""

from __future__ import annotations

import bz2
import collections
import contextlib
import csv
import dbm.dumb
import gzip
import hashlib
import io
import json
import linecache
import lzma
import mmap
import os
import pickle
import shelve
import sqlite3
import struct
import tarfile
import threading
import time
import xml.etree.ElementTree as ET
import zipfile
import zlib
from collections.abc import Iterator
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


# --- archives and tables ---


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


class Zip(Stateful):
    def prepare(self, folder):
        path = folder / "samples.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(LENGTH):
                archive.writestr(str(number), content(number))
        self.file = SlowFile(path)
        self.archive = zipfile.ZipFile(self.file)

    def read(self, number):
        with self.archive.open(str(number)) as member:
            return member.read()


class Hdf5(Stateful):
    """Reads into one buffer, through an open file."""

    def prepare(self, folder):
        import h5py

        rows = np.stack([array(content(number)) for number in range(LENGTH)])
        with h5py.File(folder / "samples.h5", "w") as file:
            file["rows"] = rows
        self.file = h5py.File(folder / "samples.h5", "r")
        self.buffer = np.zeros(SIZE, np.uint8)

    def read(self, number):
        self.file["rows"].read_direct(self.buffer, np.s_[number])
        pause()
        return self.buffer.copy()


class Shelf(Stateful):
    def prepare(self, folder):
        with shelve.Shelf(dbm.dumb.open(str(folder / "shelf"), "n")) as shelf:
            for number in range(LENGTH):
                shelf[str(number)] = content(number)
        self.shelf = shelve.Shelf(dbm.dumb.open(str(folder / "shelf"), "r"))
        self.key = ""

    def read(self, number):
        self.key = str(number)
        pause()
        return self.shelf[self.key]


class Pickles(Stateful):
    def prepare(self, folder):
        self.handle, self.offsets = open(folder / "samples.pickle", "w+b"), []
        for number in range(LENGTH):
            self.offsets.append(self.handle.tell())
            pickle.dump(content(number), self.handle)

    def read(self, number):
        self.handle.seek(self.offsets[number])
        pause()
        return pickle.load(self.handle)


class JsonLines(Stateful):
    def prepare(self, folder):
        self.handle, self.offsets = open(folder / "samples.jsonl", "w+"), []
        for number in range(LENGTH):
            self.offsets.append(self.handle.tell())
            self.handle.write(json.dumps({"data": content(number).hex()}) + "\n")

    def read(self, number):
        self.handle.seek(self.offsets[number])
        pause()
        return bytes.fromhex(json.loads(self.handle.readline())["data"])


class CsvRows(Stateful):
    """Reads on to the row that is asked for, and keeps what it came by."""

    def prepare(self, folder):
        path = folder / "samples.csv"
        path.write_text("".join(f"{n},{content(n).hex()}\n" for n in range(LENGTH)))
        self.handle = open(path, newline="")
        self.reader, self.rows = csv.reader(self.handle), []

    def read(self, number):
        while len(self.rows) <= number:
            row = next(self.reader)
            pause()
            self.rows.append(row)
        return bytes.fromhex(self.rows[number][1])


class Lines(Stateful):
    """Reads a line by ``linecache``, and parses what is in its own attribute."""

    def prepare(self, folder):
        self.path, self.line = str(folder / "samples.txt"), ""
        Path(self.path).write_text("".join(content(n).hex() + "\n" for n in range(LENGTH)))

    def read(self, number):
        self.line = linecache.getline(self.path, number + 1)
        pause()
        return bytes.fromhex(self.line)

    def close(self):
        linecache.clearcache()


class Xml(Stateful):
    """Parses on to the element that is asked for; from the start for one that came before."""

    def prepare(self, folder):
        self.path = folder / "samples.xml"
        elements = "".join(f"<s n='{n}'>{content(n).hex()}</s>" for n in range(LENGTH))
        self.path.write_text(f"<all>{elements}</all>")
        self.at = LENGTH

    def read(self, number):
        if number < self.at:
            self.events, self.at = ET.iterparse(io.BytesIO(self.path.read_bytes())), 0
        while True:
            _, element = next(self.events)
            self.at = int(element.get("n")) + 1
            if self.at == number + 1:
                pause()
                return bytes.fromhex(element.text)


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


class SharedCursor(Database):
    """One cursor for all that come."""

    def connect(self):
        connection = sqlite3.connect(self.path, check_same_thread=False)
        self.cursor = connection.cursor()
        return connection

    def read(self, number):
        self.cursor.execute("select data from samples where number = ?", (number,))
        pause()
        return self.cursor.fetchone()[0]


class OwnThread(File):
    """Has a client that works in the thread alone that has made it."""

    def prepare(self, folder):
        super().prepare(folder)
        self.thread = threading.get_ident()

    def read(self, number):
        if threading.get_ident() != self.thread:
            raise RuntimeError("this client was created in another thread")
        return super().read(number)


# --- what is kept in memory ---


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


class Ring(Stateful):
    """Returns one of two arrays."""

    def prepare(self, folder):
        self.buffers, self.calls = np.zeros((2, SIZE), np.uint8), 0

    def __getitem__(self, number):
        self.calls += 1
        buffer = self.buffers[self.calls % 2]
        buffer[:] = array(content(number))
        pause()
        return np.int64(number), buffer


class OfTheClass(Stateful):
    """Has its buffer in the class."""

    buffer = bytearray(SIZE)

    def read(self, number):
        OfTheClass.buffer[:] = content(number)
        pause()
        return OfTheClass.buffer


_GLOBAL = bytearray(SIZE)


class OfTheModule(Stateful):
    """Has its buffer in the module."""

    def read(self, number):
        _GLOBAL[:] = content(number)
        pause()
        return _GLOBAL


def _numbered() -> Iterator[tuple[int, bytes]]:
    for number in range(LENGTH):
        yield number, content(number)


class Generated(Stateful):
    """Goes on with its generator, which can take back what it gave."""

    def prepare(self, folder):
        self.stream, self.pushed, self.at = _numbered(), [], 0

    def next(self):
        return self.pushed.pop() if self.pushed else next(self.stream)

    def read(self, number):
        if number < self.at:
            self.stream, self.pushed = _numbered(), []
        while True:
            self.at, data = self.next()
            if self.at == number:
                pause()
                self.pushed.append((number, data))
                return data


class Decoder:
    """Decodes in steps: begin, feed, finish."""

    def begin(self) -> None:
        self.inflate, self.parts = zlib.decompressobj(), []

    def feed(self, data: bytes) -> None:
        self.parts.append(self.inflate.decompress(data))
        pause()

    def finish(self) -> bytes:
        return b"".join([*self.parts, self.inflate.flush()])


class Decoded(Stateful):
    def prepare(self, folder):
        self.decoder = Decoder()
        self.compressed = [zlib.compress(content(number)) for number in range(LENGTH)]

    def read(self, number):
        data = self.compressed[number]
        self.decoder.begin()
        self.decoder.feed(data[:10])
        self.decoder.feed(data[10:])
        return self.decoder.finish()


class Tokenizer:
    """Holds the text, and its place in it."""

    def start(self, text: str) -> None:
        self.text, self.place = text, 0

    def next_token(self) -> str | None:
        end = self.text.find(" ", self.place)
        token, self.place = self.text[self.place : end], end + 1
        return token if end >= 0 else None


class Tokens(Stateful):
    def prepare(self, folder):
        self.tokenizer = Tokenizer()
        self.texts = ["".join(f"{byte} " for byte in content(n)) for n in range(LENGTH)]

    def read(self, number):
        self.tokenizer.start(self.texts[number])
        pause()
        return bytes(int(token) for token in iter(self.tokenizer.next_token, None))


class Checksum(Stateful):
    """Adds to one checksum, and refuses what doesn't fit."""

    def prepare(self, folder):
        self.sums = [zlib.crc32(content(number)) for number in range(LENGTH)]

    def read(self, number):
        self.sum = zlib.crc32(content(number)[:16])
        pause()
        self.sum = zlib.crc32(content(number)[16:], self.sum)
        if self.sum != self.sums[number]:
            raise ValueError(f"the checksum of {number} is wrong")
        return content(number)


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
