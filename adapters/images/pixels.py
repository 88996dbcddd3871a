"""Decoding of one image of any kind into its row of an array.

JPEG goes through libjpeg-turbo (simplejpeg), at a half, a quarter or an eighth of the size if that
is still as large as the row. Arrays in NPY's format, in which raw images are stored, are read
without a copy. ``pillow`` decodes JPEG 2000, tifffile the TIFFs whose bands OpenCV doesn't read,
and OpenCV the rest. Damaged and truncated images are refused if that
can be detected, not decoded as far as they go: a JPEG whose decoder reports it, a PNG with a wrong
CRC, whatever OpenCV refuses. So are images that claim more than ``MOST_PIXELS``, and files of
several images.

All interpolations have half-pixel centres, so that an image and its mask stay aligned. Bilinear
without antialiasing is OpenCV's ``INTER_LINEAR``, as in MXNet. Nearest is its
``INTER_NEAREST_EXACT``, which takes the pixel that Pillow takes, or one as near. CMYK becomes RGB;
``bands`` converts other channels and more bits. EXIF orientation is ignored, as in MXNet and
TensorFlow, except for TIFFs, where OpenCV always applies it.
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
from adapters.images import exif, frames, npy, pillow, png, sizes, tiff
from adapters.images.bands import AS_STORED, PLAIN, Wanted, fitted
from adapters.images.geometry import Crop, reduced, reduction
from adapters.signatures import HEAD_BYTES, recognized

# 16,384 x 16,384, as in the kernel.
MOST_PIXELS = 1 << 28
_MOST_VALUES = 1 << 31
_JPEG = b"\xff\xd8\xff"
_COLOURS = {"Gray", "YCbCr", "RGB"}
INTERPOLATIONS = {
    "bilinear": "INTER_LINEAR",
    "nearest": "INTER_NEAREST_EXACT",
    "area": "INTER_AREA",
    "cubic": "INTER_CUBIC",
    "bicubic": "INTER_CUBIC",
}
"""OpenCV's name of each interpolation."""
# TIFF photometric interpretations.
_GREYS_TIFF, _RGB_TIFF, _PALETTE_TIFF, _CMYK_TIFF = (0, 1), 2, 3, 5
# TIFF extra sample: an alpha that the colours aren't multiplied by.
_UNASSOCIATED = 2
# TIFF sample formats; below, with their bits.
_UNSIGNED, _SIGNED, _FLOATING = 1, 2, 3
_READ_BY_OPENCV = {(_UNSIGNED, 8), (_UNSIGNED, 16), (_FLOATING, 32), (_FLOATING, 64)} | {
    (_SIGNED, bits) for bits in (8, 16, 32)
}


def size_of(buffer: memoryview | bytes) -> tuple[int, int]:
    """Read height and width of an encoded image, from its header if that is easy to read.

    Raises:
        ContentError: This is no image.
    """
    head = bytes(buffer[:8])
    if head.startswith(_JPEG):
        height, width, *_ = _jpeg_header(buffer)
    elif head == png.MAGIC:
        height, width = png.size_of(buffer)
    elif head.startswith(pillow.JPEG2000_MAGICS):
        height, width = pillow.jpeg2000_size(buffer)
    elif not tiff.is_tiff(buffer) and (claimed := sizes.size_in_header(buffer)) is not None:
        height, width = claimed
    else:  # TIFFs, too: OpenCV may turn them.
        height, width = _decoded(buffer, AS_STORED).shape[:2]
        if not (height and width):
            raise ContentError("an image", f"one of {height} x {width} pixels")
        return height, width
    _check_size(height, width)
    return height, width


def decode(buffer: memoryview | bytes) -> NDArray[Any]:
    """Decode an image.

    Returns:
        uint8 (height, width, 3), RGB; an array in NPY's format as it is, without a copy.

    Raises:
        ContentError: This is no image, it is damaged or too large, or bits, bands or pages would
            be lost.
    """
    if bytes(buffer[:8]).startswith(npy.MAGIC):
        return npy.read(buffer)
    return _decoded(buffer, PLAIN)


def stored(buffer: memoryview | bytes) -> NDArray[Any]:
    """Decode an image with all its bits and channels.

    Returns:
        ``(height, width, channels)``: grey, grey and alpha, RGB, RGBA, or other bands; an array in
        NPY's format as it is, without a copy.

    Raises:
        ContentError: This is no image, or it is damaged, too large or of several pages.
    """
    if bytes(buffer[:8]).startswith(npy.MAGIC):
        return npy.read(buffer)
    return _decoded(buffer, AS_STORED)


def cropped(
    buffer: memoryview | bytes,
    crop: Crop,
    goal: tuple[int, int],
    wanted: Wanted,
    row: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Decode a crop of an image.

    Args:
        buffer: The encoded image.
        crop: The crop.
        goal: Height and width of the result.
        wanted: Its channels, dtype and interpolation.
        row: Overwritten completely if given: (*goal, channels) of the dtype, contiguous.

    Returns:
        ``row`` if given, else (*goal, channels), of the requested dtype; 8-bit images stay uint8
        for float32.

    Raises:
        ContentError: This is no image, it is damaged, or data would be lost.
    """
    head = bytes(buffer[:8])
    factor = 1
    if head.startswith(_JPEG) and wanted.interpolation == "bilinear":
        factor = reduction(crop, goal)
    image = _decoded(buffer, wanted, factor)
    if factor == 1 and image.shape[:2] != crop.image:
        height, width, _ = image.shape
        claimed = " x ".join(map(str, crop.image))
        raise ContentError(f"an image of {claimed} pixels", f"one of {height} x {width}")
    box = crop.box
    if crop.resized is not None:
        _, _, height, width = reduced((0, 0, *crop.image), factor, image.shape)
        image = image[:height, :width]
        if image.shape[:2] != crop.resized:
            image = _resized(image, crop.resized, wanted)
    else:
        box = reduced(box, factor, image.shape)
    top, left, height, width = box
    part = image[top : top + height, left : left + width]
    if part.shape[:2] != goal:
        part = _resized(part, goal, wanted, row)
    if row is None:
        return np.ascontiguousarray(part[:, ::-1] if crop.flip else part)
    if part is not row:
        row[...] = part
    if crop.flip:
        row[...] = _cv2().flip(row, 1).reshape(row.shape)
    return row


def _resized(
    image: NDArray[Any], goal: tuple[int, int], wanted: Wanted, row: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Resize an image, into the row if OpenCV can write there."""
    cv2 = _cv2()
    how = getattr(cv2, INTERPOLATIONS[wanted.interpolation])
    row = row if image.shape[2:] == (3,) else None
    try:
        resized: NDArray[Any] = cv2.resize(image, goal[::-1], dst=row, interpolation=how)
    except cv2.error as error:
        raise ContentError(
            "an image that OpenCV resizes", f"{image.dtype} {image.shape}: {error}"
        ) from error
    return resized if row is not None else resized.reshape(*goal, image.shape[2])


def _decoded(buffer: memoryview | bytes, wanted: Wanted, factor: int = 1) -> NDArray[Any]:
    """Decode a whole image, (height, width, channels); a JPEG at 1 / ``factor`` of its size."""
    head = bytes(buffer[:8])
    if head.startswith(_JPEG):
        image = _jpeg(buffer, factor, wanted.channels in (1, None))
    elif head.startswith(npy.MAGIC):
        image = npy.read(buffer)
    elif head == png.MAGIC:
        size_of(buffer)
        image = _png(buffer, wanted)
    elif head.startswith(pillow.JPEG2000_MAGICS):
        size_of(buffer)
        image = pillow.jpeg2000(buffer)
    else:
        image = _other(buffer, wanted)
    return fitted(image, wanted)


def _jpeg(buffer: memoryview | bytes, factor: int, keeps_grey: bool = False) -> NDArray[np.uint8]:
    """Decode a JPEG at 1 / ``factor`` of its size, rounded up; 1, 2, 4 or 8."""
    height, width, colour_space = _jpeg_header(buffer)
    _check_size(height, width)
    height, width = -(-height // factor), -(-width // factor)
    kind = "RGB" if colour_space in _COLOURS else "CMYK"
    if colour_space == "Gray" and keeps_grey:
        kind = "GRAY"
    try:
        image: NDArray[np.uint8] = _simplejpeg().decode_jpeg(
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
    black = image[:, :, 3:].astype(np.uint16)
    return (black - ((255 - image[:, :, :3]) * black >> 8)).astype(np.uint8)


def _jpeg_header(buffer: memoryview | bytes) -> tuple[int, int, str]:
    """Read height, width and colour space."""
    try:
        height, width, colour_space, _ = _simplejpeg().decode_jpeg_header(buffer)
    except KeyError as error:
        raise ContentError("a JPEG image", f"one with unusual subsampling: {error}") from error
    except ValueError as error:
        raise ContentError("a JPEG image", f"a damaged one: {error}") from error
    return height, width, colour_space


def _png(buffer: memoryview | bytes, wanted: Wanted) -> NDArray[Any]:
    bits, kind = png.colours(buffer)
    if kind == png.PALETTE and wanted.indices:
        indices: NDArray[Any] = _by_opencv(png.as_grey(buffer))
        indices //= np.uint8(255 // ((1 << bits) - 1))
        return indices
    image = _by_opencv(png.still(buffer))
    if kind == png.GREY_ALPHA:
        return image[:, :, [0, 3]]
    transparent = png.transparent_grey(buffer) if kind == png.GREY else None
    if transparent is None:
        return image
    most = 255 if bits <= 8 else 65535
    level = transparent * (most // ((1 << bits) - 1))
    return np.stack([image, np.where(image == level, 0, most).astype(image.dtype)], axis=2)


def _other(buffer: memoryview | bytes, wanted: Wanted) -> NDArray[Any]:
    claimed = sizes.size_in_header(buffer)
    if claimed is not None:
        _check_size(*claimed)
    images = frames.count(buffer)
    if images > 1:
        raise ContentError(
            "a file of one image (a function as decode= makes one array of several)",
            f"one of {images} pages or frames",
        )
    indices = pillow.indices(buffer) if wanted.indices else None
    if indices is not None:
        return indices
    return _tiff(buffer) if tiff.is_tiff(buffer) else _by_opencv(buffer)


def _tiff(buffer: memoryview | bytes) -> NDArray[Any]:
    """Decode a TIFF upright, by OpenCV if it reads all of it, else by tifffile."""
    tags = tiff.numbers(next(tiff.directories(buffer), []))
    bands, bits = tags.get(tiff.SAMPLES, 1), tags.get(tiff.BITS, 1)
    colours = tags.get(tiff.PHOTOMETRIC)
    number = tags.get(tiff.FORMAT, _UNSIGNED)
    is_usual = bands == 1 or (bands == 3 and colours not in _GREYS_TIFF)
    is_usual = is_usual and bits <= 8 and number == _UNSIGNED
    if is_usual or colours in (_PALETTE_TIFF, _CMYK_TIFF):
        image = _by_opencv(buffer, "IMREAD_COLOR")
        return image[:, :, :1] if bands == 1 and colours != _PALETTE_TIFF else image
    is_together = bands == 1 or tags.get(tiff.PLANAR, 1) == 1
    is_read = bands == 1 or (bands in (3, 4) and colours == _RGB_TIFF)
    is_read = is_read or (bands == 3 and number == _FLOATING)
    if is_read and is_together and (number, bits) in _READ_BY_OPENCV:
        image = _by_opencv(buffer)
        # OpenCV multiplies 8-bit colours by their alpha.
        is_multiplied = bands == 4 and bits == 8 and tags.get(tiff.EXTRA) == _UNASSOCIATED
        if is_multiplied and not (image[:, :, 3] == 255).all():
            return pillow.rgba_of_tiff(buffer)
        return image
    return _by_tifffile(buffer, tags)


def _by_tifffile(buffer: memoryview | bytes, tags: dict[int, int]) -> NDArray[Any]:
    bands = tags.get(tiff.SAMPLES, 1)
    if tags.get(tiff.HEIGHT, 0) * tags.get(tiff.WIDTH, 0) * bands > _MOST_VALUES:
        raise ContentError(f"a TIFF of at most {_MOST_VALUES:,} values", f"one of {bands} bands")
    try:
        module = importlib.import_module("tifffile")
    except ImportError:
        raise ImportError(
            f"a TIFF of {bands} bands of {tags.get(tiff.BITS, 1)} bits needs tifffile: "
            "pip install tifffile"
        ) from None
    try:
        with module.TiffFile(io.BytesIO(buffer)) as file:
            page = file.pages[0]
            image = page.asarray()
    except Exception as error:
        raise ContentError("a TIFF image", f"what tifffile refuses: {error}") from error
    image = np.moveaxis(image, 0, -1) if page.axes == "SYX" else image
    return exif.upright(image, tags.get(tiff.ORIENTATION, 1))


def _check_size(height: int, width: int) -> None:
    if not 0 < height * width <= MOST_PIXELS:
        raise ContentError(
            f"an image of 1 to {MOST_PIXELS:,} pixels", f"one of {height} x {width} pixels"
        )


def _by_opencv(buffer: memoryview | bytes, flag: str = "IMREAD_UNCHANGED") -> NDArray[Any]:
    """Decode as stored, or as 8-bit RGB with the flag for that."""
    cv2 = _cv2()
    encoded = np.frombuffer(buffer, np.uint8)
    flags = getattr(cv2, flag) | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image: NDArray[Any] | None = cv2.imdecode(encoded, flags) if len(encoded) else None
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
    if image.shape[2:] == (3,) and image.dtype != np.float64:
        cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=image)
    elif image.ndim == 3:
        image = np.ascontiguousarray(image[:, :, [2, 1, 0, 3][: image.shape[2]]])
    return image


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
