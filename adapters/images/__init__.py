"""Decoding of images into rows of arrays: crops (geometry), pixels (pixels), both (decoder)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.lazily import bound

if TYPE_CHECKING:
    from adapters.images.decoder import ImageDecoder
    from adapters.images.pixels import decode, size_of, stored
else:  # Array sources import this package only for the geometry of crops.
    __getattr__ = bound(
        __name__,
        {
            "ImageDecoder": "adapters.images.decoder",
            "decode": "adapters.images.pixels",
            "size_of": "adapters.images.pixels",
            "stored": "adapters.images.pixels",
        },
    )

__all__ = ["ImageDecoder", "decode", "size_of", "stored"]
