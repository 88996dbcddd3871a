"""Labels as class numbers and as shares of classes: ``OneHot``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import check_integer
from adapters.transforms.transform import BatchTransform, Place, number


class OneHot(BatchTransform):
    """Convert class numbers to one-hot rows, optionally smoothed.

    Args:
        num_classes: Number of classes.
        label_smoothing: Fraction of a label, in [0, 1], that is spread over all classes evenly.
        dtype: Dtype of the rows.
        label: Place of the labels, see ``BatchTransform``: integers ``(batch,)`` or, for a class
            per pixel, ``(batch, height, width)``; they become ``(..., num_classes)``. A last axis
            of 1 is dropped before, as by ``keras.utils.to_categorical``.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.

    Example:
        >>> import numpy as np
        >>> from adapters.transforms import OneHot
        >>> OneHot(4, label_smoothing=0.2)((np.zeros((2, 8)), np.array([0, 3])), None)[1]
        array([[0.85, 0.05, 0.05, 0.05],
               [0.05, 0.05, 0.05, 0.85]], dtype=float32)
    """

    draws = False

    def __init__(
        self,
        num_classes: int,
        label_smoothing: float = 0.0,
        *,
        dtype: str = "float32",
        label: Place = None,
    ) -> None:
        super().__init__(None, label)
        check_integer("num_classes", num_classes, 1)
        self._num_classes = int(num_classes)
        self._smoothing = number("label_smoothing", label_smoothing, 0, 1)
        self._dtype = np.dtype(dtype)
        if self._dtype.kind != "f" and self._smoothing:
            raise ValueError(f"dtype must be a float type for smoothed labels, got {dtype!r}")

    def __call__(self, batch: Any, rng: np.random.Generator | None = None) -> Any:
        """Replace a batch's labels by one-hot rows; other members are returned uncopied."""
        return self.on_own_batch(batch, rng)

    def on_own_batch(self, batch: Any, rng: np.random.Generator | None = None) -> Any:
        """Replace a batch's labels by one-hot rows; no array is written to."""
        return self.with_labels(
            batch,
            lambda labels: one_hot(labels, self._num_classes, self._smoothing, self._dtype),
        )


def one_hot(
    labels: NDArray[Any], classes: int, smoothing: float = 0.0, dtype: Any = np.float32
) -> NDArray[Any]:
    """Convert class numbers to rows of shares."""
    if labels.dtype.kind not in "biu" and not (
        labels.dtype.kind == "f" and (labels == np.floor(labels)).all()
    ):
        raise TypeError(
            f"labels must be class numbers to be made one-hot, got {labels.dtype}{labels.shape}"
        )
    if labels.ndim > 1 and labels.shape[-1] == 1:
        labels = labels[..., 0]
    numbers = labels.astype(np.int64)
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < classes):
        raise ValueError(
            f"labels must be in range({classes}), the number of classes, got {numbers.min()} to "
            f"{numbers.max()}"
        )
    rest = smoothing / classes
    rows = np.full((*numbers.shape, classes), rest, dtype)
    np.put_along_axis(rows, numbers[..., None], np.asarray(1 - smoothing + rest, dtype), -1)
    return rows
