"""Images that are neither JPEG, PNG, JPEG 2000 nor NPY: checks of headers, then a decoder.

OpenCV decodes them, but tifffile the TIFFs whose bands OpenCV doesn't read, and Pillow GIFs, some
BMPs and indices of palettes. OpenCV's own limit is 2^30 pixels, and of several images it takes the
first; so the size and the number of images are read from the header before, of all kinds that
``open_images`` finds.

Source: the WebP Container Specification.
"""

from __future__ import annotations

import importlib
import io
import re
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images import exif, opencv, pillow, tiff

_PNM = re.compile(rb"P[1-6fF](?:\s(?:\s|#[^\r\n]*[\r\n])*(\d+))(?:\s(?:\s|#[^\r\n]*[\r\n])*(\d+))")
# A BMP of OS/2, of which OpenCV doesn't tell colours from grey.
_OS2 = re.compile(rb"BM.{12}\x0c\0\0\0", re.DOTALL)
# A BMP of run lengths, some of which OpenCV misreads, or of 16 bits with masks in a larger header.
_BY_PILLOW = re.compile(rb"BM.{12}(?!\x0c)(?:.{16}[\x01\x02]|(?!\x28).{14}\x10\0\x03)", re.DOTALL)
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


def size_in_header(buffer: memoryview | bytes) -> tuple[int, int] | None:
    """Read height and width, and check them; None if that is left to the decoder."""
    view = memoryview(buffer)
    head = bytes(view[:32])
    try:
        if head.startswith(b"BM"):
            width, height = struct.unpack_from("<HH" if _OS2.match(head) else "<ii", view, 18)
            height = abs(height)
        elif _is_webp(head):
            # The size of a canvas; without one, there are at most 16,383 x 16,383.
            width, height = (int.from_bytes(head[at : at + 3], "little") + 1 for at in (24, 27))
        elif re.match(rb"P[1-6fF]\s", head):
            found = _PNM.match(view)
            if found is None:
                raise ValueError("no width and height behind its first letters")
            width, height = map(int, found.groups())
        else:
            return None
    except (struct.error, ValueError) as error:
        raise _damaged(error) from error
    opencv.check_size(height, width)
    return height, width


def _damaged(error: Exception) -> ContentError:
    return ContentError("an image whose header says how large it is", f"a damaged one: {error}")


def _is_webp(head: bytes) -> bool:
    """True for a WebP with a canvas."""
    return head[:4] == b"RIFF" and head[8:16] == b"WEBPVP8X"


def decode(buffer: memoryview | bytes, indices: bool) -> NDArray[Any]:
    """Decode an image as stored; ``indices`` asks for those of a palette, if it has one."""
    view = memoryview(buffer)
    if tiff.is_tiff(view):
        return _tiff(buffer, indices)
    size_in_header(view)
    head = bytes(view[:16])
    if _is_webp(head):
        opencv.check_one(sum(name == b"ANMF" for name, _ in exif.riff_chunks(view)))
    plugin = "Gif" if head[:4] == b"GIF8" else "Bmp"
    if plugin == "Gif" or _BY_PILLOW.match(view) or (indices and _INDEXED.match(view)):
        return pillow.decode(buffer, plugin, indices)
    return opencv.decode(buffer, "IMREAD_COLOR" if _OS2.match(view) else "IMREAD_UNCHANGED")


def _tiff(buffer: memoryview | bytes, indices: bool) -> NDArray[Any]:
    """Decode the first page upright, by OpenCV if it reads all of it, else by tifffile."""
    try:
        tags, pages = tiff.first_page(buffer)
        height, width = tags.get(tiff.HEIGHT, 0), tags.get(tiff.WIDTH, 0)
        if height is None or width is None:
            raise ValueError("a size that is no integer")
        bands, bits = tags.get(tiff.SAMPLES) or 1, tags.get(tiff.BITS) or 1
        is_together = bands == 1 or (tags.get(tiff.PLANAR) or 1) == 1
        # OpenCV makes zeros of bands that are missing, if each is stored apart.
        is_cut_short = not is_together and tiff.is_cut_short(buffer)
    except (struct.error, ValueError) as error:
        raise _damaged(error) from error
    opencv.check_size(height, width)
    opencv.check_one(pages)
    if is_cut_short:
        raise ContentError("a TIFF image", f"one cut short: {len(buffer)} bytes")
    colours = tags.get(tiff.PHOTOMETRIC)
    is_narrow = bits == 2 or (bits == 4 and colours != _PALETTE)  # OpenCV refuses these.
    if is_narrow or (indices and colours == _PALETTE):
        return pillow.decode(buffer, "Tiff", indices)
    number = tags.get(tiff.FORMAT) or _UNSIGNED
    is_usual = bands == 1 or (bands == 3 and colours not in _GREYS)
    is_usual = is_usual and bits <= 8 and number == _UNSIGNED
    is_cmyk = bands == 4 and colours == _CMYK
    if is_usual or colours == _PALETTE or (is_cmyk and (number, bits) != (_UNSIGNED, 16)):
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
    image = _by_tifffile(buffer, tags, bands, bits)
    if not is_cmyk:
        return image
    # As OpenCV does for 8 bits.
    light = 65_535 - image.astype(np.uint32)
    return (light[:, :, :3] * light[:, :, 3:] // 65_535).astype(np.uint16)


def _by_tifffile(
    buffer: memoryview | bytes, tags: tiff.Tags, bands: int, bits: int
) -> NDArray[Any]:
    if (tags.get(tiff.HEIGHT) or 0) * (tags.get(tiff.WIDTH) or 0) * bands > _MOST_VALUES:
        raise ContentError(f"a TIFF of at most {_MOST_VALUES:,} values", f"one of {bands} bands")
    try:
        module = importlib.import_module("tifffile")
    except ImportError:
        raise ImportError(
            f"a TIFF of {bands} bands of {bits} bits needs tifffile: pip install tifffile"
        ) from None
    try:
        with module.TiffFile(io.BytesIO(buffer)) as file:
            page = file.pages[0]
            image = page.asarray()
        image = np.moveaxis(image, 0, -1) if page.axes == "SYX" else image
    except Exception as error:
        raise ContentError("a TIFF image", f"what tifffile refuses: {error}") from error
    shape = tags.get(tiff.HEIGHT), tags.get(tiff.WIDTH), bands
    if image.shape != (shape if bands > 1 else shape[:2]):
        raise ContentError(f"a TIFF of {shape} values, as its tags say", f"one of {image.shape}")
    return exif.upright(image, tags.get(tiff.ORIENTATION) or 1)
