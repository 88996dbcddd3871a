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

# Values of an image that are mixed at a time, so that intermediate results stay in the
# L2 cache: 64 images of 224 x 224 x 3 take 4.7 ms, with 16 Ki 8.3 (uint8, one core); float32 5.8.
# By the kernel, uint8 takes 0.6 and float32 3.
_BLOCK = 1 << 16
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
    rows = images.reshape(len(images), -1)
    steps = [
        (one, other)
        for one, other in zip(order.tolist(), np.roll(order, -1).tolist())
        if shares[one] < 1
    ]
    whole = images.dtype == np.uint8
    width = min(_BLOCK, rows.shape[1])
    spaces = [np.empty(width, np.uint16 if whole else images.dtype) for _ in range(2)]
    first = int(order[0])
    for start in range(0, rows.shape[1], width):
        block = rows[:, start : start + width]
        unmixed = block[first].copy()
        left, right = (space[: block.shape[1]] for space in spaces)
        for one, other in steps:
            partner = unmixed if other == first else block[other]
            if whole:
                _mix_bytes(block[one], partner, int(shares[one] * _WHOLE), left, right)
            else:
                np.subtract(block[one], partner, out=left)
                np.multiply(left, shares[one].astype(images.dtype), out=left)
                np.add(left, partner, out=block[one])


def _mix_bytes(
    one: NDArray[np.uint8],
    partner: NDArray[np.uint8],
    share: int,
    left: NDArray[np.uint16],
    right: NDArray[np.uint16],
) -> None:
    np.multiply(one, np.uint16(share), out=left, dtype=np.uint16)
    np.multiply(partner, np.uint16(_WHOLE - share), out=right, dtype=np.uint16)
    np.add(left, right, out=left)
    np.add(left, np.uint16(_WHOLE // 2), out=left)
    np.right_shift(left, np.uint16(8), out=left)
    np.copyto(one, left, casting="unsafe")
