"""Benchmark of the native kernel on this machine, in two seconds.

A synthetic image of 500x375 is decoded into rows of 224x224 by random boxes, like photographs in
training, in one thread. If there is a kernel, that is measured with it and without it. If not, its
speed is estimated. It saves roughly the decoding of pixels that no box needs, so the boxes are
stored as JPEGs of their own, and decoded by the same libraries. The kernel comes near that by other
means: it also reads codes that it doesn't need, but faster. The result is marked as an estimate.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.images import pixels
from adapters.images.geometry import Crop, random_resized, whole
from adapters.images.kernel import decode_rows, load

_HEIGHT, _WIDTH, _GOAL = 375, 500, (224, 224)
_PICTURES = 32
# Noise that gives a photograph's 47 KB.
_NOISE, _QUALITY = 6.0, 90
_AREA, _RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


class Worth(NamedTuple):
    """Images/s of one thread.

    Args:
        without: With simplejpeg and OpenCV alone.
        kernel: With the kernel, measured or estimated.
        estimated: True if ``kernel`` is an estimate.
    """

    without: float
    kernel: float
    estimated: bool

    @property
    def times(self) -> float:
        """Speed-up by the kernel."""
        return self.kernel / self.without


def kernel_worth(seconds: float = 2.0) -> Worth | None:
    """Measure the kernel's speed-up.

    Args:
        seconds: Time for the measurement; some tenths are added.

    Returns:
        None if simplejpeg or OpenCV isn't installed: without the kernel, nothing decodes JPEGs.
    """
    try:
        encode = importlib.import_module("simplejpeg").encode_jpeg
        importlib.import_module("cv2")
    except ImportError:
        return None
    rng = np.random.default_rng(0)
    picture = _picture(rng)
    jpeg = encode(picture, quality=_QUALITY, colorsubsampling="420")
    crops = [random_resized(_HEIGHT, _WIDTH, _AREA, _RATIO, False, rng) for _ in range(_PICTURES)]
    rows = np.zeros((_PICTURES, *_GOAL, 3), np.uint8)

    def one_by_one(jpegs: list[bytes], crops: list[Crop]) -> None:
        for each, crop, row in zip(jpegs, crops, rows):
            pixels.decode_into(each, crop, row)

    def by_kernel() -> None:
        decode_rows([jpeg] * _PICTURES, crops, range(_PICTURES), rows, False, None)

    other: Callable[[], None] = by_kernel
    estimated = load() is None
    if estimated:
        parts = [_part(picture, crop) for crop in crops]
        boxes = [encode(part, quality=_QUALITY, colorsubsampling="420") for part in parts]
        wholes = [whole(part.shape[0], part.shape[1]) for part in parts]
        other = functools.partial(one_by_one, boxes, wholes)
    stock = functools.partial(one_by_one, [jpeg] * _PICTURES, crops)
    slow, quick = _seconds(stock, other, seconds=seconds)
    return Worth(_PICTURES / slow, _PICTURES / quick, estimated)


def _picture(rng: np.random.Generator) -> NDArray[np.uint8]:
    """Make an image of slopes and noise, as many bytes as a photograph."""
    down, right = np.mgrid[:_HEIGHT, :_WIDTH]
    slopes = np.stack([down / 2, right / 3, (down + right) / 4], axis=-1)
    noise = rng.normal(0.0, _NOISE, (_HEIGHT, _WIDTH, 1))
    picture: NDArray[np.uint8] = np.clip(slopes + noise, 0, 255).astype(np.uint8)
    return picture


def _part(picture: NDArray[np.uint8], crop: Crop) -> NDArray[np.uint8]:
    """Cut the box of a crop."""
    top, left, height, width = crop.box
    return np.ascontiguousarray(picture[top : top + height, left : left + width])


def _seconds(*works: Callable[[], None], seconds: float) -> list[float]:
    """Measure each one's shortest CPU time, in turns: other processes may use the CPUs."""
    best = [float("inf")] * len(works)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or float("inf") in best:
        for place, work in enumerate(works):
            before = time.thread_time()
            work()
            best[place] = min(best[place], time.thread_time() - before)
    return best
