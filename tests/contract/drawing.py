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

    def __init__(self, dice: Any) -> None:
        self.dice = dice

    def __len__(self) -> int:
        return LENGTH

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


class Augment:
    """The recipe: albumentations' own generators start from what the loader gives."""

    def __init__(self) -> None:
        import albumentations

        self.compose = albumentations.Compose(
            [
                albumentations.RandomCrop(12, 12),
                albumentations.HorizontalFlip(p=0.5),
                albumentations.RandomBrightnessContrast(p=1.0),
                albumentations.GaussNoise(p=1.0),
            ]
        )

    def __call__(self, image: Any, rng: np.random.Generator) -> Any:
        seed = int(rng.integers(2**32))
        if hasattr(self.compose, "set_random_seed"):  # Albumentations 2, and 1.4.19 or newer.
            self.compose.set_random_seed(seed)
        else:  # Older ones draw from Python's generator.
            random.seed(seed)
        return self.compose(image=image)["image"]


class Busy(DataSet):
    """Computes in Python for as long as the others wait."""

    def __init__(self) -> None:
        super().__init__(np.random.default_rng(0))

    def __getitem__(self, number: int) -> Any:
        end = time.perf_counter() + WAIT_SECONDS
        while time.perf_counter() < end:
            pass
        return np.array([number, self.dice.random(), os.getpid()])
