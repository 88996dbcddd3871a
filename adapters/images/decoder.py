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
from adapters.images.arguments import (
    channels_of,
    dtype_of,
    interval,
    of_channels,
    one_of,
    side,
    size_of_row,
)
from adapters.images.bands import RGB, Wanted
from adapters.images.geometry import Crop, cut, random_resized, short_side, whole
from adapters.images.pixels import INTERPOLATIONS, MOST_PIXELS, cropped, size_of

_CROPS = (None, "center", "random", "random_resized")
_LAYOUTS = ("NHWC", "NCHW")


class ImageDecoder:
    """Decodes, crops, resizes, flips and normalises images; ``decode=`` of ``open_records``.

    Resizing is bilinear unless ``interpolation`` says otherwise, with half-pixel centres and
    without antialiasing; a JPEG that is to become at most half as large is decoded at a half, a
    quarter or an eighth of its size before; pictures that are stored raw or as YUV planes are not
    made smaller before. What EXIF says about the orientation is ignored; of a TIFF, OpenCV heeds
    it.

    Bits, channels and pages are lost only if that was asked for: 16 bits need ``dtype="uint16"`` or
    ``"float32"``; transparency ``channels=4``, or ``channels=3`` written out to drop it; other
    bands their number; anything else is an error that says so. A file of several pages or frames
    is one, too, for which ``decode=`` takes a function.

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
        dtype: ``"uint8"``; ``"uint16"``; or ``"float32"``, before ``mean`` and ``std``. The numbers
            are those stored, 0 to 255 or 0 to 65,535, or those of a floating-point TIFF, whatever
            the dtype; nothing is scaled.
        layout: Of a batch: ``"NHWC"`` or ``"NCHW"``.
        mean: To be subtracted, in the units of the pixels; a number, or one per channel.
        std: To be divided by after that, likewise.
        channels: 3, RGB, is also made of grey images, palettes and CMYK, and of RGBA that is
            opaque; written out, it drops an alpha that isn't. 1 makes grey of colours, and with
            ``interpolation="nearest"`` gives the indices of a palette, as masks have them. 4 is
            RGBA. Any other number takes images of just as many bands, None those of each image.
        interpolation: ``"bilinear"``; ``"nearest"``, for masks, whose pixels are class ids: no
            other values come out of it; ``"area"``; ``"cubic"`` or ``"bicubic"``.

    Raises:
        TypeError: An argument of the wrong type.
        ValueError: An argument out of range, or two that exclude each other.

    Example:
        >>> from adapters import ImageDecoder
        >>> train = ImageDecoder(224, crop="random_resized", flip=True)
        >>> test = ImageDecoder(224, crop="center", resize_short=256)
        >>> test.shape
        (224, 224, 3)
        >>> ImageDecoder(224, channels=1, interpolation="nearest").shape  # of a mask
        (224, 224, 1)
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
        channels: int | None = RGB,
        interpolation: str = "bilinear",
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
        self.channels = channels_of(channels)
        self.interpolation = one_of("interpolation", interpolation, tuple(INTERPOLATIONS))
        self.mean = of_channels("mean", mean, self.channels)
        self.std = of_channels("std", std, self.channels)
        self._check()

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of a result; None where it depends on the image."""
        if self.size is None or self.channels is None:
            return None
        return self._laid_out(self.size, int(self.channels))

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
            ``out``, or (height, width, channels), or (channels, height, width), of ``dtype``.

        Raises:
            ContentError: Not an image, or a damaged one, or one of which something would be lost;
                a ValueError.
        """
        if self.draws and rng is None:
            raise ValueError("rng must be a numpy.random.Generator for a random crop or flip")
        crop = self.crop_of(*size_of(buffer), rng)
        if out is None:
            goal = self.size or (crop.height, crop.width)
            if self.channels is None:
                return self._finished(cropped(buffer, crop, goal, self._wanted))
            out = np.empty(self._laid_out(goal, self.channels), self.dtype)
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
        if type(self) is not ImageDecoder or not fits or not self._wanted.by_kernel:
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
        if not self._wanted.by_kernel:
            return [place for place, crop in enumerate(crops) if crop is not None]
        table = None if self.dtype == np.uint8 else self._table
        return kernel.decode_rows(buffers, crops, rows, out, self.layout == "NCHW", table)

    def _decode(self, buffer: memoryview | bytes, crop: Crop, out: NDArray[Any]) -> None:
        channels_last = out.transpose(1, 2, 0) if self.layout == "NCHW" else out
        goal = channels_last.shape[0], channels_last.shape[1]
        if channels_last.flags.c_contiguous and self.dtype != np.float32:
            cropped(buffer, crop, goal, self._wanted, out)
        else:
            self._finished(cropped(buffer, crop, goal, self._wanted), out)

    def _finished(self, pixels: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Pixels in the layout, normalised."""
        channels = pixels.shape[2]
        for name in ("mean", "std"):
            given = getattr(self, name)
            if given is not None and given.size not in (1, channels):
                raise ContentError(
                    f"an image of {given.size} channels, as {name} has them", f"one of {channels}"
                )
        if out is None:
            out = np.empty(self._laid_out(pixels.shape[:2], channels), self.dtype)
        channels_last = out.transpose(1, 2, 0) if self.layout == "NCHW" else out
        values: Any = pixels
        if self.mean is not None:
            values = np.subtract(values, self.mean, dtype=np.float32)
        if self.std is not None:
            values = np.divide(values, self.std, dtype=np.float32)
        channels_last[...] = values
        return out

    def _laid_out(self, goal: tuple[int, ...], channels: int) -> tuple[int, ...]:
        """A shape in the layout."""
        return (channels, *goal) if self.layout == "NCHW" else (*goal, channels)

    @functools.cached_property
    def _wanted(self) -> Wanted:
        return Wanted(self.channels, self.dtype, self.interpolation)

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
            same_kind = type(value) is type(parameter.default)  # A 3 that was written out isn't.
            if name != "size" and (value != parameter.default or not same_kind):
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
        if self.dtype != np.float32 and (self.mean is not None or self.std is not None):
            raise ValueError(f'mean and std need dtype="float32", got "{self.dtype.name}"')
        if self.std is not None and not (self.std > 0).all():
            raise ValueError(f"std must be > 0, got {self.std.tolist()!r}")
