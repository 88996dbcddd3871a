"""One item into the bytes of its record: resized, encoded, with its label."""

from __future__ import annotations

import importlib
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images import ImageDecoder
from adapters.images import decode as decode_image
from adapters.packing.inputs import Item
from adapters.records import CODECS, example, irheader

ENCODINGS = ("jpeg", "raw")
# What MXNet's im2rec takes, too.
_QUALITY = 95
_JPEG = b"\xff\xd8\xff"


@dataclass(frozen=True)
class Encoder:
    """How items become records.

    Args:
        format: "recordio" or "tfrecord".
        encoding: "jpeg" or "raw".
        resize: Pixels of the shorter side, or None.
        quality: Of JPEGs; None keeps those that needn't be resized as they are.
    """

    format: str
    encoding: str
    resize: int | None
    quality: int | None

    def record(self, item: Item) -> bytes:
        """The item's record as it stands in the file.

        Raises:
            ContentError: Not an image, or a damaged one.
            OSError: A file that can't be read.
        """
        payload = labelled(self.format, self.image(item.content()), item.label, item.number)
        encoded: bytes = CODECS[self.format].encode(payload)
        return encoded

    def image(self, content: bytes | NDArray[Any]) -> bytes:
        """The image as the record holds it.

        Raises:
            ContentError: Not an image, or a damaged one.
        """
        if self.resize is not None:
            encoded = content if isinstance(content, bytes) else _npy(content)
            pixels: NDArray[Any] = ImageDecoder(resize_short=self.resize).decode(encoded)
        elif isinstance(content, bytes):
            pixels = decode_image(content)  # Also of what is kept as it is: to see that it can be.
            keep = self.encoding == "jpeg" and self.quality is None and content.startswith(_JPEG)
            if keep:
                return content
        else:
            pixels = content
        return _npy(pixels) if self.encoding == "raw" else _jpeg(pixels, self.quality or _QUALITY)


def labelled(format: str, image: bytes, label: Any, number: int) -> bytes:
    """An encoded image with its label, as a record of this format has it.

    Args:
        format: "recordio": behind an IRHeader; "tfrecord": in a tf.train.Example.
        image: Encoded.
        label: A number, or several; whole numbers become integers where the format has these.
        number: The record's id.
    """
    if format == "recordio":
        return irheader.pack(label, number, image)
    values = np.atleast_1d(np.asarray(label))
    if values.dtype.kind == "f" and np.array_equal(values, np.trunc(values)) and values.size == 1:
        values = values.astype(np.int64)
    features = {"image/encoded": image, "image/class/label": values, "image/id": number}
    return example.encode(features)


def _jpeg(pixels: NDArray[Any], quality: int) -> bytes:
    if pixels.ndim == 2:
        pixels = pixels[:, :, np.newaxis]
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in (1, 3):
        raise ContentError(
            'uint8 (height, width), or with 1 or 3 channels, for JPEG; encoding="raw" takes any',
            f"{pixels.dtype} {pixels.shape}",
        )
    grey = pixels.shape[2] == 1
    encoded: bytes = importlib.import_module("simplejpeg").encode_jpeg(
        np.ascontiguousarray(pixels),
        quality,
        "GRAY" if grey else "RGB",
        "Gray" if grey else "420",
    )
    return encoded


def _npy(array: NDArray[Any]) -> bytes:
    if array.dtype.hasobject:
        raise ContentError("numbers", f"an array of {array.dtype}")
    stream = io.BytesIO()
    np.save(stream, np.ascontiguousarray(array), allow_pickle=False)
    return stream.getvalue()
