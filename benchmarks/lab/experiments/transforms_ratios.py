"""Ratios of transforms of batches to Keras's layers and albumentations.

All get the same pictures of 224 x 224 x 3 in batches of 64, and both cores. *Fetched*, batches are
gathered at random out of memory first: ours is a ``batch_transform`` of a ``SafeSequence`` with two
threads, Keras's layer stands in ``tf.data``'s map. *Ready*, it is the transform alone: two threads
call ours on batches of their own, in place as a loader does it; Keras's layer stands in the map of
a data set that repeats one batch, and is called directly, where TensorFlow's threads share its
work. albumentations is called for one picture after the other, by two threads, each of which has a
batch; OpenCV's own threads are off.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import numpy as np

from benchmarks.harness.installed import Peer
from benchmarks.harness.ratios import BATCH, Contestant, Ratio, endless, measure_ratio, pace
from benchmarks.harness.row import Measurement

CLASSES = 10
_BATCHES, _SIDE = 6, 224
_SKIPPED, _COUNTED = 4, 24
_PEER_COUNTED = 8


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one ratio, in a process of its own."""
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
    return measure_ratio(TABLE[options["loader"]], options)


@cache
def _pictures(dtype: str) -> tuple[Any, Any]:
    """Smooth pictures, as photographs are, and one-hot labels."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (_BATCHES * BATCH, 28, 28, 3), np.uint8)
    images = np.repeat(np.repeat(coarse, _SIDE // 28, axis=1), _SIDE // 28, axis=2)
    if dtype == "float32":
        images = (images / np.float32(255)).astype(np.float32)
    return images, np.eye(CLASSES, dtype=np.float32)[np.arange(len(images)) % CLASSES]


def _samples(batch: Any) -> float:
    first = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return float(len(first))


def _ours(dtype: str, transform: Any) -> Contestant:
    from adapters import SafeSequence

    def contestant() -> float:
        arguments = {"batch_transform": transform, "workers": 2}
        with SafeSequence(_pictures(dtype), BATCH, shuffle=True, **arguments) as sequence:
            return pace(endless(sequence), _SKIPPED, _COUNTED, _samples)

    return contestant


def _ours_alone(dtype: str, transform: Any) -> Contestant:
    images, labels = _pictures(dtype)

    def made(batch: Any, rng: np.random.Generator) -> Any:
        transform.on_own_batch(batch, rng)
        return batch

    def batches() -> Iterator[Any]:
        own = [(images[:BATCH].copy(), labels[:BATCH].copy()) for _ in range(3)]
        rngs = [np.random.default_rng(place) for place in range(3)]
        with ThreadPoolExecutor(2) as pool:
            waiting = [pool.submit(made, own[place], rngs[place]) for place in range(2)]
            for place in itertools.cycle((2, 0, 1)):
                waiting.append(pool.submit(made, own[place], rngs[place]))
                yield waiting.pop(0).result()

    return lambda: pace(batches(), _SKIPPED, _COUNTED, _samples)


# --- Keras ---


def _mapped(dtype: str, layer: Any, ready: bool) -> Contestant:
    import tensorflow as tf

    images, labels = _pictures(dtype)
    if ready:
        batch = {"images": images[:BATCH], "labels": labels[:BATCH]}
        data = tf.data.Dataset.from_tensors(batch).repeat()
    else:
        data = tf.data.Dataset.from_tensor_slices({"images": images, "labels": labels})
        data = data.shuffle(len(images)).repeat().batch(BATCH)
    data = data.map(layer, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    return lambda: pace(iter(data), _SKIPPED, _PEER_COUNTED, _samples)


def _called(dtype: str, layer: Any) -> Contestant:
    import tensorflow as tf

    images, labels = (tf.constant(each[:BATCH]) for each in _pictures(dtype))

    def batches() -> Iterator[Any]:
        while True:
            yield layer({"images": images, "labels": labels}, training=True)

    return lambda: pace(batches(), _SKIPPED, _PEER_COUNTED, _samples)


def _against_keras(dtype: str, name: str, ready: bool) -> Mapping[str, Contestant]:
    import keras

    from adapters import transforms

    high = 255 if dtype == "uint8" else 1
    whole = (0, high)
    pairs: dict[str, Callable[[], tuple[Any, Any]]] = {
        "MixUp": lambda: (transforms.MixUp(0.2), keras.layers.MixUp(0.2)),
        "CutMix": lambda: (transforms.CutMix(1.0), keras.layers.CutMix(1.0)),
        "RandomErasing": lambda: (
            transforms.RandomErasing(1.0),
            keras.layers.RandomErasing(1.0, value_range=whole),
        ),
        "ColorJitter": lambda: (
            transforms.ColorJitter(0.4, 0.4, 0.4, 0.1),
            keras.layers.RandomColorJitter(
                value_range=whole,
                brightness_factor=0.4,
                contrast_factor=0.4,
                saturation_factor=0.4,
                hue_factor=0.1,
            ),
        ),
    }
    ours, layer = pairs[name]()
    if not ready:
        return {
            f"SafeSequence, {name}": _ours(dtype, ours),
            "Keras's layer in tf.data": _mapped(dtype, layer, ready),
        }
    return {
        f"{name}, 2 threads": _ours_alone(dtype, ours),
        "Keras's layer in tf.data": _mapped(dtype, layer, ready),
        "Keras's layer, called": _called(dtype, layer),
    }


# --- albumentations ---


def _one_by_one(dtype: str, transform: Any) -> Contestant:
    import cv2

    cv2.setNumThreads(0)
    images = _pictures(dtype)[0]

    def made(start: int) -> Any:
        batch = images[start : start + BATCH]
        return [np.stack([transform(image=image)["image"] for image in batch])]

    def batches() -> Iterator[Any]:
        starts = itertools.cycle(range(0, len(images), BATCH))
        with ThreadPoolExecutor(2) as pool:
            waiting = [pool.submit(made, next(starts)) for _ in range(4)]
            while True:
                waiting.append(pool.submit(made, next(starts)))
                yield waiting.pop(0).result()

    return lambda: pace(batches(), _SKIPPED, _PEER_COUNTED, _samples)


def _against_albumentations(dtype: str, name: str) -> Mapping[str, Contestant]:
    import albumentations

    from adapters import transforms

    factor = (0.6, 1.4)
    pairs: dict[str, Callable[[], tuple[Any, Any]]] = {
        "RandomErasing": lambda: (
            transforms.RandomErasing(1.0),
            albumentations.Erasing(p=1.0),
        ),
        "ColorJitter": lambda: (
            transforms.ColorJitter(0.4, 0.4, 0.4, 0.1),
            albumentations.ColorJitter(factor, factor, factor, (-0.1, 0.1), p=1.0),
        ),
    }
    ours, theirs = pairs[name]()
    return {
        f"{name}, 2 threads": _ours_alone(dtype, ours),
        "albumentations, 2 threads": _one_by_one(dtype, theirs),
    }


_NAMES = ("MixUp", "CutMix", "RandomErasing", "ColorJitter")
_TENSORFLOW = Peer("Keras", "tensorflow", "tensorflow")
_ALBUMENTATIONS = Peer("Keras", "albumentations", "albumentations")
TABLE = {
    f"{dtype} {name}{', fetched,' * fetched} against Keras": Ratio(
        _TENSORFLOW,
        "samples/s",
        partial(_against_keras, dtype, name, not fetched),
        backend="tensorflow",
        smoke=not fetched,
    )
    for dtype, fetched in (("uint8", False), ("float32", False), ("uint8", True))
    for name in _NAMES
} | {
    f"{dtype} {name} against albumentations": Ratio(
        _ALBUMENTATIONS, "samples/s", partial(_against_albumentations, dtype, name), smoke=True
    )
    for dtype in ("uint8", "float32")
    for name in ("RandomErasing", "ColorJitter")
}
