"""``ImageDecoder``: from encoded images to rows of one array, as a network wants them."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images.geometry import Crop, cut, random_resized, short_side, whole
from adapters.images.pixels import decode_into, size_of

_CROPS = (None, "center", "random", "random_resized")
_DTYPES = ("uint8", "float32")
_LAYOUTS = ("NHWC", "NCHW")


class ImageDecoder:
    """Decodes, crops, resizes, flips and normalises images; ``decode=`` of ``open_records``.

    Resizing is bilinear, with half-pixel centres and without antialiasing; a JPEG that is to become
    at most half as large is decoded at a half, a quarter or an eighth of its size before. What EXIF
    says about the orientation is ignored.

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
        self.size = _size(size)
        self.crop = _one_of("crop", crop, _CROPS)
        self.resize_short = None if resize_short is None else _side("resize_short", resize_short)
        self.area = _interval("area", area)
        self.ratio = _interval("ratio", ratio)
        if not isinstance(flip, (bool, np.bool_)):
            raise TypeError(f"flip must be True or False, got {flip!r}")
        self.flip = bool(flip)
        self.dtype = _dtype(dtype)
        self.layout = _one_of("layout", layout, _LAYOUTS)
        self.mean = _channels("mean", mean)
        self.std = _channels("std", std)
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
        """What is wanted of an image of this size."""
        flip = self.flip and rng is not None and bool(rng.integers(2))
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
        if self.layout == "NHWC" and self.dtype == np.uint8:
            decode_into(buffer, crop, out)
            return out
        channels_last = out.transpose(1, 2, 0) if self.layout == "NCHW" else out
        pixels = np.empty(channels_last.shape, np.uint8)
        decode_into(buffer, crop, pixels)
        if self.mean is None:
            channels_last[...] = pixels
        else:
            np.subtract(pixels, self.mean, out=channels_last)
        if self.std is not None:
            np.divide(channels_last, self.std, out=channels_last)
        return out

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


def _size(size: Any) -> tuple[int, int] | None:
    if size is None:
        return None
    if not isinstance(size, (tuple, list)):
        size = (size, size)
    if len(size) != 2:
        raise ValueError(f"size must be (height, width), a number or None, got {size!r}")
    return _side("size", size[0]), _side("size", size[1])


def _side(name: str, value: Any) -> int:
    try:
        pixels = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer of pixels, got {value!r}") from None
    if pixels < 1:
        raise ValueError(f"{name} must be >= 1 pixel, got {value!r}")
    return pixels


def _one_of(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    if value not in allowed:
        listed = ", ".join(map(repr, allowed))
        raise ValueError(f"{name} must be one of {listed}, got {value!r}")
    return value


def _dtype(value: Any) -> np.dtype[Any]:
    try:
        name = np.dtype(value).name
    except TypeError:
        name = ""
    if value is None or name not in _DTYPES:
        raise ValueError(f'dtype must be "uint8" or "float32", got {value!r}')
    dtype: np.dtype[Any] = np.dtype(name)
    return dtype


def _interval(name: str, value: Any) -> tuple[float, float]:
    try:
        least, most = map(float, value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be (least, most), got {value!r}") from None
    if not 0 < least <= most < math.inf:
        raise ValueError(f"{name} must be 0 < least <= most, and finite, got {value!r}")
    return least, most


def _channels(name: str, value: Any) -> NDArray[np.float32] | None:
    if value is None:
        return None
    try:
        array = np.array(value, np.float32)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number or one per channel, got {value!r}") from None
    if array.shape not in ((), (1,), (3,)) or not np.isfinite(array).all():
        raise ValueError(f"{name} must be a finite number or one per channel (RGB), got {value!r}")
    return array
