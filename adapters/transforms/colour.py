"""``ColorJitter``: random changes of brightness, contrast, saturation and hue of each image.

The four are linear in a pixel's channels, except that contrast also uses the image's mean. So all
of them together are one matrix and one offset for each image, applied in one go; values are clipped
once. uint8 images are computed in integers, with coefficients in 1/4096: by the native kernel, or
by NumPy with the same values to the bit. Float images are computed in their own precision, float32
by the kernel, with NumPy's arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.transforms.transform import (
    Axes,
    BatchTransform,
    LayoutName,
    Place,
    axes_of,
    check_layout,
    interval,
    kernel_for,
    number,
)

# Weights of red, green and blue in grey: ITU-R BT.601, as in JPEG and Pillow.
_GREY = np.array([0.299, 0.587, 0.114])
# Hue rotates about the axis of greys in YIQ, as in MXNet's and DALI's transforms.
_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
_TO_YIQ[1:] -= _TO_YIQ[1:].sum(axis=1, keepdims=True) / 3  # Greys have exactly no colour.
_FROM_YIQ = np.linalg.inv(_TO_YIQ)
# Coefficients of uint8 images are multiples of 1 / 2**_BITS: an error of at most 0.1 of 255 values.
_BITS = 12
# Below it, sums of integers are exact in the kernel.
_EXACT_INT32 = 1 << 31


class ColorJitter(BatchTransform):
    """Change brightness, contrast, saturation and hue of each image at random, in this order.

    Brightness multiplies the values. Contrast scales them about the mean grey of the image.
    Saturation scales the channels about each pixel's grey. Hue rotates the colours about the axis
    of greys (in YIQ, as in MXNet and DALI; Pillow and torchvision rotate HSV's hue). Values are
    clipped to the range once, at the end.

    Args:
        brightness: A number ``b`` draws a factor from ``[max(0, 1 - b), 1 + b]``; a pair is the
            range itself.
        contrast: A number or a pair, likewise.
        saturation: A number or a pair, likewise; images of one channel ignore it.
        hue: A number ``h`` in [0, 0.5] draws an angle from ``[-h, h]`` of the full circle; a pair
            within [-0.5, 0.5] is the range itself.
        value_range: Range of the images' values; None: (0, 255) for uint8, (0, 1) for floats.
        probability: Probability that an image is changed.
        layout: Layout of the images; "auto" takes the axis of 1 or 3 for the channels, the last one
            if both can be.
        image: Place of the images, see ``BatchTransform``: uint8 or float
            ``(batch, height, width, 3)``, ``(batch, 3, height, width)``, or with 1 channel.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.

    Example:
        >>> import numpy as np
        >>> from adapters.transforms import ColorJitter
        >>> images = np.full((2, 8, 8, 3), 100, np.uint8)
        >>> ColorJitter(brightness=(1.5, 1.5))(images, np.random.default_rng(0))[0, 0, 0].tolist()
        [150, 150, 150]
    """

    def __init__(
        self,
        brightness: float | tuple[float, float] = 0.0,
        contrast: float | tuple[float, float] = 0.0,
        saturation: float | tuple[float, float] = 0.0,
        hue: float | tuple[float, float] = 0.0,
        *,
        value_range: tuple[float, float] | None = None,
        probability: float = 1.0,
        layout: LayoutName = "auto",
        image: Place = None,
    ) -> None:
        super().__init__(image, None)
        self._factors = {
            "brightness": _factors("brightness", brightness),
            "contrast": _factors("contrast", contrast),
            "saturation": _factors("saturation", saturation),
        }
        if not isinstance(hue, (tuple, list)):
            hue = (-number("hue", hue, 0, 0.5), float(hue))
        self._hue = interval("hue", hue, -0.5, 0.5)
        if value_range is not None:
            value_range = interval("value_range", value_range, -np.inf)
        self._range = value_range
        self._probability = number("probability", probability, 0, 1)
        check_layout(layout)
        self._layout = layout

    def __repr__(self) -> str:
        factors = ", ".join(f"{name}={range_}" for name, range_ in self._factors.items())
        return f"ColorJitter({factors}, hue={self._hue})"

    def on_own_batch(self, batch: Any, rng: np.random.Generator) -> Any:
        """Change the colours of a batch's images in place."""
        return self.with_images(batch, lambda images: self._jittered(images, rng))

    def _jittered(self, images: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        axes = axes_of(images, self._layout)
        if axes.channels not in (1, 3):
            raise ValueError(f"images must have 1 or 3 channels, got the shape {images.shape}")
        low, high = self._range_of(images)
        if not images.size:
            return images
        count = len(images)
        drawn = [rng.uniform(*given, count) for given in self._factors.values()]
        angle = rng.uniform(*self._hue, count)
        chosen = rng.random(count) < self._probability
        brightness, contrast, saturation = (np.where(chosen, each, 1.0) for each in drawn)
        angle = np.where(chosen, angle, 0.0)
        coloured = axes.channels == 3
        grey = np.zeros(count)
        if self._factors["contrast"] != (1.0, 1.0):
            grey = means(images, axes) @ (_GREY if coloured else np.ones(1))
        offsets = (1 - contrast) * brightness * grey
        scale = (brightness * contrast)[:, None, None]
        matrices = scale * (_matrices(saturation, angle) if coloured else np.ones((1, 1, 1)))
        apply(images, axes, matrices, offsets, (low, high))
        return images

    def _range_of(self, images: NDArray[Any]) -> tuple[float, float]:
        """Return the range of the values; an error if some are far outside."""
        if images.dtype == np.uint8:
            return self._range or (0.0, 255.0)
        if images.dtype.kind != "f":
            raise TypeError(f"images must be uint8 or float for ColorJitter, got {images.dtype}")
        low, high = self._range or (0.0, 1.0)
        some = images[:: max(1, len(images) // 8)].reshape(-1)[::97]
        margin = (high - low) / 2
        if some.size and not (low - margin <= some.min() and some.max() <= high + margin):
            raise ValueError(
                f"images must have values within {(low, high)}, got {some.min():g} to "
                f"{some.max():g}: give value_range=(0, 255), say, or put ColorJitter before what "
                "normalizes them"
            )
        return low, high


def _factors(name: str, value: Any) -> tuple[float, float]:
    if isinstance(value, (tuple, list)):
        return interval(name, value, 0)
    about = number(name, value, 0)
    return max(0.0, 1 - about), 1 + about


def _matrices(saturation: NDArray[Any], angle: NDArray[Any]) -> NDArray[np.float64]:
    """Combine saturation and hue in matrices, ``(batch, 3, 3)``."""
    count = len(saturation)
    turned = np.zeros((count, 3, 3))
    cosine, sine = np.cos(2 * np.pi * angle), np.sin(2 * np.pi * angle)
    turned[:, 0, 0] = 1
    turned[:, 1, 1] = turned[:, 2, 2] = cosine
    turned[:, 1, 2], turned[:, 2, 1] = -sine, sine
    spread = saturation[:, None, None]
    saturated = spread * np.eye(3) + (1 - spread) * np.tile(_GREY, (3, 1))
    return np.asarray(_FROM_YIQ @ turned @ _TO_YIQ @ saturated)


def means(images: NDArray[Any], axes: Axes) -> NDArray[np.float64]:
    """Compute the mean of each channel of each image, ``(batch, channels)``."""
    is_uint8 = images.dtype == np.uint8
    kernel = kernel_for(images) if axes.channels == 3 else None
    sums: NDArray[Any]
    if kernel is not None:
        sums = np.empty((len(images), 3), np.int64 if is_uint8 else np.float64)
        shape = len(images), axes.height, axes.width, axes.channels_first
        kernel.channel_sums(images, *shape, sums, not is_uint8)
    elif is_uint8:
        sums = _planes(images, axes).sum(axis=2, dtype=np.int64)
    else:
        # Add up the rows, then the columns, in the kernel's order of additions.
        planes = axes.channels if axes.channels_first else 1
        rows = images.reshape(len(images), planes, axes.height, axes.width, -1)
        rows = rows.sum(axis=2, dtype=np.float64)
        sums = np.cumsum(rows, axis=2)[:, :, -1].reshape(len(images), -1)
    return np.asarray(sums / (axes.height * axes.width))


def apply(
    images: NDArray[Any],
    axes: Axes,
    matrices: NDArray[np.float64],
    offsets: NDArray[np.float64],
    bounds: tuple[float, float],
) -> None:
    """Replace each pixel by ``matrix @ pixel + offset``, within bounds, in place.

    ``matrices`` are ``(batch, channels, channels)``, ``offsets`` ``(batch,)``.
    """
    kernel = kernel_for(images) if axes.channels == 3 else None
    shape = len(images), axes.height, axes.width, axes.channels_first
    if images.dtype != np.uint8:
        own = matrices.astype(images.dtype), offsets.astype(images.dtype)
        if kernel is not None:
            kernel.recolour(images, *shape, *own, -1, *map(float, bounds))
        else:
            _apply_by_numpy(images, axes, *own, bounds)
        return
    whole = np.rint(matrices * (1 << _BITS)).astype(np.int32)
    added = np.floor(offsets * (1 << _BITS) + (1 << (_BITS - 1))).astype(np.int32)
    within = int(np.ceil(max(bounds[0], 0))), int(np.floor(min(bounds[1], 255)))
    most = np.abs(whole).sum(axis=2, dtype=np.int64).max() * 255
    most += np.abs(added.astype(np.int64)).max()
    if kernel is not None and most < _EXACT_INT32:
        kernel.recolour(images, *shape, whole, added, _BITS, *within)
        return
    _apply_by_numpy(images, axes, whole.astype(float), added.astype(float), within, _BITS)


def _apply_by_numpy(
    images: NDArray[Any],
    axes: Axes,
    matrices: NDArray[Any],
    offsets: NDArray[Any],
    bounds: tuple[float, float],
    bits: int = 0,
) -> None:
    """Apply matrices that are multiples of ``2 ** -bits``, in their dtype."""
    low, high = (matrices.dtype.type(bound) for bound in bounds)
    for image, matrix, offset in zip(_planes(images, axes), matrices, offsets):
        values = image.astype(matrices.dtype, order="C")
        mixed = matrix[:, :1] * values[0]
        for channel in range(1, axes.channels):
            mixed += matrix[:, channel : channel + 1] * values[channel]
        mixed += offset
        if bits:
            mixed *= matrices.dtype.type(1 / (1 << bits))
            np.floor(mixed, out=mixed)
        image[...] = np.clip(mixed, low, high, out=mixed)


def _planes(images: NDArray[Any], axes: Axes) -> NDArray[Any]:
    """View images as ``(batch, channels, pixels)``."""
    planes: NDArray[Any]
    if axes.channels_first:
        planes = images.reshape(len(images), axes.channels, -1)
    else:
        planes = images.reshape(len(images), -1, axes.channels).transpose(0, 2, 1)
    return planes
