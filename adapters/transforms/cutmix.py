"""``CutMix``: replace a box of each image by another image's, and as much of its label."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.transforms.mixup import Mixing, circle
from adapters.transforms.transform import Axes, LayoutName, Place, axes_of, check_layout


class CutMix(Mixing):
    """Paste a box of another image of the batch into each one (Yun et al., 2019).

    The box's area is ``1 - lambda`` of the image, with lambda from Beta(alpha, alpha). Its middle
    is anywhere, and the part outside the image is cut off. Labels are mixed by the area that is
    left. The partners are neighbours on a random circle through the batch.

    Args:
        alpha: Parameter of the Beta distribution, above 0.
        probability: Probability that an image is changed.
        num_classes: Number of classes if labels are class numbers: they become one-hot.
        layout: Layout of the images; "auto" takes the axis of 1, 3 or 4 for the channels, the last
            one if both can be.
        image: Place of the images, see ``BatchTransform``: ``(batch, height, width, channels)``,
            ``(batch, channels, height, width)`` or ``(batch, height, width)`` of any dtype.
        label: Place of the labels, as for ``MixUp``.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.

    Example:
        >>> import numpy as np
        >>> from adapters.transforms import CutMix
        >>> batch = np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 2, 0])
        >>> images, labels = CutMix(num_classes=3)(batch, np.random.default_rng(0))
        >>> images.shape, labels.shape
        ((4, 8, 8, 3), (4, 3))
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        probability: float = 1.0,
        num_classes: int | None = None,
        layout: LayoutName = "auto",
        image: Place = None,
        label: Place = None,
    ) -> None:
        super().__init__(
            alpha, probability=probability, num_classes=num_classes, image=image, label=label
        )
        check_layout(layout)
        self._layout = layout

    def _mix(
        self, images: NDArray[Any], rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        axes = axes_of(images, self._layout)
        boxes = self._boxes(len(images), axes, rng)
        order, partners = circle(len(images), rng)
        _paste(images, [axes.box(*box) for box in boxes.tolist()], order.tolist())
        area = boxes[:, 2] * boxes[:, 3] / max(axes.height * axes.width, 1)
        return partners, (1 - area).astype(np.float32)

    def _mixed(
        self, labels: NDArray[Any], partners: NDArray[np.int64], shares: NDArray[np.float32]
    ) -> NDArray[Any]:
        if labels.ndim > 2:
            raise ValueError(
                "labels must be a row or a number for each image for CutMix, got the shape "
                f"{labels.shape}: classes of pixels would have to be cut like the images"
            )
        return super()._mixed(labels, partners, shares)

    def _boxes(self, count: int, axes: Axes, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw top, left, height and width of each image's box, ``(count, 4)``."""
        side = np.sqrt(1 - rng.beta(self._alpha, self._alpha, count))
        middle = rng.random((count, 2))
        side[rng.random(count) >= self._probability] = 0
        size = np.array([axes.height, axes.width])
        wanted = (size * side[:, None]).astype(np.int64)
        first = (middle * size).astype(np.int64) - wanted // 2
        last = np.minimum(first + wanted, size)
        first = np.maximum(first, 0)
        return np.concatenate([first, last - first], axis=1)


def _paste(images: NDArray[Any], boxes: list[Any], order: list[int]) -> None:
    """Copy each image's box from the next one in ``order``."""
    if not order:
        return
    last = order[-1]
    # The first image's, before it changes.
    kept = images[order[0]][boxes[last]].copy()
    for one, other in itertools.pairwise(order):
        images[one][boxes[one]] = images[other][boxes[one]]
    images[last][boxes[last]] = kept
