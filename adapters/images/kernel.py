"""The native kernel, if it was built: a batch of images in one call without the GIL.

It decodes baseline JPEGs and resizes raw images. It checks the last marker and the data that it
decodes: down to the box's last row, and to the end of the data if the box reaches the image's end.
Damage after that is not noticed. Images that it leaves undone go to ``pixels``, which gives the
same values. ``ADAPTERS_KERNEL=0`` in the environment disables the kernel; ``required`` makes a
missing kernel an error.

``native/crops.c`` repeats the arithmetic of ``geometry`` and of NumPy's generators to the bit: the
GIL is held for 0.7 instead of 16 us an image, in batches of 64 (CPU time, 2026-11).
"""

from __future__ import annotations

import functools
import importlib
import io
import logging
import math
import os
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.generators import Generators, RngOf
from adapters.images.geometry import Crop, reduced, reduction

log = logging.getLogger("adapters")
_JPEG = b"\xff"
# First bytes of what the kernel decodes: JPEGs, and raw images, which aren't decoded smaller.
FIRST_BYTES = _JPEG, b"\x93"
_NAME = "adapters.images._kernel"
# As in ``native/module.c``; it changes when a function is added or its arguments change.
_VERSION = 11
_MOST_SIDE = (1 << 31) - 1
_trouble: str | None = None

Encoded = memoryview | bytes | io.FileIO
"""Memory or a file with encoded images. A file is read image by image."""
Settings = tuple[int | float | bool, ...]
"""Fields of ``Asked`` in ``native/crops.h``, in order."""


class Target(NamedTuple):
    """Rows of a batch to write, uint8 or float32."""

    out: NDArray[Any]
    channels_first: bool
    table: NDArray[np.float32] | None
    """For float32, the result for each value of a channel, ``(3, 256)``."""

    @property
    def size(self) -> tuple[int, ...]:
        """Height and width of a row."""
        return self.out.shape[2:] if self.channels_first else self.out.shape[1:3]


@functools.cache
def load() -> ModuleType | None:
    """Load the kernel; None if it wasn't built, can't be loaded, or is disabled.

    Raises:
        ImportError: It can't be loaded, and ``ADAPTERS_KERNEL`` is ``required``.
    """
    global _trouble
    wanted = os.environ.get("ADAPTERS_KERNEL")
    if wanted == "0":
        return None
    try:
        kernel = importlib.import_module(_NAME)
        if getattr(kernel, "VERSION", None) != _VERSION:
            raise ImportError("it is that of another version of the package; rebuild it")
    except ImportError as error:
        if wanted == "required":
            raise
        if getattr(error, "name", None) != _NAME or not isinstance(error, ModuleNotFoundError):
            _trouble = f"it was built, but can't be loaded: {error}"
            log.warning("the native kernel makes JPEGs faster, but %s", _trouble)
        return None
    return kernel


def trouble() -> str | None:
    """Describe the fault of a kernel that was built; None without a fault, or without a kernel."""
    load()
    return _trouble


def settings_of(
    cut: int,
    resize_short: int | None,
    area: tuple[float, float],
    ratio: tuple[float, float],
    flip: bool,
) -> Settings:
    """Pack an ``ImageDecoder``'s settings; ``cut`` is the index of its ``crop`` in ``_CROPS``."""
    short = min(resize_short or 0, _MOST_SIDE)  # The kernel leaves what is far too large.
    return cut, short, *area, *ratio, math.log(ratio[0]), math.log(ratio[1]), flip


def decode(
    buffers: Sequence[Encoded],
    pieces: NDArray[np.int64] | None,
    rng_of: RngOf | None,
    rows: Sequence[int] | NDArray[np.int64],
    crops: Settings | NDArray[np.int32],
    target: Target,
) -> Sequence[int] | None:
    """Decode images; for other arguments, see ``ImageDecoder.decode_rows``.

    ``crops`` are settings, from which the kernel draws each image's crop, or the crops' numbers.

    Returns:
        Indices of the images still to be drawn and decoded; None without the kernel, or if
        ``rng_of`` isn't of the class ``Generators``.
    """
    kernel = load()
    if kernel is None or not isinstance(rng_of, (Generators, type(None))):
        return None
    key, counters = (None, None) if rng_of is None else (rng_of.key, rng_of.counters)
    numbers = np.ascontiguousarray(rows, np.int64)
    out, channels_first, table = target
    shape = len(out), *target.size
    outcomes = kernel.decode(
        buffers, pieces, numbers, crops, key, counters, out, shape, channels_first, table
    )
    return [place for place, is_done in enumerate(outcomes) if not is_done] if 0 in outcomes else ()


def decode_crop(buffer: memoryview | bytes, crop: Crop, target: Target) -> bool:
    """Decode a crop of an encoded image into the first row; return whether that was done."""
    numbers = numbers_of(crop, target.size, bytes(buffer[:1]) == _JPEG)
    if numbers is None:
        return False
    crops = np.array([numbers], np.int32)
    left = decode([buffer], None, None, [0], crops, target)
    return left is not None and not left


def numbers_of(crop: Crop, goal: tuple[int, ...], reducible: bool = True) -> tuple[int, ...] | None:
    """Convert to the fields of a ``Crop`` in ``native/batch.h``; None if they can't express it.

    ``goal`` is the height and width of the row, whose number the kernel gets apart; here it is 0.
    ``reducible`` is true for a JPEG, which may be decoded smaller.
    """
    height, width = goal
    factor = reduction(crop, (height, width)) if reducible else 1
    image = -(-crop.image[0] // factor), -(-crop.image[1] // factor)
    if crop.resized is None:
        top, left, box_height, box_width = reduced(crop.box, factor, image)
        vertical, horizontal = (top, box_height, height, 0), (left, box_width, width, 0)
    elif (crop.height, crop.width) == (height, width):
        _, _, whole_height, whole_width = reduced((0, 0, *crop.image), factor, image)
        vertical = 0, whole_height, crop.resized[0], crop.top
        horizontal = 0, whole_width, crop.resized[1], crop.left
    else:
        return None
    numbers = (0, *crop.image, factor, *vertical, *horizontal, int(crop.flip))
    return numbers if max(numbers) < 1 << 31 else None
