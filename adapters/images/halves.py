"""What an ``ImageDecoder`` does before anything is drawn, and what it does after.

``before`` gives uint8 (height, width, 3), or uint16, or other channels where these are asked for,
which is worth keeping; of float32, it keeps 8 bits. ``after`` makes of that, stored raw, what the
whole decoder makes of the encoded image:

    crop                            before                            after
    None, "center"                  decode, resize, cut               flip, mean, std
    "random" with resize_short      decode, resize                    cut, flip, mean, std
    "random", "random_resized"      decode                            cut, resize, flip, mean, std

The values are the same, but for the last row, and for a JPEG whose shorter side has to grow to
``resize_short`` before a larger box is cut: enlarged twice, a value in a hundred differs by 1 or 2.
In the last row, the whole decoder takes a JPEG at a half, a quarter or an eighth where the box is
so much larger than the result, resizes YUV planes before they become RGB, and has OpenCV resize a
PNG, which differs by 1 from the kernel in a value of some hundreds; ``after`` has the whole picture
in RGB.
"""

from __future__ import annotations

import copy
import functools

import numpy as np

from adapters.images.decoder import ImageDecoder


def halves(decoder: ImageDecoder) -> tuple[ImageDecoder, ImageDecoder]:
    """``before`` and ``after``.

    Args:
        decoder: No subclass, of which nobody knows what it does.
    """
    first = functools.partial(
        ImageDecoder,
        dtype="uint16" if decoder.dtype == np.uint16 else "uint8",
        channels=decoder.channels,
        interpolation=decoder.interpolation,
    )
    if decoder.crop == "random_resized" or (decoder.crop == "random" and not decoder.resize_short):
        return first(), decoder
    if decoder.crop == "random":
        # A picture whose shorter side is right already isn't resized, and cut as it would be.
        return first(resize_short=decoder.resize_short), decoder
    before = first(decoder.size, crop=decoder.crop, resize_short=decoder.resize_short)
    after = copy.copy(decoder)
    after.crop = after.resize_short = None
    return before, after
