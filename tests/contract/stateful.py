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


class Descriptor(Stateful):
    def prepare(self, folder):
        self.descriptor = os.open(raw_file(folder), os.O_RDONLY)

    def read(self, number):
        os.lseek(self.descriptor, number * SIZE, os.SEEK_SET)
        pause()
        return os.read(self.descriptor, SIZE)

    def close(self):
        os.close(self.descriptor)


class Mapped(File):
    def opened(self, path):
        with open(path, "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class Memory(File):
    def opened(self, path):
        return io.BytesIO(path.read_bytes())


class Memmap(Stateful):
    def prepare(self, folder):
        self.rows = np.memmap(raw_file(folder), np.uint8, "r", shape=(LENGTH, SIZE))
        self.cursor = 0

    def read(self, number):
        self.cursor = number
        pause()
        return self.rows[self.cursor]


class Gzip(File):
    module: Any = gzip

    def opened(self, path):
        compressed = path.with_suffix(".compressed")
        with self.module.open(compressed, "wb") as file:
            file.write(path.read_bytes())
        return self.module.open(compressed, "rb")


class Bzip2(Gzip):
    module = bz2


class Lzma(Gzip):
    module = lzma


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
