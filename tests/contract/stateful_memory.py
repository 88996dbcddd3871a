"""Data sets that keep what they have read, or decode it in their own memory."""

from __future__ import annotations

import collections
import zlib
from collections.abc import Iterator

import numpy as np

from tests.contract.stateful import LENGTH, SIZE, Stateful, array, content, pause


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
