"""Encoding of one item as the bytes of its record: image resized and encoded, with its label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images import ImageDecoder, exif, npy, size_of
from adapters.images import stored as decode_stored
from adapters.images.bands import AS_STORED, opaque
from adapters.images.pixels import cropped, is_grey_jpeg, simplejpeg
from adapters.packing.inputs import Item
from adapters.records import CODECS

ENCODINGS = ("jpeg", "raw")
# As in MXNet's im2rec.
_QUALITY = 95
_JPEG = b"\xff\xd8\xff"


@dataclass(frozen=True)
class ImageEncoder:
    """Encoder of items as records; the fields are arguments of ``pack``."""

    format: str
    encoding: str
    resize: int | None
    quality: int | None
    floats: bool
    """True if labels are stored as floats, also whole ones."""

    def record(self, item: Item) -> bytes:
        """Encode an item as its record; ``ContentError`` for what is no image, or another label."""
        codec = CODECS[self.format]
        image = self.image(item.content())
        return codec.encode(codec.envelope.pack(image, item.label, item.number, self.floats))

    def image(self, content: bytes | NDArray[Any]) -> bytes:
        """Encode an image for its record, upright if it is encoded again; else ``ContentError``."""
        if isinstance(content, bytes) and self._is_kept(content):
            decode_stored(content)  # Raises if it can't be decoded.
            return content
        encoded = content if isinstance(content, bytes) else _npy(content)
        resize = self.resize
        pixels = decode_stored(encoded) if resize is None else _resized(encoded, resize)
        pixels = exif.upright(pixels, exif.orientation(encoded))
        if self.encoding == "raw":
            return _npy(pixels)
        return _jpeg(opaque(pixels), self.quality or _QUALITY)

    def _is_kept(self, content: bytes) -> bool:
        if self.encoding != "jpeg" or self.quality is not None or not content.startswith(_JPEG):
            return False
        return self.resize is None or min(size_of(content)) == self.resize


def _resized(encoded: bytes, short: int) -> NDArray[Any]:
    decoder = ImageDecoder(resize_short=short)
    if encoded.startswith(_JPEG):
        return decoder.decode(encoded)[:, :, : 1 if is_grey_jpeg(encoded) else 3]
    crop = decoder.crop_of(*size_of(encoded), None)
    resized = cropped(encoded, crop, (crop.height, crop.width), AS_STORED)
    is_flat = encoded.startswith(npy.MAGIC) and npy.read(encoded).ndim == 2
    return resized[:, :, 0] if is_flat else resized


def _jpeg(pixels: NDArray[Any], quality: int) -> bytes:
    if pixels.ndim == 2:
        pixels = pixels[:, :, np.newaxis]
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in (1, 3):
        raise ContentError(
            'uint8 (height, width), or with 1 or 3 channels, for JPEG; encoding="raw" takes any',
            f"{pixels.dtype} {pixels.shape}",
        )
    grey = pixels.shape[2] == 1
    try:
        kinds = ("GRAY", "Gray") if grey else ("RGB", "420")
        encoded: bytes = simplejpeg().encode_jpeg(np.ascontiguousarray(pixels), quality, *kinds)
    except ValueError as error:
        raise ContentError("what JPEG can hold", f"{pixels.shape}: {error}") from error
    return encoded


def _npy(array: NDArray[Any]) -> bytes:
    if array.dtype.kind not in "biufc":
        raise ContentError("numbers", f"an array of {array.dtype}")
    return npy.write(array)
