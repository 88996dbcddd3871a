"""``MixUp``: mix each image, and its label, with another one of the batch; a base of ``CutMix``.

Partners are neighbours on one random circle, on which none is its own partner. Mixing is done in
place: in the circle's order, each image changes before its partner, so only the first one has to be
copied.
"""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import check_integer
from adapters.transforms.labels import one_hot
from adapters.transforms.transform import BatchTransform, Place, kernel_for, number

# Shares are multiples of 1/256, as uint8 needs, so that labels have exactly the pixels' shares.
_WHOLE = 256


def circle(count: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw a random circle through so many samples; return their order, and each one's partner."""
    order = rng.permutation(count)
    partners = np.empty(count, np.int64)
    partners[order] = np.roll(order, -1)
    return order, partners


class Mixing(BatchTransform):
    """Base class of ``MixUp`` and ``CutMix``; ``_mix`` changes the images."""

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

    @abc.abstractmethod
    def _mix(
        self, images: NDArray[Any], rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Mix images in place; return each one's partner, and its own share."""

    def on_own_batch(self, batch: Any, rng: np.random.Generator) -> Any:
        """Mix a batch's images in place, and its labels."""
        drawn: list[Any] = []

        def change(images: NDArray[Any]) -> NDArray[Any]:
            drawn.extend(self._mix(images, rng))
            return images

        batch = self.with_images(batch, change)
        is_single = not isinstance(batch, (tuple, list, dict)) or len(batch) < 2
        if is_single and self._label is None:
            return batch
        return self.with_labels(batch, lambda labels: self._mixed(labels, *drawn))

    def _mixed(
        self, labels: NDArray[Any], partners: NDArray[np.int64], shares: NDArray[np.float32]
    ) -> NDArray[Any]:
        one_each = labels.ndim == 1 or labels.shape[1:] == (1,)
        whole = labels.dtype.kind in "biu"
        if one_each:
            is_mixable = self._num_classes is not None
        else:
            is_mixable = not labels.size or 0 <= labels.min() <= labels.max() <= 1
        if whole and not is_mixable:
            raise ValueError(
                "labels must be one-hot, or numbers of a regression, to be mixed, got class "
                f"numbers ({labels.dtype}{labels.shape}): give num_classes=, or put "
                "OneHot(num_classes) before it: Chain([OneHot(num_classes), ...])"
            )
        if self._num_classes is not None and one_each:
            labels = one_hot(labels, self._num_classes)
        elif labels.dtype != np.float64:
            labels = labels.astype(np.float32)
        own = shares.reshape(-1, *[1] * (labels.ndim - 1)).astype(labels.dtype)
        return np.asarray(labels * own + labels[partners] * (1 - own))


class MixUp(Mixing):
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

    def _mix(
        self, images: NDArray[Any], rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        count = len(images)
        own_shares = rng.beta(self._alpha, self._alpha, count)
        own_shares[rng.random(count) >= self._probability] = 1
        shares = np.rint(own_shares * _WHOLE).astype(np.int64)
        order, partners = circle(count, rng)
        mix(images, order, shares)
        return partners, (shares / _WHOLE).astype(np.float32)


def mix(images: NDArray[Any], order: NDArray[np.int64], shares: NDArray[np.int64]) -> None:
    """Mix images in place, each with the next one in ``order``, the last with the first.

    ``shares`` are of each image itself, in 1/256, by its number.
    """
    is_uint8 = images.dtype == np.uint8
    if not is_uint8 and images.dtype.kind != "f":
        raise TypeError(f"images must be uint8 or float to be mixed, got {images.dtype}")
    if len(images) < 2 or not images.size:
        return
    kernel = kernel_for(images)
    if kernel is not None:
        kernel.mix(images, len(images), order, shares, not is_uint8)
        return
    first = int(order[0])
    unmixed = images[first].copy()
    for one, other in zip(order.tolist(), np.roll(order, -1).tolist()):
        if shares[one] == _WHOLE:
            continue
        partner = unmixed if other == first else images[other]
        if is_uint8:
            own, rest = np.uint16(shares[one]), np.uint16(_WHOLE - shares[one])
            mixed = images[one].astype(np.uint16) * own + partner.astype(np.uint16) * rest
            images[one] = mixed + np.uint16(_WHOLE // 2) >> np.uint16(8)
        else:
            share = (shares[one] / _WHOLE).astype(images.dtype)
            images[one] = (images[one] - partner) * share + partner
