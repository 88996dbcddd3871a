"""Steps of an ``ImageDecoder`` before and after random numbers are drawn.

``before`` decodes, and resizes and cuts if that doesn't depend on random numbers; ``after`` turns
that, stored raw, into the whole decoder's result:

    crop                            before                            after
    None, "center"                  decode, resize, cut               flip, mean, std
    "random" with resize_short      decode, resize                    cut, flip, mean, std
    "random", "random_resized"      decode                            cut, resize, flip, mean, std

The values are the same, with two exceptions. A JPEG whose shorter side has to grow to
``resize_short`` before a larger box is cut is enlarged twice: one value in a hundred differs by 1
or 2. In the last row, ``after`` gets the whole image in RGB. The whole decoder instead decodes a
JPEG at a half, a quarter or an eighth if the box is that much larger than the result, and resizes a
PNG with OpenCV, which differs from the kernel by 1 in one of some hundred values.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.generators import RngOf
from adapters.images.decoder import ImageDecoder


def halves(decoder: ImageDecoder) -> tuple[ImageDecoder, ImageDecoder]:
    """Return ``before`` and ``after``.

    Args:
        decoder: Decoder to split; not a subclass, whose steps are unknown.
    """
    whole = decoder.crop == "random_resized" or (
        decoder.crop == "random" and not decoder.resize_short
    )
    kind = _OfAnyBits if decoder.dtype == np.float32 else ImageDecoder
    before = kind(
        None if whole or decoder.crop == "random" else decoder.size,
        crop=None if whole or decoder.crop == "random" else decoder.crop,
        resize_short=None if whole else decoder.resize_short,
        dtype="uint16" if decoder.dtype == np.uint16 else "uint8",
        channels=decoder.channels,
        interpolation=decoder.interpolation,
    )
    # An image whose shorter side is already right isn't resized, and is cut as usual.
    after = copy.copy(decoder)
    if decoder.crop in (None, "center"):
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
        """Decode one image."""
        try:
            return super().decode(buffer, rng)
        except ContentError:
            wider = ImageDecoder(
                self.size,
                crop=self.crop,
                resize_short=self.resize_short,
                dtype="float32",
                channels=self.channels,
                interpolation=self.interpolation,
            )
            return wider.decode(buffer, rng)

    def decode_rows(
        self,
        buffers: Any,
        rng_of: RngOf | None,
        rows: Any,
        out: NDArray[Any],
    ) -> list[tuple[int, Exception]]:
        """Raise an error: rows of one dtype can't hold the results."""
        raise NotImplementedError
