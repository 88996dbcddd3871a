"""Transforms, collations, decoders and samplers with a state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.contract.stateful import LENGTH, SIZE, array, content, pause


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
