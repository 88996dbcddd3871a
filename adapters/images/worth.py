"""What the image kernel is worth on this machine, measured in two seconds.

A picture of 500x375, made here, goes into rows of 224x224 by random boxes, as photographs do in
training, in one thread. With the kernel, that is measured with it and without it. Where there is
none, its speed can't be measured. What it saves can be, roughly: decoding what of a picture no box
needs. So the boxes are stored as JPEGs of their own, and decoded by the same libraries. The kernel
comes near that by other means: it reads codes that it doesn't need, too, but faster. That is an
estimate, and called so.
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
# As much noise as makes a photograph's 47 KB.
_NOISE, _QUALITY = 6.0, 90
_AREA, _RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


class Worth(NamedTuple):
    """Pictures/s of one thread.

    Args:
        without: By other people's libraries alone.
        kernel: With the kernel, or the estimate of it.
        estimated: Which of the two.
    """

    without: float
    kernel: float
    estimated: bool

    @property
    def times(self) -> float:
        """How many times as fast the kernel is."""
        return self.kernel / self.without


def kernel_worth(seconds: float = 2.0) -> Worth | None:
    """Measure it.

    Args:
        seconds: For all of it, but for some tenths.

    Returns:
        None where simplejpeg or OpenCV isn't installed: nothing decodes JPEGs without the kernel.
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
    """Slopes and noise, of as many bytes as a photograph."""
    down, right = np.mgrid[:_HEIGHT, :_WIDTH]
    slopes = np.stack([down / 2, right / 3, (down + right) / 4], axis=-1)
    noise = rng.normal(0.0, _NOISE, (_HEIGHT, _WIDTH, 1))
    picture: NDArray[np.uint8] = np.clip(slopes + noise, 0, 255).astype(np.uint8)
    return picture


def _part(picture: NDArray[np.uint8], crop: Crop) -> NDArray[np.uint8]:
    """What a box needs of a picture."""
    top, left, height, width = crop.box
    return np.ascontiguousarray(picture[top : top + height, left : left + width])


def _seconds(*works: Callable[[], None], seconds: float) -> list[float]:
    """Of CPU time, the quickest round of each, in turns: others may have the CPUs meanwhile."""
    best = [float("inf")] * len(works)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or float("inf") in best:
        for place, work in enumerate(works):
            before = time.thread_time()
            work()
            best[place] = min(best[place], time.thread_time() - before)
    return best
