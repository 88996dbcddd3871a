"""Decoding of one image of any kind into its row of an array.

JPEG goes through libjpeg-turbo (simplejpeg; OpenCV for rare subsamplings), at a half, a quarter or
an eighth of the size if that is still as large as the row. ``png`` and ``formats`` check other
images before OpenCV decodes them, ``pillow`` decodes JPEG 2000. Damaged and truncated images are
refused if that can be detected, not decoded as far as they go. All interpolations have half-pixel
centres, so that an image and its mask stay aligned. EXIF orientation is ignored, as in MXNet and
TensorFlow, except for TIFFs, where OpenCV always applies it.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images import exif, formats, npy, opencv, pillow, png
from adapters.images.bands import AS_STORED, PLAIN, Wanted, fitted
from adapters.images.geometry import Crop, reduced, reduction
from adapters.images.opencv import check_size
from adapters.lazily import required

_T = TypeVar("_T")
# 512 before OpenCV 5.
_MOST_BANDS_OF_OPENCV = 128
# If it averages areas of fractions of pixels.
_MOST_BANDS_OF_AREA = 4
# Above it, OpenCV's 32-bit arithmetic overflows, and it reads outside of the image.
_MOST_SIDE_OF_NEAREST = (1 << 15) - 1
_JPEG, _END_OF_JPEG = b"\xff\xd8\xff", b"\xff\xd9"
# Segments with a JPEG's height and width, at these bytes of their data.
_FRAMES, _SIZE = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}, struct.Struct(">xHH")
_JFIF_VERSION = re.compile(rb"(\xff\xe0..JFIF\0).", re.DOTALL)
_SCAN_PARAMETERS = re.compile(rb"(\xff\xda\0(?:\x08\x01..|\x0c\x03.{6})).{3}", re.DOTALL)
# In a scan, where 0xFF 0x00 is data.
_PADDING = re.compile(rb"(?<!\xff)\0+(?=\xff[\xd0-\xd7\xd9])")
_UNKNOWN_SUBSAMPLING = "Could not determine subsampling"
_COLOURS = {"Gray", "YCbCr", "RGB"}
INTERPOLATIONS = {
    "bilinear": "INTER_LINEAR",
    "nearest": "INTER_NEAREST_EXACT",  # The pixel that Pillow takes, or one as near.
    "area": "INTER_AREA",
    "cubic": "INTER_CUBIC",
    "bicubic": "INTER_CUBIC",
}
"""OpenCV's name of each interpolation."""


def size_of(buffer: memoryview | bytes) -> tuple[int, int]:
    """Read height and width, from the header if that is easy; ``ContentError`` for no image."""
    head = bytes(buffer[:8])
    if head.startswith(_JPEG):
        return _regular(_jpeg_header, buffer)[:2]
    if head == png.MAGIC:
        return png.size_of(buffer)
    height, width, _ = decoded(buffer, AS_STORED).shape  # OpenCV may turn a TIFF.
    return height, width


def is_jpeg(buffer: memoryview | bytes) -> bool:
    """True if the buffer begins like a JPEG."""
    return bytes(buffer[:3]) == _JPEG


def is_grey_jpeg(jpeg: memoryview | bytes) -> bool:
    """True if a JPEG has one channel."""
    return _regular(_jpeg_header, jpeg)[2] == "Gray"


def decode(buffer: memoryview | bytes, wanted: Wanted = PLAIN) -> NDArray[Any]:
    """Decode an image to uint8 (height, width, 3), RGB, or the wanted format.

    An array in NPY's format is returned as it is, without a copy. ``ContentError`` says that this
    is no image, it is damaged or too large, or bits, bands or pages would be lost.
    """
    is_npy = bytes(buffer[:8]).startswith(npy.MAGIC)
    return npy.read(buffer) if is_npy else decoded(buffer, wanted)


def stored(buffer: memoryview | bytes) -> NDArray[Any]:
    """Decode an image like ``decode``, but with all bits, ``(height, width, channels)``."""
    return decode(buffer, AS_STORED)


def cropped(
    buffer: memoryview | bytes,
    crop: Crop,
    goal: tuple[int, int],
    wanted: Wanted,
    image: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Decode a crop of an image, ``(*goal, channels)``, perhaps a view of the buffer.

    8-bit images stay uint8 for float32. ``image`` is the result of ``decoded``, if it is there
    already. ``ContentError`` as for ``decode``.
    """
    factor = 1
    if image is None:
        if is_jpeg(buffer) and wanted.interpolation == "bilinear":
            factor = reduction(crop, goal)
        image = decoded(buffer, wanted, factor)
    if factor == 1 and image.shape[:2] != crop.image:
        height, width, _ = image.shape
        claimed = " x ".join(map(str, crop.image))
        raise ContentError(f"an image of {claimed} pixels", f"one of {height} x {width}")
    box = crop.box
    if crop.resized is not None:
        _, _, height, width = reduced((0, 0, *crop.image), factor, image.shape)
        image = _resized(image[:height, :width], crop.resized, wanted)
    else:
        box = reduced(box, factor, image.shape)
    top, left, height, width = box
    part = _resized(image[top : top + height, left : left + width], goal, wanted)
    if not crop.flip:
        return part
    if part.shape[2] > _MOST_BANDS_OF_OPENCV:
        return np.ascontiguousarray(part[:, ::-1])
    flipped: NDArray[Any] = opencv.load().flip(part, 1)
    return flipped.reshape(part.shape)


def _resized(image: NDArray[Any], goal: tuple[int, int], wanted: Wanted) -> NDArray[Any]:
    if image.shape[:2] == goal:
        return image
    if wanted.interpolation == "nearest" and max(*image.shape[:2], *goal) > _MOST_SIDE_OF_NEAREST:
        raise ContentError(
            f'an image of at most {_MOST_SIDE_OF_NEAREST:,} pixels a side for "nearest"',
            f"one of {image.shape[0]} x {image.shape[1]}, resized to {goal[0]} x {goal[1]}",
        )
    if wanted.interpolation == "area":  # OpenCV averages only if no side grows.
        shrunk = min(goal[0], image.shape[0]), min(goal[1], image.shape[1])
        image = image if shrunk == goal else _resized(image, shrunk, wanted)
    cv2 = opencv.load()
    how = getattr(cv2, INTERPOLATIONS[wanted.interpolation])
    try:
        resized: NDArray[Any] = cv2.resize(image, goal[::-1], interpolation=how)
    except cv2.error as error:
        is_area = wanted.interpolation == "area"
        most = _MOST_BANDS_OF_AREA if is_area else _MOST_BANDS_OF_OPENCV
        bands = image.shape[2]
        if bands > most:
            parts = [image[:, :, at : at + most] for at in range(0, bands, most)]
            return np.concatenate([_resized(part, goal, wanted) for part in parts], axis=2)
        raise ContentError(
            "an image that OpenCV resizes", f"{image.dtype} {image.shape}: {error}"
        ) from error
    return resized.reshape(*goal, image.shape[2])


def decoded(buffer: memoryview | bytes, wanted: Wanted, factor: int = 1) -> NDArray[Any]:
    """Decode a whole image, (height, width, channels); a JPEG at 1 / ``factor`` of its size."""
    head = bytes(buffer[:8])
    if head.startswith(_JPEG):
        image = _regular(_jpeg, buffer, factor, wanted.channels in (1, None))
    elif head.startswith(npy.MAGIC):
        image = npy.read(buffer)
    elif head == png.MAGIC:
        image = png.decode(buffer, wanted.indices)
    elif head.startswith(pillow.JPEG2000_MAGICS):
        image = pillow.jpeg2000(buffer)
    else:
        image = formats.decode(buffer, wanted.indices)
    return fitted(image, wanted)


def _regular(read: Callable[..., _T], buffer: memoryview | bytes, *arguments: Any) -> _T:
    """Read a JPEG, also a whole one that libjpeg warns of.

    A warning may be the only sign of damage, and libjpeg tells the first one alone. So its cause is
    removed, and the result is read as strictly as any other JPEG.
    """
    try:
        return read(buffer, *arguments)
    except ContentError as error:
        regular = _without_cause(bytes(buffer), error.found)
        if regular == buffer:
            raise
    return _regular(read, regular, *arguments)


def _without_cause(content: bytes, warning: str) -> bytes:
    """Remove a warning's cause; return the same bytes if it may be damage.

    Only zeros before a marker are padding; damaged data may have left over others.
    """
    if "unknown JFIF revision" in warning:
        return _JFIF_VERSION.sub(b"\\g<1>\1", content)
    if "Invalid SOS parameters for sequential" in warning:
        return _SCAN_PARAMETERS.sub(b"\\g<1>\0\x3f\0", content)
    if "extraneous bytes before marker" not in warning:
        return content
    end = 2 + sum(4 + len(data) for _, data in exif.jpeg_segments(memoryview(content)))
    segment = content[end:].lstrip(b"\0")
    is_scan = end + len(segment) == len(content)
    return content[:end] + (_PADDING.sub(b"", segment) if is_scan else segment)


def _jpeg(buffer: memoryview | bytes, factor: int, keeps_grey: bool = False) -> NDArray[np.uint8]:
    """Decode a JPEG at 1 / ``factor`` of its size, rounded up; 1, 2, 4 or 8."""
    height, width, colour_space = _jpeg_header(buffer)
    if colour_space is None:
        if bytes(buffer[-2:]) != _END_OF_JPEG:  # OpenCV makes the rest grey.
            raise ContentError("a JPEG image", "a damaged one: the last marker isn't its end")
        flag = f"IMREAD_REDUCED_COLOR_{factor}" if factor > 1 else "IMREAD_COLOR"
        return opencv.decode(buffer, flag)
    height, width = -(-height // factor), -(-width // factor)
    kind = "RGB" if colour_space in _COLOURS else "CMYK"
    if colour_space == "Gray" and keeps_grey:
        kind = "GRAY"
    try:
        image: NDArray[np.uint8] = simplejpeg().decode_jpeg(
            buffer,
            kind,
            min_height=height if factor > 1 else 0,
            min_width=width if factor > 1 else 0,
        )
    except ValueError as error:
        raise ContentError("a JPEG image", f"a damaged one: {error}") from error
    if kind != "CMYK":
        return image
    # As in OpenCV, and so in MXNet: stored values are inverted, 255 for no ink.
    cv2 = opencv.load()
    *inks, black = cv2.split(image)
    wide = black.astype(np.uint16)
    colours = [black - ((255 - ink) * wide >> 8).astype(np.uint8) for ink in inks]
    return np.asarray(cv2.merge(colours))


def _jpeg_header(buffer: memoryview | bytes) -> tuple[int, int, str | None]:
    """Read height, width and colour space, None if libjpeg-turbo's API lacks the subsampling."""
    try:
        height, width, colour_space, _ = simplejpeg().decode_jpeg_header(buffer)
    except (KeyError, ValueError) as error:
        segments = exif.jpeg_segments(memoryview(buffer))
        frame = next((data for marker, data in segments if marker in _FRAMES), b"")
        is_damaged = isinstance(error, ValueError) and _UNKNOWN_SUBSAMPLING not in str(error)
        if is_damaged or len(frame) < _SIZE.size:
            raise ContentError("a JPEG image", f"a damaged one: {error}") from error
        (height, width), colour_space = _SIZE.unpack_from(frame), None
    check_size(height, width)
    return height, width, colour_space


@functools.cache
def simplejpeg() -> Any:
    """Import the binding of libjpeg-turbo."""
    return required("simplejpeg", "JPEG needs simplejpeg: pip install 'loader-adapters[images]'")
