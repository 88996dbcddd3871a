"""One encoded image of any kind into its row of an array.

JPEG goes through libjpeg-turbo (simplejpeg), which is asked for a half, a quarter or an eighth of
the size where that is still as large as the row; arrays in NPY's format, which is how raw images
are stored, are looked at where they lie; YUV planes are ``planes``'s, JPEG 2000 is ``jpeg2000``'s;
the rest goes through OpenCV. All release the GIL while they work. What is cut short or damaged is
refused where that can be told, rather than decoded as far as it goes: a JPEG of which the decoder
says so, a PNG with a wrong CRC, whatever OpenCV refuses. Nor is anything decoded that claims to
have more than ``MOST_PIXELS``.

Resizing is bilinear with half-pixel centres and without antialiasing (OpenCV's ``INTER_LINEAR``,
which is also what MXNet does). Grey, palette, CMYK, transparent and 16-bit images become 8-bit RGB,
as MXNet has it; what EXIF says about the orientation is ignored, as MXNet and TensorFlow do, but
for a TIFF's, which OpenCV heeds whatever it is told.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images import jpeg2000, npy, planes, png, sizes
from adapters.images.geometry import Crop, reduced, reduction
from adapters.signatures import HEAD_BYTES, recognized

# 16,384 x 16,384: what the kernel has, too.
MOST_PIXELS = 1 << 28
_JPEG = b"\xff\xd8\xff"
_COLOURS = {"Gray", "YCbCr", "RGB"}


def size_of(buffer: memoryview | bytes) -> tuple[int, int]:
    """Height and width of an encoded image, from its header where that is easy to read.

    Raises:
        ContentError: Not an image.
    """
    head = bytes(buffer[:8])
    if head.startswith(_JPEG):
        height, width, *_ = _jpeg_header(buffer)
    elif head == png.MAGIC:
        height, width = png.size_of(buffer)
    elif head.startswith(planes.MAGIC):
        height, width = planes.size_of(buffer)
    elif head.startswith(jpeg2000.MAGICS):
        height, width = jpeg2000.size_of(buffer)
    else:
        image = decode(buffer)
        _check_pixels(image)
        height, width = image.shape[:2]
        if not (height and width):
            raise ContentError("an image", f"one of {height} x {width} pixels")
        return height, width
    _check_size(height, width)
    return height, width


def decode(buffer: memoryview | bytes) -> NDArray[Any]:
    """An encoded image.

    Returns:
        uint8 (height, width, 3), RGB; an array in NPY's format as it is, without a copy.

    Raises:
        ContentError: Not an image, or a damaged one, or one that is too large.
    """
    head = bytes(buffer[:8])
    if head.startswith(npy.MAGIC):
        return npy.read(buffer)
    if head.startswith(_JPEG):
        return _jpeg(buffer, 1)
    if head.startswith(planes.MAGIC):
        size_of(buffer)
        return planes.decode(buffer)
    if head == png.MAGIC:
        size_of(buffer)
        return _other(png.still(buffer))
    if head.startswith(jpeg2000.MAGICS):
        size_of(buffer)
        return jpeg2000.decode(buffer)
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
    goal = row.shape[0], row.shape[1]
    head = bytes(buffer[:8])
    is_yuv = head.startswith(planes.MAGIC)
    if is_yuv and (crop.resized is None or crop.box[2:] == goal):
        planes.decode_into(buffer, crop, row)
        return
    cv2 = _cv2()
    if head.startswith(_JPEG):
        factor = reduction(crop, goal)
        image = _jpeg(buffer, factor)
    elif is_yuv:
        factor = 1
        image = planes.decode(buffer, crop.resized)
    else:
        factor = 1
        image = _in_rgb(decode(buffer))
    box = crop.box
    if crop.resized is not None:
        _, _, height, width = reduced((0, 0, *crop.image), factor, image.shape)
        image = image[:height, :width]
        if image.shape[:2] != crop.resized:
            image = cv2.resize(image, crop.resized[::-1], interpolation=cv2.INTER_LINEAR)
    else:
        box = reduced(box, factor, image.shape)
    top, left, height, width = box
    part = image[top : top + height, left : left + width]
    if part.shape[:2] == goal:
        row[...] = part
    else:
        cv2.resize(part, goal[::-1], dst=row, interpolation=cv2.INTER_LINEAR)
    if crop.flip:
        cv2.flip(row, 1, dst=row)


def _jpeg(buffer: memoryview | bytes, factor: int) -> NDArray[np.uint8]:
    """A JPEG at 1 / ``factor`` of its size, rounded up; 1, 2, 4 or 8."""
    height, width, colour_space = _jpeg_header(buffer)
    _check_size(height, width)
    height, width = -(-height // factor), -(-width // factor)
    channels = 3 if colour_space in _COLOURS else 4
    try:
        image: NDArray[np.uint8] = _simplejpeg().decode_jpeg(
            buffer,
            "RGB" if channels == 3 else "CMYK",
            min_height=height if factor > 1 else 0,
            min_width=width if factor > 1 else 0,
        )
    except ValueError as error:
        raise ContentError("a JPEG image", f"a damaged one: {error}") from error
    if channels == 3:
        return image
    # As OpenCV has it, and so MXNet: what is stored is how little ink there is.
    black = image[:, :, 3:].astype(np.uint16)
    return (black - ((255 - image[:, :, :3]) * black >> 8)).astype(np.uint8)


def _jpeg_header(buffer: memoryview | bytes) -> tuple[int, int, str]:
    """Height, width and colour space."""
    try:
        height, width, colour_space, _ = _simplejpeg().decode_jpeg_header(buffer)
    except KeyError as error:
        raise ContentError("a JPEG image", f"one subsampled as nobody does: {error}") from error
    except ValueError as error:
        raise ContentError("a JPEG image", f"a damaged one: {error}") from error
    return height, width, colour_space


def _check_size(height: int, width: int) -> None:
    if not 0 < height * width <= MOST_PIXELS:
        raise ContentError(
            f"an image of 1 to {MOST_PIXELS:,} pixels", f"one of {height} x {width} pixels"
        )


def _other(buffer: memoryview | bytes) -> NDArray[np.uint8]:
    cv2 = _cv2()
    claimed = sizes.size_in_header(buffer)
    if claimed is not None:
        _check_size(*claimed)
    encoded = np.frombuffer(buffer, np.uint8)
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image: NDArray[np.uint8] | None = cv2.imdecode(encoded, flags) if len(encoded) else None
    except cv2.error as error:
        raise ContentError("an image", f"what OpenCV refuses: {error}") from error
    if image is None and bytes(buffer[:4]) == b"GIF8":
        raise ContentError(
            f"an image of a kind that OpenCV {cv2.__version__} decodes",
            "a GIF: convert it, or install an OpenCV that has been built with GIF",
        )
    if image is None:
        shown = bytes(buffer[:8]).hex(" ") or "nothing"
        found = recognized(bytes(buffer[:HEAD_BYTES]))
        raise ContentError("an image", found or f"{len(encoded)} bytes that begin with {shown}")
    _check_size(*image.shape[:2])
    cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=image)
    return image


def _check_pixels(image: NDArray[Any]) -> None:
    """Whether an array that was stored raw is an image.

    Raises:
        ContentError: It isn't.
    """
    if (
        image.dtype != np.uint8
        or image.ndim not in (2, 3)
        or image.shape[2:] not in ((), (1,), (3,))
    ):
        raise ContentError(
            "uint8 (height, width), (height, width, 1) or (height, width, 3)",
            f"{image.dtype} {image.shape}",
        )


def _in_rgb(image: NDArray[Any]) -> NDArray[np.uint8]:
    """An array that was stored raw, as three channels."""
    _check_pixels(image)
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
