"""Batches of images for the tests of transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

LAYOUTS = ("NHWC", "NCHW")
DTYPES = ("uint8", "float32")


def pictures(
    count: int = 6, layout: str = "NHWC", dtype: str = "uint8", size: tuple[int, int] = (13, 17)
) -> Any:
    """Images whose pixels all differ, of that layout."""
    rng = np.random.default_rng(count)
    images = rng.integers(0, 256, (count, *size, 3), np.uint8)
    if layout == "NCHW":
        images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return images if dtype == "uint8" else (images / 255).astype(dtype)


def last(images: Any, layout: str) -> Any:
    """The same with the channels last."""
    return images.transpose(0, 2, 3, 1) if layout == "NCHW" else images


def rng(seed: int = 0) -> np.random.Generator:
    """A generator, as a loader gives it."""
    return np.random.default_rng(seed)
