"""``MixUp``: mix each image, and its label, with another one of the batch.

Partners are neighbours on one random circle, on which none is its own partner. Mixing is done in
place: in the circle's order, each image changes before its partner, so only the first one has to be
copied.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import check_integer
from adapters.images.colours import mix as mix_natively
from adapters.transforms.labels import mixed
from adapters.transforms.transform import BatchTransform, Place, number

# Shares are multiples of 1/256, as uint8 needs, so that labels have exactly the pixels' shares.
_WHOLE = 256


class Circle(NamedTuple):
    """Random order of a batch's samples; the partner of each is the next one."""

    order: NDArray[np.int64]
    partners: NDArray[np.int64]
    """Partner of each sample."""


def circle(count: int, rng: np.random.Generator) -> Circle:
    """Draw a random circle through so many samples."""
    order = rng.permutation(count)
    partners = np.empty(count, np.int64)
    partners[order] = np.roll(order, -1)
    return Circle(order, partners)


class MixUp(BatchTransform):
    """Mix each image, and its label, with another one of the batch (Zhang et al., 2017).

    The result is ``lambda * image + (1 - lambda) * partner``, with lambda from Beta(alpha, alpha),
    one for each image. The partners are neighbours on a random circle through the batch.

    Args:
        alpha: Parameter of the Beta distribution, above 0; small ones hardly change most images.
        probability: Probability that an image is mixed.
        num_classes: Number of classes if labels are class numbers: they become one-hot.
        image: Place of the images, see ``BatchTransform``: uint8 (rounded; lambda is a multiple of
            1/256) or float, ``(batch, ...)`` in any layout.
        label: Place of the labels: one-hot or smoothed ``(batch, classes)``, or numbers of a
            regression; they become float32 (float64 stays). A batch may have none.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.

    Example:
        >>> import numpy as np
        >>> from adapters.transforms import MixUp
        >>> batch = np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 2, 0])
        >>> images, labels = MixUp(0.2, num_classes=3)(batch, np.random.default_rng(0))
        >>> images.shape, images.dtype.name, labels.shape
        ((4, 8, 8, 3), 'uint8', (4, 3))
    """

    def __init__(
        self,
        alpha: float = 0.2,
        *,
        probability: float = 1.0,
        num_classes: int | None = None,
        image: Place = None,
        label: Place = None,
    ) -> None:
        super().__init__(image, label)
        self._alpha = number("alpha", alpha, 1e-6)
        self._probability = number("probability", probability, 0, 1)
        if num_classes is not None:
            check_integer("num_classes", num_classes, 1)
        self._num_classes = num_classes

    def on_own_batch(self, batch: Any, rng: np.random.Generator) -> Any:
        """Mix a batch's images in place, and its labels."""
        drawn: list[Any] = []

        def change(images: NDArray[Any]) -> NDArray[Any]:
            count = len(images)
            own_shares = rng.beta(self._alpha, self._alpha, count)
            left_alone = rng.random(count) >= self._probability
            own_shares = np.where(left_alone, 1.0, own_shares)
            shares = (np.rint(own_shares * _WHOLE) / _WHOLE).astype(np.float32)
            pairs = circle(count, rng)
            mix(images, pairs.order, shares)
            drawn.extend((pairs.partners, shares))
            return images

        batch = self.with_images(batch, change)
        if not self.has_labels(batch):
            return batch
        partners, shares = drawn
        return self.with_labels(
            batch, lambda labels: mixed(labels, partners, shares, self._num_classes)
        )


def mix(images: NDArray[Any], order: NDArray[np.int64], shares: NDArray[np.float32]) -> None:
    """Mix images in place, each with the next one in ``order``, the last with the first.

    Args:
        images: uint8 or float ``(batch, ...)``, contiguous.
        order: Each image's number, once.
        shares: Share of each image itself, a multiple of 1/256, by its number.

    Raises:
        TypeError: The images have another dtype.
    """
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        raise TypeError(f"images must be uint8 or float to be mixed, got {images.dtype}")
    if len(images) < 2 or not images.size:
        return
    if mix_natively(images, order, np.rint(shares * _WHOLE).astype(np.int64)):
        return
    first = int(order[0])
    unmixed = images[first].copy()
    for one, other in zip(order.tolist(), np.roll(order, -1).tolist()):
        if shares[one] >= 1:
            continue
        partner = unmixed if other == first else images[other]
        if images.dtype == np.uint8:
            share = np.uint16(shares[one] * _WHOLE)
            mixed_up = images[one].astype(np.uint16) * share
            mixed_up += partner.astype(np.uint16) * np.uint16(_WHOLE - share)
            images[one] = mixed_up + np.uint16(_WHOLE // 2) >> np.uint16(8)
        else:
            share = shares[one].astype(images.dtype)
            images[one] = (images[one] - partner) * share + partner
