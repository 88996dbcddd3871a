"""Warnings about likely mistakes in the first training batches: sorted labels, black images.

    look(batch) --> some of its pixels --> the last look: labels of the source, and the warnings

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

# Batches to inspect.
LOOKS = 4
# Labels inspected at the start of the source, as many in the rest, and the distance of the pixels.
_LABELS, _STRIDE = 64, 7
# Logarithm of the largest accepted probability that the labels are sorted by chance.
_CHANCE = math.log(1e-9)


class Inspection:
    """Inspects the first batches of one training.

    Args:
        shuffled: True if the order of the samples is random.
        scales: True if the model rescales values of 0 to 255, or may do so.
        source: The source of the batches, whose labels are read.
    """

    def __init__(self, shuffled: bool, scales: bool = True, source: Source | None = None) -> None:
        self._shuffled = shuffled
        self._scales = scales
        self._source = source
        self._left = LOOKS if log.isEnabledFor(logging.WARNING) else 0
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
            self._look_at_images(_x_and_y(batch)[0])
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
            if not self._shuffled and self._source is not None and _is_sorted(self._source):
                log.warning("samples are sorted by class; give SafeSequence shuffle=True")

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


def _is_sorted(source: Source) -> bool:
    """True if the samples come class by class, which is no chance.

    The first samples are compared, and as many spread over the rest. In a random order, n samples
    of k classes have one run of each class with a probability of k! times the product of the
    factorials of the classes' counts, divided by n!.
    """
    count = min(_LABELS, len(source) // 2)
    rest = np.linspace(count, len(source) - 1, count).astype(np.int64)
    try:
        labels = _labels_in(source, np.arange(count))
        if labels is None or len(np.unique(labels)) > count // 4:  # Numbers that aren't classes.
            return False
        later = _labels_in(source, rest)
    except Exception as error:  # Damage is reported when training reads it.
        log.debug("labels can't be looked at: %r", error)
        return False
    if later is None:
        return False
    if len(np.unique(later)) > count // 4 and (np.diff(later) < 0).any():
        return False  # Numbers, too.
    labels, gamma = np.concatenate([labels, later]), math.lgamma
    _, counts = np.unique(labels, return_counts=True)
    orders = gamma(len(labels) + 1) - sum(gamma(each + 1) for each in counts.tolist())
    runs = 1 + np.count_nonzero(np.diff(labels))
    return bool(runs == len(counts) and gamma(runs + 1) - orders < _CHANCE)


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
