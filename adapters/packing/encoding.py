"""One item into the bytes of its record: resized, encoded, with its label."""

from __future__ import annotations

import importlib
import io
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images import ImageDecoder, size_of
from adapters.images import decode as decode_image
from adapters.packing.inputs import Item
from adapters.records import CODECS, example, irheader

ENCODINGS = ("jpeg", "raw")
SUFFIXES = {"recordio": ".rec", "tfrecord": ".tfrecord"}
# What MXNet's im2rec takes, too.
_QUALITY = 95
_JPEG = b"\xff\xd8\xff"
# Of libjpeg-turbo.
_MOST_PIXELS = 65_500
_ID_MASK = (1 << 64) - 1


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
            ContentError: Not an image, or a damaged one, or a label that the format can't hold.
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
        if isinstance(content, bytes) and self._is_kept(content):
            decode_image(content)  # To see that it can be.
            return content
        if self.resize is not None:
            pixels = _resized(content if isinstance(content, bytes) else _npy(content), self.resize)
        else:
            pixels = decode_image(content) if isinstance(content, bytes) else content
        return _npy(pixels) if self.encoding == "raw" else _jpeg(pixels, self.quality or _QUALITY)

    def _is_kept(self, content: bytes) -> bool:
        if self.encoding != "jpeg" or self.quality is not None or not content.startswith(_JPEG):
            return False
        return self.resize is None or min(size_of(content)) == self.resize


def labelled(format: str, image: bytes, label: Any, number: int) -> bytes:
    """An encoded image with its label, as a record of this format has it.

    Args:
        format: "recordio": behind an IRHeader; "tfrecord": in a tf.train.Example.
        image: Encoded.
        label: A number, or several; whole numbers become integers where the format has these.
        number: The record's id.

    Raises:
        ContentError: A label that is no number, or one that the format can't hold. Of fractions
            float32 holds the nearest, which is right; of whole numbers, from 2^24 on, not all.
    """
    values = np.asarray(label)
    if values.dtype.kind not in "biuf" or not values.size:
        raise ContentError("a number as label, or several", f"{label!r}")
    if format == "recordio":
        _check_float32(values)
        return irheader.pack(label, number & _ID_MASK, image)
    if values.dtype.kind == "f":
        values = _as_integer(values)
    if values.dtype.kind == "f":
        _check_float32(values)
    elif int(values.max()) > np.iinfo(np.int64).max:
        raise ContentError("a label that int64 holds", f"{label!r}")
    # Raw images of one size make records of one size, which are gathered at once.
    one = values.dtype.kind != "f" and values.size == 1
    stored = example.Padded(values.item()) if one else values
    features = {
        "image/encoded": image,
        "image/class/label": stored,
        "image/id": example.Padded(number),
    }
    return example.encode(features)


def _as_integer(values: NDArray[Any]) -> NDArray[Any]:
    """As int64, if that is one number and loses nothing, not even the sign of a zero."""
    with np.errstate(invalid="ignore"):
        integers = values.astype(np.int64)
    same = integers.astype(values.dtype).tobytes() == values.tobytes()
    return integers if same and values.size == 1 else values


def _check_float32(values: NDArray[Any]) -> None:
    with np.errstate(over="ignore"):
        held = values.astype(np.float32)
    # As Python's numbers, which are compared exactly.
    for given, found in zip(values.ravel().tolist(), held.ravel().tolist()):
        if given != found and (math.isinf(found) or float(given).is_integer()):
            raise ContentError("a label that float32 holds", f"{given!r}")


def _resized(encoded: bytes, short: int) -> NDArray[Any]:
    height, width = size_of(encoded)
    if max(height, width) * short // min(height, width) > _MOST_PIXELS:
        raise ContentError(
            f"an image of at most {_MOST_PIXELS} pixels a side, resized",
            f"one of {height} x {width}, whose shorter side is to have {short}",
        )
    return ImageDecoder(resize_short=short).decode(encoded)


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
        encoded: bytes = importlib.import_module("simplejpeg").encode_jpeg(
            np.ascontiguousarray(pixels),
            quality,
            "GRAY" if grey else "RGB",
            "Gray" if grey else "420",
        )
    except ValueError as error:
        raise ContentError("what JPEG can hold", f"{pixels.shape}: {error}") from error
    return encoded


def _npy(array: NDArray[Any]) -> bytes:
    if array.dtype.kind not in "biufc":
        raise ContentError("numbers", f"an array of {array.dtype}")
    stream = io.BytesIO()
    np.save(stream, np.ascontiguousarray(array), allow_pickle=False)
    return stream.getvalue()
