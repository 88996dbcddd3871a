"""Boxes drawn and images decoded in one call of the kernel: no step in Python for an image.

``native/crops.c`` has the arithmetic of ``geometry`` and of NumPy's generators, to the bit, so what
an image becomes depends on nobody's way. What it leaves undone, ``geometry`` draws anew from the
same generator. As it takes the C library's logarithms and whatever generator NumPy has, a few boxes
are compared before any other is drawn; where one isn't the same, Python draws all of them.

Worth it: the interpreter is held for 0.7 instead of 16 us an image, in batches of 64 (CPU time,
2026-11).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.generators import DECODE, Generators, RngOf
from adapters.images import kernel
from adapters.images.geometry import random_resized

Buffers = Sequence[memoryview | bytes]
Asked = tuple[int | float | bool, ...]
"""What ``Asked`` of ``native/crops.h`` holds, in its order."""

_MOST_SIDE = (1 << 31) - 1
_PROBES = 16


class Into(NamedTuple):
    """The rows of a batch, and what is written there.

    Args:
        out: uint8 or float32, ``(rows, height, width, 3)`` or ``(rows, 3, height, width)``.
        channels_first: Which of them.
        table: For float32, what a channel's value becomes, ``(3, 256)``; else None.
    """

    out: NDArray[Any]
    channels_first: bool
    table: NDArray[np.float32] | None


def decode(
    buffers: Buffers,
    pieces: NDArray[np.int64] | None,
    rng_of: RngOf | None,
    rows: Sequence[int] | NDArray[np.int64],
    asked: Asked,
    into: Into,
) -> Sequence[int]:
    """Draw what is wanted of encoded images, and decode it.

    Args:
        buffers: What holds the images.
        pieces: Of each image, the number of its buffer, its first byte and its size, int64
            ``(images, 3)``; None where each is a buffer.
        rng_of: The generators by the images' places; None where nothing is drawn.
        rows: Which row is whose.
        asked: What is wanted.
        into: The rows.

    Returns:
        Which images are still to be drawn and decoded, by their places; all of them without the
        kernel, or where the generators are somebody's own.
    """
    count = len(rows)
    module = kernel.load()
    if module is None or not isinstance(rng_of, (Generators, type(None))) or not _fits(module):
        return range(count)
    if not 0 <= asked[1] <= _MOST_SIDE:
        return range(count)
    out, channels_first, table = into
    key, counters = (None, None) if rng_of is None else (rng_of.key, rng_of.counters)
    shape = len(out), *(out.shape[2:] if channels_first else out.shape[1:3])
    numbers = np.ascontiguousarray(rows, np.int64)
    outcomes = module.decode_drawn(
        buffers, pieces, numbers, key, counters, asked, out, shape, channels_first, table
    )
    if 0 not in outcomes:
        return ()
    return [place for place, is_done in enumerate(outcomes) if not is_done]


def asked_of(
    cut: int,
    resize_short: int | None,
    area: tuple[float, float],
    ratio: tuple[float, float],
    flip: bool,
) -> Asked:
    """What an ``ImageDecoder`` asks for; ``cut`` is the place of its ``crop`` among all kinds."""
    return cut, resize_short or 0, *area, *ratio, math.log(ratio[0]), math.log(ratio[1]), flip


@functools.cache
def _fits(module: ModuleType) -> bool:
    """Whether the kernel draws what Python does."""
    size, goal, area, ratio = (375, 500), (224, 224), (0.08, 1.0), (3 / 4, 4 / 3)
    numbers = np.arange(_PROBES)
    rng_of = Generators(1, 2, DECODE, numbers)
    asked = asked_of(3, 0, area, ratio, True)
    for number, counter in zip(numbers.tolist(), rng_of.counters):
        rng = rng_of(number)
        flip = bool(rng.random() < 0.5)
        crop = kernel.numbers_of(random_resized(*size, area, ratio, flip, rng), 0, goal)
        if module.crop(size, rng_of.key, counter, asked, goal) != np.array(crop, "i4").tobytes():
            return False
    return True
