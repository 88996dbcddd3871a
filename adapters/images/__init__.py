"""Encoded images into rows of arrays: what is wanted (geometry), how (pixels), both (decoder)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.lazily import bound

if TYPE_CHECKING:
    from adapters.images.decoder import ImageDecoder
    from adapters.images.pixels import decode, size_of, stored
else:  # Arrays need the kernel's copies of rows alone.
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
