"""Images that are neither JPEG, PNG, JPEG 2000 nor NPY: checks of headers, then a decoder.

OpenCV decodes them, but tifffile the TIFFs whose bands OpenCV doesn't read, and Pillow GIFs, some
BMPs, some TIFFs and indices of palettes. OpenCV takes the first of several images, so their number
is read from the header before; of a TIFF, which may be compressed to a fraction, its size, too.

Source: the WebP Container Specification.
"""

from __future__ import annotations

import io
import math
import re
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images import exif, opencv, pillow, tiff
from adapters.lazily import required

# BMPs that OpenCV may misread or refuse: of OS/2, of run lengths, of 16 bits with a larger header.
_BY_PILLOW = re.compile(rb"BM.{12}(?:\x0c|.{16}[\x01\x02]|(?!\x28).{14}\x10\0\x03)", re.DOTALL)
# A BMP of 8 bits or less.
_INDEXED = re.compile(rb"BM.{12}(?:\x0c\0{3}.{6}|(?!\x0c).{14})[\x01-\x08]\0", re.DOTALL)
# TIFF photometric interpretations.
_GREYS, _RGB, _PALETTE, _CMYK = (0, 1), 2, 3, 5
# TIFF extra sample: an alpha that the colours aren't multiplied by.
_UNASSOCIATED = 2
# TIFF sample formats; below, with their bits.
_UNSIGNED, _SIGNED, _FLOATING = 1, 2, 3
_READ_BY_OPENCV = {(_UNSIGNED, 8), (_UNSIGNED, 16), (_FLOATING, 32), (_FLOATING, 64)} | {
    (_SIGNED, bits) for bits in (8, 16, 32)
}
_MOST_VALUES = 1 << 31


def decode(buffer: memoryview | bytes, indices: bool) -> NDArray[Any]:
    """Decode an image as stored; ``indices`` asks for those of a palette, if it has one."""
    view = memoryview(buffer)
    if tiff.is_tiff(view):
        return _tiff(buffer, indices)
    head = bytes(view[:16])
    if head[:4] == b"RIFF" and head[8:] == b"WEBPVP8X":
        opencv.check_one(sum(name == b"ANMF" for name, _ in exif.riff_chunks(view)))
    plugin = "Gif" if head[:4] == b"GIF8" else "Bmp"
    if plugin == "Gif" or _BY_PILLOW.match(view) or (indices and _INDEXED.match(view)):
        return pillow.decode(buffer, plugin, indices)
    return opencv.decode(buffer)


def _tiff(buffer: memoryview | bytes, indices: bool) -> NDArray[Any]:
    """Decode the first page upright, by OpenCV if it reads all of it, else by tifffile."""
    try:
        tags, pages = tiff.first_page(buffer)
        height, width = tags.get(tiff.HEIGHT, 0), tags.get(tiff.WIDTH, 0)
        if height is None or width is None:
            raise ValueError("a size that is no integer")
        bands, bits = tags.get(tiff.SAMPLES) or 1, tags.get(tiff.BITS) or 1
        is_together = bands == 1 or (tags.get(tiff.PLANAR) or 1) == 1
    except (struct.error, ValueError) as error:
        raise ContentError("a TIFF image", f"a damaged one: {error}") from error
    opencv.check_size(height, width)
    opencv.check_one(pages)
    colours = tags.get(tiff.PHOTOMETRIC)
    is_narrow = bits == 2 or (bits == 4 and colours != _PALETTE)  # OpenCV refuses these.
    if is_narrow or (indices and colours == _PALETTE):
        return pillow.decode(buffer, "Tiff", indices)
    number = tags.get(tiff.FORMAT) or _UNSIGNED
    is_cmyk = bands == 4 and colours == _CMYK
    is_usual = bands == 1 or (bands == 3 and colours not in _GREYS)
    is_usual = is_usual and bits <= 8 and number == _UNSIGNED
    is_usual = is_usual or (is_cmyk and (number, bits) != (_UNSIGNED, 16))
    # OpenCV makes zeros of bands that are missing, if each is stored apart.
    if colours == _PALETTE or (is_usual and is_together):
        image = opencv.decode(buffer, "IMREAD_COLOR")
        return image[:, :, :1] if bands == 1 and colours != _PALETTE else image
    is_read = bands == 1 or (bands in (3, 4) and colours == _RGB)
    is_read = is_read or (bands == 3 and number == _FLOATING)
    if is_read and is_together and (number, bits) in _READ_BY_OPENCV:
        image = opencv.decode(buffer)
        # OpenCV multiplies 8-bit colours by their alpha.
        is_multiplied = bands == 4 and bits == 8 and tags.get(tiff.EXTRA) == _UNASSOCIATED
        if is_multiplied and not (image[:, :, 3] == 255).all():
            return pillow.decode(buffer, "Tiff", False)
        return image
    shape = (height, width, bands) if bands > 1 else (height, width)
    image = _by_tifffile(buffer, shape, bits)
    image = exif.upright(image, tags.get(tiff.ORIENTATION) or 1)
    if not is_cmyk:
        return image
    if image.dtype.kind != "u":
        raise ContentError("CMYK as unsigned integers", f"{image.dtype}")
    # As OpenCV does.
    most = np.iinfo(image.dtype).max
    light = most - image.astype(np.uint32)
    return (light[:, :, :3] * light[:, :, 3:] // most).astype(image.dtype)


def _by_tifffile(buffer: memoryview | bytes, shape: tuple[int, ...], bits: int) -> NDArray[Any]:
    if math.prod(shape) > _MOST_VALUES:
        raise ContentError(f"a TIFF of at most {_MOST_VALUES:,} values", f"one of {shape}")
    kind = f"a TIFF of {math.prod(shape[2:])} bands of {bits} bits"
    tifffile = required("tifffile", f"{kind} needs tifffile: pip install tifffile")
    try:
        with tifffile.TiffFile(io.BytesIO(buffer)) as file:
            page = file.pages[0]
            image = page.asarray()
        image = np.moveaxis(image, 0, -1) if page.axes == "SYX" else image
    except Exception as error:
        raise ContentError("a TIFF image", f"what tifffile refuses: {error}") from error
    if image.shape != shape:
        raise ContentError(f"a TIFF of {shape} values, as its tags say", f"one of {image.shape}")
    return np.asarray(image)
