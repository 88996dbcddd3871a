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


def numpy_generator() -> Any:
    return np.random.default_rng(0)


def random_state() -> Any:
    return np.random.RandomState(0)


def python_random() -> Any:
    return random.Random(0)


def torch_generator() -> Any:
    import torch

    return torch.Generator().manual_seed(0)


def seed_generator() -> Any:
    import keras

    return keras.random.SeedGenerator(0)


class Lehmer(random.Random):
    """A generator of the user's own class, with the state of Python's."""


def own_class() -> Any:
    return Lehmer(0)


GENERATORS: dict[str, Callable[[], Any]] = {
    "default_rng": numpy_generator,
    "RandomState": random_state,
    "random.Random": python_random,
    "torch.Generator": torch_generator,
    "keras.random.SeedGenerator": seed_generator,
    "a subclass": own_class,
}


def draw(generator: Any) -> float:
    """A number in [0, 1), from the first of several generators."""
    if isinstance(generator, list):
        generator = generator[0]
    if hasattr(generator, "random"):
        return float(generator.random())
    if hasattr(generator, "random_sample"):
        return float(generator.random_sample())
    if hasattr(generator, "next"):
        import keras

        high, low = keras.random.uniform((2,), seed=generator)
        return float(high) + float(low) / 2**24
    import torch

    return float(torch.rand((), generator=generator, dtype=torch.float64))


def drawn(number: Any, generator: Any) -> Any:
    """A sample."""
    time.sleep(WAIT_SECONDS)
    return np.array([number, draw(generator), os.getpid()])


class DataSet:
    """Has the generator in an attribute."""

    def __init__(self, dice: Any, length: int = LENGTH) -> None:
        self.dice, self.length = dice, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, number: int) -> Any:
        return drawn(number, self.dice)


class Transform:
    """Has the generator in an attribute."""

    def __init__(self, dice: Any) -> None:
        self.dice = dice

    def __call__(self, number: int) -> Any:
        return drawn(number, self.dice)


class Layer:
    """Has a layer of Keras that draws."""

    def __init__(self) -> None:
        import keras

        self.layer = keras.layers.RandomBrightness(0.5, seed=0)

    def __call__(self, image: Any) -> Any:
        return np.asarray(self.layer(image[None], training=True))[0]


class InAList:
    """Has it in an object, in a list."""

    def __init__(self, dice: Any) -> None:
        self.steps = [len, Transform(dice)]

    def __call__(self, number: int) -> Any:
        return self.steps[1](number)  # type: ignore[operator]


class InADict:
    """Has it in a dict."""

    def __init__(self, dice: Any) -> None:
        self.held = {"dice": dice}

    def __call__(self, number: int) -> Any:
        return drawn(number, self.held["dice"])


def in_a_closure(dice: Any) -> Any:
    """A function over the generator."""

    def transform(number: int) -> Any:
        return drawn(number, dice)

    return transform


def from_the_loader(number: int, rng: Any) -> Any:
    """Draws from what it is given."""
    return drawn(number, rng)


def of_this_module(number: int) -> Any:
    """Draws from the module's generator."""
    return drawn(number, DICE)


PLACES: dict[str, Callable[[Any], Any]] = {
    "a transform": Transform,
    "a list": InAList,
    "a dict": InADict,
    "a closure": in_a_closure,
}


def number_and_draw(number: Any, *, rng: Any) -> Any:
    """Draws from what it is given, and waits for nothing."""
    return np.array([number, rng.random()])


def collated(samples: Any, rng: Any) -> Any:
    """Draws from what it is given, for a batch."""
    return np.array([[sample, rng.random()] for sample in samples])


class Pairs:
    """Two views of each image."""

    thread_safe = True

    def __init__(self, source: Any) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, number: int) -> Any:
        return self.source[number][0], self.source[number][0], number


class Fetched(Pairs):
    """The same, a batch at a time."""

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        """Both views of all of them."""
        first, second = (self.source.__getitems__(numbers) for _ in range(2))
        return [(a[0], b[0], number) for a, b, number in zip(first, second, numbers)]
