"""What an ``ImageDecoder`` does before anything is drawn, and what it does after.

``before`` decodes, and resizes and cuts where that doesn't depend on random numbers; ``after``
makes of that, stored raw, what the whole decoder makes of the encoded image:

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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.generators import RngOf
from adapters.images.decoder import ImageDecoder


def halves(decoder: ImageDecoder) -> tuple[ImageDecoder, ImageDecoder]:
    """``before`` and ``after``.

    Args:
        decoder: No subclass, of which nobody knows what it does.
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
    # A picture whose shorter side is right already isn't resized, and cut as it would be.
    after = copy.copy(decoder)
    if decoder.crop in (None, "center"):
        after.crop = after.resize_short = None
    return before, after


class _OfAnyBits(ImageDecoder):
    """Gives uint8 where that holds all of the image, else float32."""

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
        """Rows of one dtype can't hold that."""
        raise NotImplementedError
