"""The native kernel, if it was built: a batch of images in one call without the GIL.

It resizes raw images without a copy, and decodes baseline JPEGs; it touches
only the pixels that are used. It notices files that were cut short, and all damage that libjpeg
sees before the end of the box; some damage, even to earlier pixels, shows only at the end of the
data. Images that it leaves undone go to ``pixels``, which gives the same values. The environment
variable ``ADAPTERS_KERNEL=0`` disables the kernel; with ``ADAPTERS_KERNEL=required``, a missing
kernel is an error.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images.geometry import Crop, reduced, reduction
from adapters.images.probe import own_huffman_fits

log = logging.getLogger("adapters")
# First byte of a JPEG. Raw images have another, and aren't decoded smaller.
_JPEG = b"\xff"
_NAME = "adapters.images._kernel"
# As in ``native/module.c``; it changes when a function is added or its arguments change.
_VERSION = 5
_trouble: str | None = None


@functools.cache
def load() -> ModuleType | None:
    """Load the kernel; None if it wasn't built, can't be loaded, or is disabled.

    Raises:
        ImportError: It can't be loaded, and ``ADAPTERS_KERNEL`` is ``required``.
    """
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
            _say(f"it was built, but can't be loaded: {error}")
        return None
    if kernel.HUFFMAN_IS_OWN and not own_huffman_fits(kernel):
        _say(
            "its own Huffman decoding doesn't fit the libjpeg-turbo that is loaded, which "
            "decodes alone now; rebuild the kernel with that one's headers"
        )
    return kernel


def trouble() -> str | None:
    """Describe the fault of a kernel that was built; None without a fault, or without a kernel."""
    load()
    return _trouble


def _say(reason: str) -> None:
    global _trouble
    _trouble = reason
    log.warning("the image kernel makes JPEGs faster, but %s", reason)


def sizes(buffers: Sequence[memoryview | bytes]) -> Sequence[tuple[int, int] | None]:
    """Read height and width of encoded images; None for those that need a decoder."""
    kernel = load()
    if kernel is None:
        return [None] * len(buffers)
    found: list[tuple[int, int] | None] = kernel.sizes(buffers)
    return found


def decode_rows(
    buffers: Sequence[memoryview | bytes],
    crops: Sequence[Crop | None],
    rows: Sequence[int],
    out: NDArray[Any],
    channels_first: bool,
    table: NDArray[np.float32] | None,
) -> list[int]:
    """Decode crops of encoded images into rows of a batch.

    Args:
        buffers: The encoded images.
        crops: Crop of each image; None to skip it.
        rows: Row of ``out`` for each image.
        out: uint8 or float32, ``(rows, height, width, 3)`` or ``(rows, 3, height, width)``.
        channels_first: True for the second.
        table: For float32, the result for each value of a channel, ``(3, 256)``; else None.

    Returns:
        Indices in ``buffers`` of the images still to be decoded.
    """
    kernel = load()
    wanted = [place for place, crop in enumerate(crops) if crop is not None]
    dtype = np.uint8 if table is None else np.float32
    if kernel is None or not out.flags.c_contiguous or out.dtype != dtype:
        return wanted
    goal = out.shape[2:] if channels_first else out.shape[1:3]
    known, numbers = [], []
    for place, crop in enumerate(crops):
        reducible = bytes(buffers[place][:1]) == _JPEG
        own = None if crop is None else numbers_of(crop, rows[place], goal, reducible)
        if own is not None and memoryview(buffers[place]).c_contiguous:
            known.append(place)
            numbers.append(own)
    decoded = kernel.decode(
        [buffers[place] for place in known],
        np.array(numbers, np.int32),
        out,
        (len(out), *goal),
        channels_first,
        table,
    )
    done = {place for place, outcome in zip(known, decoded) if outcome}
    return [place for place in wanted if place not in done]


def numbers_of(
    crop: Crop, row: int, goal: tuple[int, ...], reducible: bool = True
) -> tuple[int, ...] | None:
    """Convert to the fields of a ``Crop`` in ``native/batch.h``; None if they can't express it."""
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
    numbers = (row, *crop.image, factor, *vertical, *horizontal, int(crop.flip))
    return numbers if max(numbers) < 1 << 31 else None
