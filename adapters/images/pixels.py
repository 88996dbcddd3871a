"""Encoded images into rows of an array: "decode these buffers with these boxes into this array".

This is the seam behind which another decoder can stand: ``size_of``, ``decode`` and ``decode_into``
are all that the rest of the package asks for. JPEG goes through libjpeg-turbo (simplejpeg), which
is asked for a half, a quarter or an eighth of the size where that is still as large as the row;
arrays in NPY's format, which is how raw images are stored, are looked at where they lie; the rest
goes through OpenCV. All release the GIL while they work.

Resizing is bilinear with half-pixel centres and without antialiasing (OpenCV's ``INTER_LINEAR``,
which is also what MXNet does). Grey, palette, CMYK, transparent and 16-bit images become 8-bit RGB,
as MXNet has it; what EXIF says about the orientation is ignored, as MXNet and TensorFlow do.
"""

from __future__ import annotations

import functools
import importlib
import io
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images.geometry import Crop

_JPEG, _PNG, _NPY = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"\x93NUMPY"
_format: Any = np.lib.format
# NumPy pads a header to 64 bytes, and pixels have short ones.
_NPY_HEADER_BYTES = 4096
_COLOURS = {"Gray", "YCbCr", "RGB"}


def size_of(buffer: memoryview | bytes) -> tuple[int, int]:
    """Height and width of an encoded image, from its header where that is easy to read.

    Raises:
        ContentError: Not an image.
    """
    head = bytes(buffer[:26])
    if head.startswith(_JPEG):
        try:
            height, width, *_ = _simplejpeg().decode_jpeg_header(buffer)
            return height, width
        except ValueError as error:
            raise ContentError("a JPEG image", f"a damaged one: {error}") from error
    if head.startswith(_PNG) and len(head) == 26:
        return int.from_bytes(head[20:24], "big"), int.from_bytes(head[16:20], "big")
    shape = decode(buffer).shape
    return shape[0], shape[1]


def decode(buffer: memoryview | bytes) -> NDArray[Any]:
    """An encoded image.

    Returns:
        uint8 (height, width, 3), RGB; an array in NPY's format as it is, without a copy.

    Raises:
        ContentError: Not an image, or a damaged one.
    """
    head = bytes(buffer[:8])
    if head.startswith(_NPY):
        return _npy(buffer)
    if head.startswith(_JPEG):
        return _jpeg(buffer, (0, 0))
    return _other(buffer)


def decode_into(buffer: memoryview | bytes, crop: Crop, row: NDArray[np.uint8]) -> None:
    """Decode what is wanted of an image into its row.

    Args:
        buffer: The encoded image.
        crop: What is wanted.
        row: uint8 (height, width, 3), contiguous; written whole.

    Raises:
        ContentError: Not an image, or a damaged one.
    """
    cv2 = _cv2()
    goal = row.shape[:2]
    box = crop.top, crop.left, crop.height, crop.width
    image = _reduced(buffer, crop, crop.resized or goal)
    if crop.resized is not None:
        if image.shape[:2] != crop.resized:
            image = cv2.resize(image, crop.resized[::-1], interpolation=cv2.INTER_LINEAR)
    elif image.shape[:2] != crop.image:
        box = _scaled(box, crop.image, image.shape)
    top, left, height, width = box
    part = image[top : top + height, left : left + width]
    if part.shape[:2] == goal:
        row[...] = part
    else:
        cv2.resize(part, goal[::-1], dst=row, interpolation=cv2.INTER_LINEAR)
    if crop.flip:
        cv2.flip(row, 1, dst=row)


def _reduced(buffer: memoryview | bytes, crop: Crop, goal: tuple[int, ...]) -> NDArray[np.uint8]:
    """The image in RGB; a JPEG in the smallest of its sizes that leaves the box no smaller."""
    if not bytes(buffer[:3]).startswith(_JPEG):
        return _in_rgb(decode(buffer))
    box = crop.image if crop.resized is not None else (crop.height, crop.width)
    factor = 8
    while factor > 1 and (box[0] < goal[0] * factor or box[1] < goal[1] * factor):
        factor //= 2
    if factor == 1:
        return _jpeg(buffer, (0, 0))
    return _jpeg(buffer, (-(-crop.image[0] // factor), -(-crop.image[1] // factor)))


def _scaled(
    box: tuple[int, int, int, int], image: tuple[int, int], reduced: tuple[int, ...]
) -> tuple[int, int, int, int]:
    """The box in an image of which a reduced one was decoded, to the nearest pixel."""
    top = round(box[0] * reduced[0] / image[0])
    left = round(box[1] * reduced[1] / image[1])
    bottom = round((box[0] + box[2]) * reduced[0] / image[0])
    right = round((box[1] + box[3]) * reduced[1] / image[1])
    return top, left, bottom - top, right - left


def _jpeg(buffer: memoryview | bytes, least: tuple[int, int]) -> NDArray[np.uint8]:
    """A JPEG, in its smallest size of at least that height and width; (0, 0): in its own."""
    try:
        image: NDArray[np.uint8] = _simplejpeg().decode_jpeg(
            buffer, "RGB", min_height=least[0], min_width=least[1]
        )
    except ValueError as error:
        if _colour_space(buffer) in _COLOURS:
            raise ContentError("a JPEG image", f"a damaged one: {error}") from error
        return _other(buffer)  # CMYK.
    return image


def _colour_space(buffer: memoryview | bytes) -> str | None:
    try:
        return str(_simplejpeg().decode_jpeg_header(buffer)[2])
    except ValueError:
        return "RGB"


def _other(buffer: memoryview | bytes) -> NDArray[np.uint8]:
    cv2 = _cv2()
    encoded = np.frombuffer(buffer, np.uint8)
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image: NDArray[np.uint8] | None = cv2.imdecode(encoded, flags) if len(encoded) else None
    except cv2.error as error:
        raise ContentError("an image", f"what OpenCV refuses: {error}") from error
    if image is None:
        shown = bytes(buffer[:8]).hex(" ") or "nothing"
        raise ContentError("an image", f"{len(encoded)} bytes that begin with {shown}")
    cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=image)
    return image


def _npy(buffer: memoryview | bytes) -> NDArray[Any]:
    """An array in NPY's format, looked at where it lies."""
    stream = io.BytesIO(bytes(buffer[:_NPY_HEADER_BYTES]))
    try:
        version = _format.read_magic(stream)
        read = _format.read_array_header_1_0 if version == (1, 0) else _format.read_array_header_2_0
        shape, columns_first, dtype = read(stream)
        array = np.frombuffer(buffer, dtype, int(np.prod(shape)), stream.tell())
    except ValueError as error:
        raise ContentError("an array in NPY's format", f"what NumPy refuses: {error}") from error
    shaped: NDArray[Any] = array.reshape(shape, order="F" if columns_first else "C")
    return shaped


def _in_rgb(image: NDArray[Any]) -> NDArray[np.uint8]:
    """An array that was stored raw, as three channels."""
    if (
        image.dtype != np.uint8
        or image.ndim not in (2, 3)
        or image.shape[2:] not in ((), (1,), (3,))
    ):
        raise ContentError(
            "uint8 (height, width), (height, width, 1) or (height, width, 3)",
            f"{image.dtype} {image.shape}",
        )
    if image.shape[2:] == (3,):
        return image
    return np.ascontiguousarray(
        np.broadcast_to(image.reshape(*image.shape[:2], 1), (*image.shape[:2], 3))
    )


@functools.cache
def _cv2() -> ModuleType:
    try:
        return importlib.import_module("cv2")
    except ImportError:
        raise ImportError("images need OpenCV: pip install 'loader-adapters[images]'") from None


@functools.cache
def _simplejpeg() -> ModuleType:
    try:
        return importlib.import_module("simplejpeg")
    except ImportError:
        raise ImportError("JPEG needs simplejpeg: pip install 'loader-adapters[images]'") from None
