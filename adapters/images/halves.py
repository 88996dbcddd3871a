"""Steps of an ``ImageDecoder`` before and after random numbers are drawn.

``before`` decodes, and resizes and cuts if that doesn't depend on random numbers; ``after`` turns
that, stored raw, into the whole decoder's result:

    crop                            before                            after
    None, "center"                  decode, resize, cut               flip, mean, std
    "random" with resize_short      decode, resize                    cut, flip, mean, std
    "random", "random_resized"      decode                            cut, resize, flip, mean, std

The values are the same, with two exceptions. A JPEG whose shorter side has to grow to
``resize_short`` before a larger box is cut is enlarged twice: one value in a hundred differs by 1
or 2. In the last row, the whole decoder may decode a JPEG at a fraction of its size, and resizes a
PNG with OpenCV, which differs from the kernel by 1 in one of some hundred values.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images.decoder import ImageDecoder


def halves(decoder: ImageDecoder) -> tuple[ImageDecoder, ImageDecoder]:
    """Return ``before`` and ``after`` of a decoder; not of a subclass, whose steps are unknown."""
    drawn = decoder.crop in ("random", "random_resized")
    kind = _OfAnyBits if decoder.dtype == np.float32 else ImageDecoder
    before = kind(
        None if drawn else decoder.size,
        crop=None if drawn else decoder.crop,
        resize_short=None if decoder.crop == "random_resized" else decoder.resize_short,
        dtype="uint16" if decoder.dtype == np.uint16 else "uint8",
        channels=decoder.channels,
        interpolation=decoder.interpolation,
    )
    # An image whose shorter side is already right isn't resized, and is cut as usual.
    after = copy.copy(decoder)
    if not drawn:
        after.crop = after.resize_short = None
    return before, after


class _OfAnyBits(ImageDecoder):
    """Decoder to uint8 if that holds all of the image, else to float32."""

    def decode(
        self,
        buffer: memoryview | bytes,
        rng: np.random.Generator | None = None,
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Decode one image into a new array."""
        try:
            return super().decode(buffer, rng)
        except ContentError:
            wider = copy.copy(self)
            wider.dtype = np.dtype(np.float32)
            wider._wanted = self._wanted._replace(dtype=wider.dtype)
            return ImageDecoder.decode(wider, buffer, rng)
