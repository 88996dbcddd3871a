"""``ImageDecoder``: decode images into rows of a network's input array."""

from __future__ import annotations

import copy
import functools
import inspect
import io
import math
import os
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import check_flag, check_integer
from adapters.errors import ContentError
from adapters.generators import RngOf
from adapters.images import kernel
from adapters.images.bands import RGB, Unwritten, Wanted
from adapters.images.geometry import Crop, cut, random_resized, short_side, whole
from adapters.images.opencv import MOST_PIXELS
from adapters.images.pixels import INTERPOLATIONS, cropped, decoded, is_jpeg, size_of

_CROPS = (None, "center", "random", "random_resized")
_LAYOUTS = ("NHWC", "NCHW")
_DTYPES = ("uint8", "uint16", "float32")


class ImageDecoder:
    """Decode, crop, resize, flip and normalise images; pass it to ``open_records(decode=...)``.

    Resizing is bilinear unless ``interpolation`` says otherwise, with half-pixel centres and
    without antialiasing. A JPEG that shrinks to half its size or less is first decoded at a half,
    a quarter or an eighth; raw images are not shrunk first. EXIF orientation is
    ignored, except in a TIFF, where OpenCV applies it.

    Bits, channels and pages are lost only on request. 16 bits need ``dtype="uint16"`` or
    ``"float32"``. Transparency needs ``channels=4``, or an explicit ``channels=3`` to drop it;
    other bands need their number. Anything else is an error that says so. A file of several pages
    or frames is an error, too; write a function for ``decode=`` to read one. An animated PNG and a
    JPEG with more behind it (MPO) are made to give their first image, and do. CMYK becomes RGB.

    Args:
        size: Height and width of the result, or one number for both; None keeps the images' own.
        crop: None resizes the whole image, whatever its aspect. ``"center"`` and ``"random"`` cut a
            box of ``size`` after ``resize_short``; without ``resize_short``, or if the image is
            smaller, the largest box of that aspect. ``"random_resized"`` takes a box of random
            area, aspect and position.
        resize_short: Resize the shorter side to this many pixels first.
        area: For ``"random_resized"``: least and most fraction of the image.
        ratio: For ``"random_resized"``: least and most width / height.
        flip: Flip each image left to right with probability 1/2.
        dtype: ``"uint8"``, ``"uint16"``, or ``"float32"``, which ``mean`` and ``std`` need. The
            values are those stored, whatever the dtype: 0 to 255, 0 to 65,535, or those of a
            floating-point TIFF. Nothing is scaled.
        layout: Layout of a batch, ``"NHWC"`` or ``"NCHW"``.
        mean: Subtracted from the pixels, in their units; a number, or one per channel.
        std: Divisor after that, likewise.
        channels: 3 (RGB) also converts grey, palette and CMYK images, and opaque RGBA; given
            explicitly, it drops any alpha. 1 converts colours to grey, and with
            ``interpolation="nearest"`` gives the indices of a palette, as masks need. 4 is RGBA.
            Any other number takes only images of that many bands; None keeps each image's own.
        interpolation: ``"bilinear"``; ``"nearest"``, for masks of class ids, as it makes no new
            values; ``"area"``; ``"cubic"`` or ``"bicubic"``.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range, or two exclude each other.

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
        self.size = _size_of_row(size)
        self.crop = _one_of("crop", crop, _CROPS)
        if resize_short is not None:
            resize_short = check_integer("resize_short", resize_short, 1, " pixel")
        self.resize_short = resize_short
        self.area = _interval("area", area)
        self.ratio = _interval("ratio", ratio)
        check_flag("flip", flip)
        self.flip = bool(flip)
        self.dtype: np.dtype[Any] = np.dtype(_one_of("dtype", _name_of(dtype), _DTYPES))
        self.layout = _one_of("layout", layout, _LAYOUTS)
        if channels is not None and not isinstance(channels, Unwritten):
            channels = check_integer("channels", channels, 1, ", or None for those stored")
        self.channels = channels
        self.interpolation = _one_of("interpolation", interpolation, tuple(INTERPOLATIONS))
        self.mean = _of_channels("mean", mean, self.channels)
        self.std = _of_channels("std", std, self.channels)
        self._wanted = Wanted(self.channels, self.dtype, self.interpolation)
        self._check()

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of a result; None if it depends on the image."""
        if self.size is None or self.channels is None:
            return None
        return self._laid_out(self.size, int(self.channels))

    @property
    def draws(self) -> bool:
        """True if the result depends on random numbers."""
        return self.flip or self.crop in ("random", "random_resized")

    def crop_of(self, height: int, width: int, rng: np.random.Generator | None) -> Crop:
        """Compute the crop of an image of this size; ``ContentError`` if it gets too large."""
        flip = self.flip and rng is not None and rng.random() < 0.5
        if self.crop == "random_resized":
            assert rng is not None
            return random_resized(height, width, self.area, self.ratio, flip, rng)
        if self.crop is not None:
            assert self.size is not None
            place = rng if self.crop == "random" else None
            crop = cut(height, width, self.size, self.resize_short, flip, place)
        else:
            crop = whole(height, width, flip)
            if self.resize_short is not None:
                resized = short_side(height, width, self.resize_short)
                crop = crop._replace(resized=resized, height=resized[0], width=resized[1])
        if crop.resized is not None and math.prod(crop.resized) > MOST_PIXELS:
            raise ContentError(
                f"an image of at most {MOST_PIXELS:,} pixels, resized",
                f"one of {height} x {width}, whose shorter side is to have {self.resize_short}",
            )
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
            rng: Generator for crop and flip; required if either is random.
            out: Row to write, of ``shape`` and ``dtype``, contiguous; by default a new array.

        Returns:
            ``out``, or (height, width, channels), or (channels, height, width), of ``dtype``.

        Raises:
            ContentError: A ValueError: this is no image, it is damaged, or data would be lost.
        """
        if self.draws and rng is None:
            raise ValueError("rng must be a numpy.random.Generator for a random crop or flip")
        # Only a part of a JPEG may be decoded, so its crop comes first.
        by_kernel = self._wanted.by_kernel and bytes(buffer[:1]) in kernel.FIRST_BYTES
        image = None if by_kernel or is_jpeg(buffer) else decoded(buffer, self._wanted)
        height, width = size_of(buffer) if image is None else image.shape[:2]
        crop = self.crop_of(height, width, rng)
        goal = self.size or (crop.height, crop.width)
        if out is not None:
            height, width = out.shape[1:] if self.layout == "NCHW" else out.shape[:2]
            goal = height, width
        elif self.channels is not None:
            out = np.empty(self._laid_out(goal, self.channels), self.dtype)
        if out is not None and by_kernel:
            target = self._target(out[np.newaxis])
            if target is not None and kernel.decode_crop(buffer, crop, target):
                return out
        pixels = cropped(buffer, crop, goal, self._wanted, image)
        channels = pixels.shape[2]
        for name, given in (("mean", self.mean), ("std", self.std)):
            if given is not None and given.size not in (1, channels):
                raise ContentError(
                    f"an image of {given.size} channels, as {name} has them", f"one of {channels}"
                )
        if out is None:
            out = np.empty(self._laid_out(goal, channels), self.dtype)
        values = self._normalised(pixels)
        out[...] = values.transpose(2, 0, 1) if self.layout == "NCHW" else values
        return out

    def decode_rows(
        self,
        buffers: Sequence[kernel.Encoded],
        rng_of: RngOf | None,
        rows: Sequence[int] | NDArray[np.int64],
        out: NDArray[Any],
        pieces: NDArray[np.int64] | None = None,
    ) -> list[tuple[int, Exception]]:
        """Decode images into rows of a batch, as many as possible in one call without the GIL.

        Args:
            buffers: The encoded images, or what holds them; with ``pieces``, also files that were
                opened with ``buffering=0``, which are read image by image.
            rng_of: Returns the generator of an image by its index in ``rows``.
            rows: Row of ``out`` for each image.
            out: ``(rows, *shape)`` of ``dtype``, contiguous.
            pieces: Buffer number, first byte and size of each image, int64 ``(images, 3)``.

        Returns:
            Index in ``rows`` and error of each image that couldn't be decoded.
        """
        if self.draws and rng_of is None:
            raise ValueError("rng_of must give generators for a random crop or flip")
        left, own, target = None, type(self), self._target(out)
        is_plain = own.crop_of is ImageDecoder.crop_of and own.decode is ImageDecoder.decode
        if is_plain and target is not None and out.shape[1:] == self.shape:
            cut = _CROPS.index(self.crop)
            settings = kernel.settings_of(cut, self.resize_short, self.area, self.ratio, self.flip)
            drawn_from = rng_of if self.draws else None
            left = kernel.decode(buffers, pieces, drawn_from, rows, settings, target)
        failures: list[tuple[int, Exception]] = []
        for at in range(len(rows)) if left is None else left:
            row = out[rows[at]]
            try:
                rng = None if rng_of is None else rng_of(at)
                image = self.decode(_piece(buffers, at, pieces), rng, row)
                if image is not row:
                    np.copyto(row, image)
            except Exception as error:
                failures.append((at, error))
        return failures

    def _target(self, out: NDArray[Any]) -> kernel.Target | None:
        """Return rows that the kernel can write; None if it can't."""
        is_writable = out.flags.c_contiguous and out.flags.writeable and out.dtype == self.dtype
        if not (self._wanted.by_kernel and is_writable):
            return None
        table = None if self.dtype == np.uint8 else self._table
        return kernel.Target(out, self.layout == "NCHW", table)

    def _laid_out(self, goal: tuple[int, ...], channels: int) -> tuple[int, ...]:
        return (channels, *goal) if self.layout == "NCHW" else (*goal, channels)

    @functools.cached_property
    def _table(self) -> NDArray[np.float32]:
        """Normalised value of each of a channel's 256 values, ``(3, 256)``."""
        values = np.arange(256, dtype=np.float32)[:, np.newaxis].repeat(3, 1)
        return np.ascontiguousarray(self._normalised(values).T)

    def _normalised(self, values: NDArray[Any]) -> NDArray[Any]:
        if self.mean is not None:
            values = np.subtract(values, self.mean, dtype=np.float32)
        if self.std is not None:
            values = np.divide(values, self.std, dtype=np.float32)
        return values

    def __repr__(self) -> str:
        given = [repr(self.size)]
        for name, parameter in inspect.signature(ImageDecoder).parameters.items():
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                value = value.tolist()
            elif isinstance(value, np.dtype):
                value = value.name
            same_kind = type(value) is type(parameter.default)  # An explicit 3 isn't.
            if name != "size" and (value != parameter.default or not same_kind):
                given.append(f"{name}={value!r}")
        return f"ImageDecoder({', '.join(given)})"

    def _check(self) -> None:
        if self.crop is not None and self.size is None:
            raise ValueError(f"crop={self.crop!r} needs size, the size of the crop")
        whole_or_part = self.crop in ("center", "random") or (self.crop, self.size) == (None, None)
        if self.resize_short is not None and not whole_or_part:
            raise ValueError(
                'resize_short goes with crop="center" or "random", or without size, got '
                f"crop={self.crop!r}, size={self.size!r}"
            )
        if self.area[1] > 1:
            raise ValueError(f"area must be a part of the image, 0 to 1, got {self.area!r}")
        for name in ("area", "ratio"):
            value, unused = getattr(self, name), inspect.signature(ImageDecoder).parameters[name]
            if self.crop != "random_resized" and value != unused.default:
                raise ValueError(
                    f'{name} needs crop="random_resized", got {value!r} with crop={self.crop!r}'
                )
        if self.dtype != np.float32 and (self.mean is not None or self.std is not None):
            raise ValueError(f'mean and std need dtype="float32", got "{self.dtype.name}"')
        if self.std is not None and not (self.std > 0).all():
            raise ValueError(f"std must be > 0, got {self.std.tolist()!r}")


def _piece(
    buffers: Sequence[kernel.Encoded], at: int, pieces: NDArray[np.int64] | None
) -> memoryview | bytes:
    if pieces is None:
        return cast("memoryview | bytes", buffers[at])
    number, begin, size = pieces[at].tolist()
    buffer = buffers[number]
    if isinstance(buffer, io.FileIO):
        return os.pread(buffer.fileno(), size, begin)
    return memoryview(buffer)[begin : begin + size]


def _size_of_row(size: Any) -> tuple[int, int] | None:
    if size is None:
        return None
    if not isinstance(size, (tuple, list)):
        size = (size, size)
    if len(size) != 2:
        raise ValueError(f"size must be (height, width), a number or None, got {size!r}")
    height, width = (check_integer("size", side, 1, " pixel") for side in size)
    return height, width


def _one_of(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    if value not in allowed:
        listed = ", ".join(map(repr, allowed))
        raise ValueError(f"{name} must be one of {listed}, got {value!r}")
    return value


def _name_of(dtype: Any) -> Any:
    try:
        return None if dtype is None else np.dtype(dtype).name
    except TypeError:
        return dtype


def _interval(name: str, value: Any) -> tuple[float, float]:
    try:
        least, most = map(float, value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be (least, most), got {value!r}") from None
    if not 0 < least <= most < math.inf:
        raise ValueError(f"{name} must be 0 < least <= most, and finite, got {value!r}")
    return least, most


def _of_channels(name: str, value: Any, channels: int | None) -> NDArray[np.float32] | None:
    """Return a number, or one per channel, as float32."""
    if value is None:
        return None
    try:
        array = np.array(value, np.float32)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number or one per channel, got {value!r}") from None
    fits = array.ndim == 1 and array.size and channels in (None, array.size)
    if not (array.shape in ((), (1,)) or fits) or not np.isfinite(array).all():
        called = " (RGB)" if channels == 3 else f" ({channels})" if channels else ""
        raise ValueError(
            f"{name} must be a finite number or one per channel{called}, got {value!r}"
        )
    return array


def halves(decoder: ImageDecoder) -> tuple[ImageDecoder, ImageDecoder]:
    """Return a decoder's steps before and after random numbers are drawn; not of a subclass.

    ``before`` decodes, and resizes and cuts if that doesn't depend on random numbers; ``after``
    turns that, stored raw, into the whole decoder's result:

        crop                          before                  after
        None, "center"                decode, resize, cut     flip, mean, std
        "random" with resize_short    decode, resize          cut, flip, mean, std
        "random", "random_resized"    decode                  cut, resize, flip, mean, std

    The values are the same, with two exceptions. A JPEG whose shorter side has to grow to
    ``resize_short`` before a larger box is cut is enlarged twice: one value in a hundred differs by
    1 or 2. In the last row, the whole decoder may decode a JPEG at a fraction of its size, and
    resizes a PNG with OpenCV, which differs from the kernel by 1 in one of some hundred values.
    """
    drawn = decoder.crop in ("random", "random_resized")
    kind = _OfAnyBits if decoder.dtype == np.float32 else ImageDecoder
    before = kind(
        None if drawn else decoder.size,
        crop=None if drawn else decoder.crop,
        resize_short=None if decoder.crop == "random_resized" else decoder.resize_short,
        dtype="uint16" if decoder.dtype == np.uint16 else "uint8",
        channels=decoder.channels,
        interpolation=decoder.interpolation,
    )
    # An image whose shorter side is already right isn't resized, and is cut as usual.
    after = copy.copy(decoder)
    if not drawn:
        after.crop = after.resize_short = None
    return before, after


class _OfAnyBits(ImageDecoder):
    """Decoder to uint8 if that holds all of the image, else to float32."""

    def decode(
        self,
        buffer: memoryview | bytes,
        rng: np.random.Generator | None = None,
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Decode one image into a new array."""
        try:
            return super().decode(buffer, rng)
        except ContentError:
            wider = copy.copy(self)
            wider.dtype = np.dtype(np.float32)
            wider._wanted = self._wanted._replace(dtype=wider.dtype)
            return ImageDecoder.decode(wider, buffer, rng)
