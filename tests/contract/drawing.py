"""Code of the user's that draws from a generator of its own, wherever it keeps that.

Each sample is its number, what was drawn, and the process that drew. Waiting makes processes worth
their start.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np

LENGTH = 160
WAIT_SECONDS = 0.004
DICE = np.random.default_rng(0)


class Lehmer(random.Random):
    """A generator of the user's own class, with the state of Python's."""


def draw(generator: Any) -> float:
    """A number in [0, 1)."""
    if hasattr(generator, "random"):
        return float(generator.random())
    if hasattr(generator, "next"):
        import keras

        return float(keras.random.uniform((), seed=generator))
    import torch

    return float(torch.rand((), generator=generator))


def drawn(number: Any, generator: Any) -> Any:
    time.sleep(WAIT_SECONDS)
    return np.array([number, draw(generator), os.getpid()])


class DataSet:
    def __init__(self, dice: Any, length: int = LENGTH) -> None:
        self.dice, self.length = dice, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, number: int) -> Any:
        return drawn(number, self.dice)


class Transform:
    """Has the generator in an attribute, or within what it has there."""

    def __init__(self, dice: Any, find: Callable[[Any], Any] = lambda dice: dice) -> None:
        self.dice, self.find = dice, find

    def __call__(self, number: int) -> Any:
        return drawn(number, self.find(self.dice))


class Layer:
    """Has a layer of Keras that draws."""

    def __init__(self) -> None:
        import keras

        self.layer = keras.layers.RandomBrightness(0.5, seed=0)

    def __call__(self, image: Any) -> Any:
        return np.asarray(self.layer(image[None], training=True))[0]


def in_a_closure(dice: Any) -> Any:
    def transform(number: int) -> Any:
        return drawn(number, dice)

    return transform


def from_the_loader(number: int, rng: Any) -> Any:
    return drawn(number, rng)


def of_this_module(number: int) -> Any:
    return drawn(number, DICE)


def number_and_draw(number: Any, *, rng: Any) -> Any:
    """Draws from what it is given, and waits for nothing."""
    return np.array([number, rng.random()])


def collated(samples: Any, rng: Any) -> Any:
    return np.array([[sample, rng.random()] for sample in samples])


class Pairs:
    thread_safe = True

    def __init__(self, source: Any) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, number: int) -> Any:
        return self.source[number][0], self.source[number][0], number


class Fetched(Pairs):
    def __getitems__(self, numbers: list[int]) -> list[Any]:
        first, second = (self.source.__getitems__(numbers) for _ in range(2))
        return [(a[0], b[0], number) for a, b, number in zip(first, second, numbers)]
