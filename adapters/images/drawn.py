"""Drawing of crops and decoding in one kernel call, with no step in Python per image.

``native/crops.c`` repeats the arithmetic of ``geometry`` and of NumPy's generators to the bit, so
both paths give the same images. Images that it leaves undone are drawn again by ``geometry``, from
the same generator. The C library's logarithm or NumPy's generator may differ, so a few boxes are
compared first; if one isn't the same, Python draws all of them.

The GIL is held for 0.7 instead of 16 us an image, in batches of 64 (CPU time, 2026-11).
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
"""Fields of ``Asked`` in ``native/crops.h``, in order."""

_MOST_SIDE = (1 << 31) - 1
_PROBES = 16


class Into(NamedTuple):
    """Rows of a batch to write, and their format.

    Args:
        out: uint8 or float32, ``(rows, height, width, 3)`` or ``(rows, 3, height, width)``.
        channels_first: True for the second.
        table: For float32, the result for each value of a channel, ``(3, 256)``; else None.
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
    """Draw the crops of encoded images, and decode them.

    Args:
        buffers: Buffers that hold the images.
        pieces: Buffer number, first byte and size of each image, int64 ``(images, 3)``; None if
            each image is a buffer.
        rng_of: Generators by the images' indices; None if nothing is drawn.
        rows: Row of each image.
        asked: Settings from ``asked_of``.
        into: Rows to write.

    Returns:
        Indices of the images still to be drawn and decoded: all of them without the kernel, or if
        ``rng_of`` isn't of the class ``Generators``.
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
    """Pack an ``ImageDecoder``'s settings; ``cut`` is the index of its ``crop`` in ``_CROPS``."""
    return cut, resize_short or 0, *area, *ratio, math.log(ratio[0]), math.log(ratio[1]), flip


@functools.cache
def _fits(module: ModuleType) -> bool:
    """True if the kernel draws the same crops as Python."""
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
