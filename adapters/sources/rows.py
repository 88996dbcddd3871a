"""Writing of labels and images into rows of an allocated batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError, UnlikeError
from adapters.images import decode as decode_image


def put_label(label: Any, labels: NDArray[Any], row: int) -> None:
    """Write a label into its row, if shape and dtype are as expected."""
    # Single numbers. Worth it: 25 instead of 35 us for an image of 32x32 in RecordIO, decoded, and
    # 35 instead of 38 in TFRecord (2 cores, CPU time, 2026-11).
    if type(label) is int and labels.ndim == 1 and labels.dtype == np.int64:
        labels[row] = label
        return
    if type(label) is float and labels.ndim == 1 and labels.dtype.kind == "f":
        labels[row] = label
        if labels[row] == label:
            return
    array = np.asarray(label)
    if array.shape != labels.shape[1:]:
        raise UnlikeError(
            f"a label of shape {labels.shape[1:]}",
            f"shape {array.shape}; labels that differ need collate=, such as pad(), or a transform",
        )
    labels[row] = array
    if not np.array_equal(labels[row], array, equal_nan=array.dtype.kind == "f"):
        raise UnlikeError(f"a label of {labels.dtype}", f"{label!r}")


def put_image(encoded: memoryview, images: NDArray[Any], row: int) -> None:
    """Write an image into its row, if shape and dtype are as expected."""
    array = decode_image(encoded)
    if array.shape != images.shape[1:] or array.dtype != images.dtype:
        raise ContentError(f"{images.dtype} {images.shape[1:]}", f"{array.dtype} {array.shape}")
    images[row] = array
