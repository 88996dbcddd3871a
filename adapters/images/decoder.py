"""``ImageDecoder``: from encoded images to rows of one array, as a network wants them."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.generators import RngOf
from adapters.images import drawn, kernel
from adapters.images.arguments import channels, dtype_of, interval, one_of, side, size_of_row
from adapters.images.geometry import Crop, cut, random_resized, short_side, whole
from adapters.images.pixels import MOST_PIXELS, decode_into, size_of

_CROPS = (None, "center", "random", "random_resized")
_LAYOUTS = ("NHWC", "NCHW")


class ImageDecoder:
    """Decodes, crops, resizes, flips and normalises images; ``decode=`` of ``open_records``.

    Resizing is bilinear, with half-pixel centres and without antialiasing; a JPEG that is to become
    at most half as large is decoded at a half, a quarter or an eighth of its size before; pictures
    that are stored raw or as YUV planes are not made smaller before. What EXIF says about the
    orientation is ignored; of a TIFF, OpenCV heeds it.

    Args:
        size: Height and width of the result, or one number for both; None leaves the images' own.
        crop: None resizes the whole image, whatever its aspect. ``"center"`` and ``"random"`` cut a
            box of ``size`` out of it, after ``resize_short``; without that, or out of an image that
            is smaller, the largest box of that aspect. ``"random_resized"`` takes a box of random
            area, aspect and place.
        resize_short: Resize the shorter side to this many pixels first.
        area: For ``"random_resized"``: the least and the most part of the image.
        ratio: For ``"random_resized"``: the least and the most width / height.
        flip: Turn every other image, at random, left to right.
        dtype: ``"uint8"``, or ``"float32"``: also 0 to 255, before ``mean`` and ``std``.
        layout: Of a batch: ``"NHWC"`` or ``"NCHW"``.
        mean: To be subtracted, in the units of the pixels, 0 to 255; a number, or one per channel.
        std: To be divided by after that, likewise.

    Raises:
        TypeError: An argument of the wrong type.
        ValueError: An argument out of range, or two that exclude each other.

    Example:
        >>> from adapters import ImageDecoder
        >>> train = ImageDecoder(224, crop="random_resized", flip=True)
        >>> test = ImageDecoder(224, crop="center", resize_short=256)
        >>> test.shape
        (224, 224, 3)
    """

    def __init__(
        self,
        size: int | tuple[int, int] | None = None,
        *,
        crop: str | None = None,
        resize_short: int | None = None,
        area: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        flip: bool = False,
        dtype: str = "uint8",
        layout: str = "NHWC",
        mean: float | Sequence[float] | None = None,
        std: float | Sequence[float] | None = None,
    ) -> None:
        self.size = size_of_row(size)
        self.crop = one_of("crop", crop, _CROPS)
        self.resize_short = None if resize_short is None else side("resize_short", resize_short)
        self.area = interval("area", area)
        self.ratio = interval("ratio", ratio)
        if not isinstance(flip, (bool, np.bool_)):
            raise TypeError(f"flip must be True or False, got {flip!r}")
        self.flip = bool(flip)
        self.dtype = dtype_of(dtype)
        self.layout = one_of("layout", layout, _LAYOUTS)
        self.mean = channels("mean", mean)
        self.std = channels("std", std)
        self._check()

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of a result; None where it depends on the image."""
        if self.size is None:
            return None
        return (3, *self.size) if self.layout == "NCHW" else (*self.size, 3)

    @property
    def draws(self) -> bool:
        """Whether the result depends on random numbers."""
        return self.flip or self.crop in ("random", "random_resized")

    def crop_of(self, height: int, width: int, rng: np.random.Generator | None) -> Crop:
        """What is wanted of an image of this size.

        Raises:
            ContentError: It would be too large, resized.
        """
        crop = self._crop_of(height, width, rng)
        if crop.resized is not None and math.prod(crop.resized) > MOST_PIXELS:
            raise ContentError(
                f"an image of at most {MOST_PIXELS:,} pixels, resized",
                f"one of {height} x {width}, whose shorter side is to have {self.resize_short}",
            )
        return crop

    def _crop_of(self, height: int, width: int, rng: np.random.Generator | None) -> Crop:
        flip = self.flip and rng is not None and rng.random() < 0.5
        if self.crop == "random_resized":
            assert rng is not None
            return random_resized(height, width, self.area, self.ratio, flip, rng)
        if self.crop is not None:
            assert self.size is not None
            place = rng if self.crop == "random" else None
            return cut(height, width, self.size, self.resize_short, flip, place)
        crop = whole(height, width, flip)
        if self.resize_short is not None:
            height, width = short_side(height, width, self.resize_short)
            return crop._replace(resized=(height, width), height=height, width=width)
        return crop

    def decode(
        self,
        buffer: memoryview | bytes,
        rng: np.random.Generator | None = None,
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Decode one image.

        Args:
            buffer: The encoded image.
            rng: Draws crop and flip; needed where there is something to draw.
            out: The row to write, of ``shape`` and ``dtype``, contiguous; a new array otherwise.

        Returns:
            ``out``, or (height, width, 3), or (3, height, width), of ``dtype``.

        Raises:
            ContentError: Not an image, or a damaged one; a ValueError.
        """
        if self.draws and rng is None:
            raise ValueError("rng must be a numpy.random.Generator for a random crop or flip")
        crop = self.crop_of(*size_of(buffer), rng)
        if out is None:
            height, width = self.size or (crop.height, crop.width)
            shape = (3, height, width) if self.layout == "NCHW" else (height, width, 3)
            out = np.empty(shape, self.dtype)
        if self._by_kernel([buffer], [crop], [0], out[np.newaxis]):
            self._decode(buffer, crop, out)
        return out

    def decode_rows(
        self,
        buffers: Sequence[memoryview | bytes],
        rng_of: RngOf | None,
        rows: Sequence[int],
        out: NDArray[Any],
    ) -> list[tuple[int, Exception]]:
        """Decode images into rows of a batch, as many as can be in one call without the GIL.

        Args:
            buffers: The encoded images.
            rng_of: The generator of an image by its place in ``buffers``, good until the next is
                asked for; None where nothing is drawn.
            rows: Which row of ``out`` is whose.
            out: ``(rows, *shape)`` of ``dtype``, contiguous.

        Returns:
            Which images couldn't be decoded, by their place in ``buffers``, and why.
        """
        if self.draws and rng_of is None:
            raise ValueError("rng_of must give generators for a random crop or flip")
        left = self._drawn(buffers, None, rng_of, rows, out)
        if not left:
            return []
        return self._one_by_one(left, [buffers[place] for place in left], rng_of, rows, out)

    def decode_pieces(
        self,
        buffers: Sequence[memoryview | bytes],
        pieces: NDArray[np.int64],
        rng_of: RngOf | None,
        rows: NDArray[np.int64],
        out: NDArray[Any],
    ) -> list[tuple[int, Exception]]:
        """As ``decode_rows``, of images that are known by where they lie in buffers.

        Args:
            buffers: What holds the images: whole files, say.
            pieces: Of each image, the number of its buffer, its first byte and its size, int64
                ``(images, 3)``.
            rng_of: As ``decode_rows`` has it, by the place in ``pieces``.
            rows: Which row of ``out`` is whose.
            out: ``(rows, *shape)`` of ``dtype``, contiguous.

        Returns:
            Which images couldn't be decoded, by their place in ``pieces``, and why.
        """
        left = self._drawn(buffers, pieces, rng_of, rows, out)
        if not left:
            return []
        found = pieces[left].tolist()
        encoded = [memoryview(buffers[n])[begin : begin + size] for n, begin, size in found]
        if type(self) is ImageDecoder:
            return self._one_by_one(left, encoded, rng_of, rows, out)
        own = rng_of and (lambda at: rng_of(left[at]))
        failures = self.decode_rows(encoded, own, rows[left].tolist(), out)
        return [(left[at], error) for at, error in failures]

    def _drawn(
        self,
        buffers: Sequence[memoryview | bytes],
        pieces: NDArray[np.int64] | None,
        rng_of: RngOf | None,
        rows: Sequence[int] | NDArray[np.int64],
        out: NDArray[Any],
    ) -> Sequence[int]:
        """Have the kernel do what it can by itself; the places of the other images."""
        fits = out.flags.c_contiguous and (out.shape[1:], out.dtype) == (self.shape, self.dtype)
        if type(self) is not ImageDecoder or not fits:
            return range(len(rows))
        cut = _CROPS.index(self.crop)
        asked = drawn.asked_of(cut, self.resize_short, self.area, self.ratio, self.flip)
        table = None if self.dtype == np.uint8 else self._table
        into = drawn.Into(out, self.layout == "NCHW", table)
        return drawn.decode(buffers, pieces, rng_of if self.draws else None, rows, asked, into)

    def _one_by_one(
        self,
        places: Sequence[int],
        buffers: Sequence[memoryview | bytes],
        rng_of: RngOf | None,
        all_rows: Sequence[int] | NDArray[np.int64],
        out: NDArray[Any],
    ) -> list[tuple[int, Exception]]:
        """Draw what is wanted of these images, then decode them, by the kernel or otherwise."""
        rows = [int(all_rows[place]) for place in places]
        crops: list[Crop | None] = []
        failures: list[tuple[int, Exception]] = []
        for at, size in enumerate(kernel.sizes(buffers)):
            try:
                rng = rng_of(places[at]) if rng_of is not None else None
                crops.append(self.crop_of(*(size or size_of(buffers[at])), rng))
            except Exception as error:
                crops.append(None)
                failures.append((places[at], error))
        for at in self._by_kernel(buffers, crops, rows, out):
            crop = crops[at]
            assert crop is not None
            try:
                self._decode(buffers[at], crop, out[rows[at]])
            except Exception as error:
                failures.append((places[at], error))
        return failures

    def _by_kernel(
        self,
        buffers: Sequence[memoryview | bytes],
        crops: Sequence[Crop | None],
        rows: Sequence[int],
        out: NDArray[Any],
    ) -> list[int]:
        """Which images the kernel left undone."""
        table = None if self.dtype == np.uint8 else self._table
        return kernel.decode_rows(buffers, crops, rows, out, self.layout == "NCHW", table)

    def _decode(self, buffer: memoryview | bytes, crop: Crop, out: NDArray[Any]) -> None:
        if self.layout == "NHWC" and self.dtype == np.uint8:
            decode_into(buffer, crop, out)
            return
        channels_last = out.transpose(1, 2, 0) if self.layout == "NCHW" else out
        pixels = np.empty(channels_last.shape, np.uint8)
        decode_into(buffer, crop, pixels)
        if self.dtype == np.uint8:
            channels_last[...] = pixels
            return
        for channel, values in enumerate(self._table):
            channels_last[:, :, channel] = values[pixels[:, :, channel]]

    @functools.cached_property
    def _table(self) -> NDArray[np.float32]:
        """What each of 256 values of a channel becomes, ``(3, 256)``."""
        table = np.arange(256, dtype=np.float32)[:, np.newaxis].repeat(3, 1)
        if self.mean is not None:
            table -= self.mean
        if self.std is not None:
            table /= self.std
        return np.ascontiguousarray(table.T)

    def __repr__(self) -> str:
        given = [repr(self.size)]
        for name, parameter in inspect.signature(ImageDecoder).parameters.items():
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                value = value.tolist()
            elif isinstance(value, np.dtype):
                value = value.name
            if name != "size" and value != parameter.default:
                given.append(f"{name}={value!r}")
        return f"ImageDecoder({', '.join(given)})"

    def _check(self) -> None:
        if self.crop is not None and self.size is None:
            raise ValueError(f"size must be given with crop={self.crop!r}: of what is cut out")
        whole_or_part = self.crop in ("center", "random") or (self.crop, self.size) == (None, None)
        if self.resize_short is not None and not whole_or_part:
            raise ValueError(
                'resize_short goes with crop="center" or "random", or without size, got '
                f"crop={self.crop!r}, size={self.size!r}"
            )
        if self.area[1] > 1:
            raise ValueError(f"area must be a part of the image, 0 to 1, got {self.area!r}")
        if self.dtype == np.uint8 and (self.mean is not None or self.std is not None):
            raise ValueError('mean and std need dtype="float32", got "uint8"')
        if self.std is not None and not (self.std > 0).all():
            raise ValueError(f"std must be > 0, got {self.std.tolist()!r}")
