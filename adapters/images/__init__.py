"""Encoded images into rows of arrays: what is wanted (geometry), how (pixels), both (decoder)."""

from __future__ import annotations

from adapters.images.decoder import ImageDecoder
from adapters.images.pixels import decode, size_of

__all__ = ["ImageDecoder", "decode", "size_of"]
