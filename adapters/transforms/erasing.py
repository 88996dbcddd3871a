"""``RandomErasing``: paint over a box of some images."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from adapters.transforms.transform import (
    BatchTransform,
    LayoutName,
    Place,
    axes_of,
    check_layout,
    interval,
    number,
)

# Boxes drawn for an image until one fits into it.
_TRIES = 10


class RandomErasing(BatchTransform):
    """Paint over a box of some images (Zhong et al., 2017); labels stay unchanged.

    Args:
        probability: Probability that an image is changed.
        scale: Range of the box's area, as a fraction of the image's.
        ratio: Range of the box's height / width; its logarithm is uniform.
        value: A number to paint with, one for each channel, or "noise": uniform values for uint8,
            standard normal ones for floats.
        layout: Layout of the images; "auto" takes the axis of 1, 3 or 4 for the channels, the last
            one if both can be.
        image: Place of the images, see ``BatchTransform``: ``(batch, height, width, channels)``,
            ``(batch, channels, height, width)`` or ``(batch, height, width)``.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.

    Example:
        >>> import numpy as np
        >>> from adapters.transforms import RandomErasing
        >>> images = RandomErasing(1.0)(np.ones((4, 8, 8, 3)), np.random.default_rng(0))
        >>> [bool((image == 0).any()) for image in images]
        [True, True, True, True]
    """

    def __init__(
        self,
        probability: float = 0.5,
        *,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: float | tuple[float, ...] | Literal["noise"] = 0,
        layout: LayoutName = "auto",
        image: Place = None,
    ) -> None:
        super().__init__(image, None)
        self._probability = number("probability", probability, 0, 1)
        self._scale = interval("scale", scale, 0, 1)
        self._ratio = interval("ratio", ratio, 1e-6)
        if not (isinstance(value, str) and value == "noise"):
            each = value if isinstance(value, (tuple, list)) else (value,)
            for part in each:
                number("value", part, -np.inf)
        check_layout(layout)
        self._value = value
        self._layout = layout

    def on_own_batch(self, batch: Any, rng: np.random.Generator) -> Any:
        """Paint over boxes of a batch's images in place."""
        return self.with_images(batch, lambda images: self._erased(images, rng))

    def _erased(self, images: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        axes = axes_of(images, self._layout)
        count = len(images)
        chosen = rng.random(count) < self._probability
        boxes = self._boxes(count, (axes.height, axes.width), rng)
        value = self._painted(images, axes.channels, axes.channels_first)
        for place in np.flatnonzero(chosen).tolist():
            box = images[place][axes.box(*boxes[place].tolist())]
            if value is not None:
                box[...] = value
            elif images.dtype == np.uint8:
                box[...] = rng.integers(0, 256, box.shape, np.uint8)
            else:
                box[...] = rng.standard_normal(box.shape, np.float32)
        return images

    def _painted(self, images: NDArray[Any], channels: int, channels_first: bool) -> Any:
        """Return the value to paint with, shaped for a box; None for noise."""
        if isinstance(self._value, str):
            if images.dtype.kind != "f" and images.dtype != np.uint8:
                raise TypeError(f"images must be uint8 or float for noise, got {images.dtype}")
            return None
        value = np.asarray(self._value)
        if value.ndim and (images.ndim == 3 or len(value) != channels):
            raise ValueError(
                f"value must be a number, or one for each of {channels} channels, got "
                f"{self._value!r}"
            )
        if images.dtype.kind in "iu" and not (value.astype(images.dtype) == value).all():
            raise TypeError(f"value must fit the images' {images.dtype}, got {self._value!r}")
        return value[:, None, None] if value.ndim and channels_first else value

    def _boxes(
        self, count: int, size: tuple[int, int], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Draw top, left, height and width for each image, ``(count, 4)``."""
        area = rng.uniform(*self._scale, (_TRIES, count)) * (size[0] * size[1])
        low, high = map(math.log, self._ratio)
        ratio = np.exp(rng.uniform(low, high, (_TRIES, count)))
        heights = np.rint(np.sqrt(area * ratio)).astype(np.int64)
        widths = np.rint(np.sqrt(area / ratio)).astype(np.int64)
        fits = (heights <= size[0]) & (widths <= size[1])
        first = fits.argmax(axis=0), np.arange(count)  # The first try if none fits.
        boxes = np.stack([heights[first], widths[first]], axis=1)
        boxes = np.clip(boxes, 1, np.maximum(size, 1))
        corner = (rng.random((count, 2)) * (np.array(size) - boxes + 1)).astype(np.int64)
        return np.concatenate([corner, boxes], axis=1)
