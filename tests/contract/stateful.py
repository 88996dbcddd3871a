"""Data sets as users write them, whose ``__getitem__`` changes something that the next call needs.

Each has 40 samples: the number, and 32 bytes that follow from it. Between the two steps of a read,
as between ``seek`` and ``read``, each waits a moment, so that a second thread inside is seen.
Worker processes import this module; heavy libraries are imported when one is used.
"""

from __future__ import annotations

import bz2
import collections
import csv
import dbm.dumb
import gzip
import hashlib
import http.client
import io
import json
import linecache
import lzma
import mmap
import os
import pickle
import shelve
import socket
import sqlite3
import struct
import subprocess
import sys
import tarfile
import threading
import time
import wave
import xml.etree.ElementTree as ET
import zipfile
import zlib
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
        return pickle.load(self.handle)  # noqa: S301


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
            self.events, self.at = ET.iterparse(io.BytesIO(self.path.read_bytes())), 0  # noqa: S314
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


# --- connections ---


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


class Server:
    """Accepts connections, until it is closed: then it ends all of them."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.connections: list[socket.socket] = []
        self.threads = [threading.Thread(target=self.serve)]
        self.threads[0].start()

    def serve(self) -> None:
        """Give each connection a thread."""
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:  # It was shut down.
                return
            self.connections.append(connection)
            self.threads.append(threading.Thread(target=self.answer, args=(connection,)))
            self.threads[-1].start()

    def answer(self, connection: socket.socket) -> None:
        """Answer HTTP's ``GET /7``, one after another."""
        with connection, connection.makefile("rb") as lines:
            while line := lines.readline():
                if line.startswith(b"GET /"):
                    number = int(line.split()[1][1:])
                elif line == b"\r\n":
                    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE
                    connection.sendall(head + content(number))

    def close(self) -> None:
        """End all connections, and wait for their threads."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.threads[0].join(10)
        self.listener.close()
        for connection in self.connections:
            with connection:
                if connection.fileno() >= 0:
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(10)


class Http(Stateful):
    """One connection, which is kept alive."""

    def prepare(self, folder):
        self.server = Server()
        self.client = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        self.client.connect()

    def read(self, number):
        self.client.request("GET", f"/{number}")
        pause()
        return self.client.getresponse().read()

    def close(self):
        self.client.close()
        self.server.close()


class LazyHttp(Http):
    """Connects at the first use, in each process."""

    def prepare(self, folder):
        self.server = Server()
        self.port, self.client = self.server.port, None

    def __getstate__(self):
        return {"port": self.port, "client": None}

    def read(self, number):
        if self.client is None:
            self.client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        return super().read(number)

    def close(self):
        if self.client is not None:
            self.client.close()
        self.server.close()


_CHILD = """
import hashlib, sys
for line in sys.stdin:
    print(hashlib.sha256(line.strip().encode()).hexdigest(), flush=True)
"""


class Pipe(Stateful):
    """Asks a program that runs as long as the data set is used."""

    def prepare(self, folder):
        self.child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self, number):
        self.child.stdin.write(f"{number}\n")
        self.child.stdin.flush()
        pause()
        return bytes.fromhex(self.child.stdout.readline())

    def close(self):
        self.child.stdin.close()
        self.child.stdout.close()
        self.child.wait(10)


# --- sound and pictures ---


class Wave(Stateful):
    def prepare(self, folder):
        with wave.open(str(folder / "samples.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(raw_file(folder).read_bytes())
        self.file = wave.open(str(folder / "samples.wav"), "rb")

    def read(self, number):
        self.file.setpos(number * SIZE // 2)
        pause()
        return self.file.readframes(SIZE // 2)


class Sound(Stateful):
    """A reader with ``seek`` and ``read`` in frames, as soundfile's."""

    def prepare(self, folder):
        self.handle, self.place = open(raw_file(folder), "rb"), 0

    def seek(self, frame):
        self.place = frame
        pause()

    def read_frames(self, frames):
        self.handle.seek(self.place * 2)
        self.place += frames
        return np.frombuffer(self.handle.read(frames * 2), "<i2")

    def read(self, number):
        self.seek(number * SIZE // 2)
        return self.read_frames(SIZE // 2).tobytes()


class Video(Stateful):
    """Frames of one grey each, which says their number."""

    def prepare(self, folder):
        import cv2

        self.path = str(folder / "samples.avi")
        writer = cv2.VideoWriter(self.path, cv2.VideoWriter.fourcc(*"MJPG"), 10, (64, 48))
        if not writer.isOpened():
            raise NotImplementedError("OpenCV writes no MJPG here")
        for number in range(LENGTH):
            writer.write(np.full((48, 64, 3), number * 6, np.uint8))
        writer.release()
        self.capture = self.capture_now()

    def capture_now(self):
        import cv2

        return cv2.VideoCapture(self.path)

    def expected(self, number):
        return bytes([number]) * SIZE

    def read(self, number):
        if self.capture is None:
            self.capture = Video.capture_now(self)
        import cv2

        self.capture.set(cv2.CAP_PROP_POS_FRAMES, number)
        pause()
        _, frame = self.capture.read()
        return bytes([round(frame.mean() / 6)]) * SIZE

    def close(self):
        if self.capture is not None:
            self.capture.release()


class LazyVideo(Video):
    def capture_now(self):
        return None


def _pages(folder: Path) -> Path:
    import tifffile

    rows = np.stack([array(content(number)) for number in range(LENGTH)])
    tifffile.imwrite(folder / "samples.tif", rows.reshape(-1, 4, 8), photometric="minisblack")
    return folder / "samples.tif"


class Pages(Stateful):
    """Pillow's image of many frames."""

    def prepare(self, folder):
        from PIL import Image

        self.image = Image.open(_pages(folder))

    def read(self, number):
        self.image.seek(number)
        pause()
        return np.asarray(self.image).tobytes()


class Tiff(Stateful):
    def prepare(self, folder):
        import tifffile

        self.file = SlowFile(_pages(folder))
        self.tiff = tifffile.TiffFile(self.file)

    def read(self, number):
        return self.tiff.pages[number].asarray().tobytes()

    def close(self):
        self.tiff.close()
        self.file.close()


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


# --- functions with a state ---


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
