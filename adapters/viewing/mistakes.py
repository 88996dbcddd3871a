"""Warnings about likely mistakes in the first training batches: sorted labels, black images.

    look(batch) --> some of its pixels and labels --> the last look: a WARNING for each mistake

A look reads a fiftieth of the pixels, and the whole batch only to confirm a suspicion. An
``Inspection`` keeps no batch; one thread at a time may call it. The logger is
``adapters.mistakes``: ``logging.getLogger("adapters.mistakes").disabled = True`` turns the warnings
off.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.sources import Source
from adapters.viewing.images import images_in

log = logging.getLogger("adapters.mistakes")

# Batches to inspect, and the smallest batch whose labels count.
LOOKS = 4
_LEAST_SAMPLES = 16
# Labels inspected per batch, and the distance of the pixels.
_LABELS, _STRIDE = 64, 7
# Logarithm of the largest accepted probability that the labels are sorted by chance.
_CHANCE = math.log(1e-9)


class Inspection:
    """Inspects the first batches of one training.

    Args:
        shuffled: True if the order of the samples is random.
        scales: True if the model rescales values of 0 to 255, or may do so.
        source: The source of the batches; its labels are read if the first batches have one class.
    """

    def __init__(self, shuffled: bool, scales: bool = True, source: Source | None = None) -> None:
        self._shuffled = shuffled
        self._scales = scales
        self._source = source
        self._left = LOOKS if log.isEnabledFor(logging.WARNING) else 0
        self._labels: list[NDArray[Any]] = []
        self._black = 0
        self._bytes_as_floats = 0

    @property
    def done(self) -> bool:
        """True after the last look."""
        return self._left <= 0

    def look(self, batch: Any) -> None:
        """Inspect a batch; warn after the last one."""
        if self.done:
            return
        self._left -= 1
        try:
            x, y = _x_and_y(batch)
            self._look_at_images(x)
            self._look_at_labels(y)
        except Exception as error:  # An unexpected array type isn't the user's mistake.
            log.debug("a batch can't be looked at: %r", error)
            self._left = 0
            return
        if not self._left:
            if self._black == LOOKS:
                log.warning(
                    "every pixel of the first %d batches is 0: the images are all black; "
                    "seq.peek() shows them",
                    LOOKS,
                )
            if self._bytes_as_floats == LOOKS and not self._scales:
                log.warning(
                    "the images are floats of 0 to 255, and the model takes them as they are: "
                    "divide by 255, or begin the model with keras.layers.Rescaling(1 / 255)"
                )
            self._warn_of_labels()

    def _warn_of_labels(self) -> None:
        if len(self._labels) < LOOKS:
            return
        if len(np.unique(np.concatenate(self._labels))) == 1:
            is_sorted = self._source is not None and _begins_with_one_class(self._source)
        else:
            is_sorted = _is_sorted_for_sure(self._labels)
        if is_sorted:
            log.warning(
                "the labels of each of the first %d batches are in ascending order or all the "
                "same: the samples are sorted by class; give SafeSequence shuffle=True",
                LOOKS,
            )

    def _look_at_images(self, x: Any) -> None:
        images = images_in(x)
        if images is None:
            return
        some = images[:, ::_STRIDE, ::_STRIDE]
        if not some.any():
            self._black += not images.any()
        elif images.dtype.kind == "f" and images.ndim == x.ndim == 4:
            low, high = some.min(), some.max()
            # Whole numbers or three channels (a resized photograph); one channel may be any data.
            is_photograph = images.shape[-1] == 3 or bool((some == np.floor(some)).all())
            self._bytes_as_floats += low >= 0 and 100 < high <= 255 and is_photograph

    def _look_at_labels(self, y: Any) -> None:
        if self._shuffled:
            return
        if isinstance(y, np.ndarray) and y.ndim:
            y = y[:_LABELS]
        labels = _class_numbers(y)
        if labels is not None and len(labels) >= _LEAST_SAMPLES and (np.diff(labels) >= 0).all():
            self._labels.append(labels)


def _is_sorted_for_sure(batches: list[NDArray[Any]]) -> bool:
    """True if these batches are sorted by chance with a probability below 1e-9.

    The number of orders that are ascending within each batch is at most the number of ways to
    distribute each class over the batches.
    """
    labels = np.concatenate(batches)
    _, counts = np.unique(labels, return_counts=True)
    if not 1 < len(counts) <= len(labels) // 4:
        return False  # A single class, or numbers that aren't classes.
    gamma = math.lgamma
    orders = gamma(len(labels) + 1) - sum(gamma(count + 1) for count in counts)
    others = len(batches) - 1
    ascending = sum(
        gamma(count + others + 1) - gamma(count + 1) - gamma(others + 1) for count in counts
    )
    return ascending - orders < _CHANCE


def _begins_with_one_class(source: Source) -> bool:
    """True if the first samples have one class and later ones others, too many to be chance.

    Of the first n samples and n samples spread over the rest, k have other classes. In a random
    order, all k are among the last n with probability C(n, k) / C(2n, k).
    """
    count = min(_LABELS, len(source) // 2)
    rest = np.linspace(count, len(source) - 1, count).astype(np.int64)
    try:
        first, later = _labels_in(source, np.arange(count)), _labels_in(source, rest)
    except Exception as error:  # Damage is reported when training reads it.
        log.debug("labels can't be looked at: %r", error)
        return False
    if first is None or later is None or (first != first[0]).any():
        return False
    if len(np.unique(later)) > count // 4 and (np.diff(later) < 0).any():
        return False  # Numbers that aren't classes.
    others, gamma = int((later != first[0]).sum()), math.lgamma
    orders = gamma(count + 1) - gamma(count - others + 1)
    orders -= gamma(2 * count + 1) - gamma(2 * count - others + 1)
    return orders < _CHANCE


def _labels_in(source: Source, numbers: NDArray[np.int64]) -> NDArray[Any] | None:
    labels = source.labels_of(numbers)
    if labels is None and source.gathers:
        _, labels = _x_and_y(source.gather(numbers, np.empty))
    return _class_numbers(labels)


def _x_and_y(batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, (tuple, list)) or not len(batch):
        return batch, None
    x = batch[0]
    if isinstance(x, dict) and len(x) == 1:
        (x,) = x.values()
    return x, batch[1] if len(batch) > 1 else None


def _class_numbers(y: Any) -> NDArray[Any] | None:
    """The class of each sample; None if the values may not be classes."""
    if not isinstance(y, np.ndarray) or not y.size:
        return None
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 1:
        # Floats are regression targets, unless they are all 0.0 or 1.0.
        binary = y.dtype.kind == "f" and bool(((y == 0) | (y == 1)).all())
        return y.astype(np.int64) if y.dtype.kind in "biu" or binary else None
    one_hot = (
        y.ndim == 2 and (np.count_nonzero(y, axis=1) == 1).all() and (y.max(axis=1) == 1).all()
    )
    return y.argmax(axis=1) if one_hot else None
