"""Bytes to floats in the kernel: the division's own values, channels first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adapters.images import kernel

KERNEL = kernel.load()
pytestmark = pytest.mark.skipif(KERNEL is None, reason="the kernel wasn't built")


def floats(images: Any, channels: int) -> Any:
    count, *sides, _ = images.shape
    out = np.full((count, channels, *sides), np.nan, np.float32)
    KERNEL.floats(images, count, channels, out)
    return out


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
def test_every_byte_is_divided_to_the_bit(channels):
    values = np.arange(256 * channels).astype(np.uint8)  # Each comes in each channel.
    images = np.concatenate([np.roll(values, place) for place in range(channels)])
    images = images.reshape(channels, 256, 1, channels)
    expected = images.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
    assert np.array_equal(floats(images, channels), expected)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (64, 28, 28), (2, 480, 500)])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_images_of_any_size_are_turned(shape, channels):
    """The last is above what the GIL is kept for."""
    images = np.random.default_rng(0).integers(0, 256, (*shape, channels), np.uint8)
    expected = images.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
    assert np.array_equal(floats(images, channels), expected)


@pytest.mark.parametrize(
    "arguments",
    [
        (np.zeros(12, np.uint8), 0, 3, np.zeros(12, np.float32)),
        (np.zeros(12, np.uint8), 2, 0, np.zeros(12, np.float32)),
        (np.zeros(12, np.uint8), 2, 4, np.zeros(12, np.float32)),
        (np.zeros(12, np.uint8), 2**40, 2**40, np.zeros(12, np.float32)),
        (np.zeros(12, np.uint8), -2, -3, np.zeros(12, np.float32)),
        (np.zeros(0, np.uint8), 1, 1, np.zeros(0, np.float32)),
        (np.zeros(12, np.uint8), 2, 3, np.zeros(11, np.float32)),
        (np.zeros(12, np.uint8), 2, 3, np.zeros(49, np.uint8)[:-1][1:]),
        (np.zeros(12, np.uint8), 2, 3, np.zeros(49, np.uint8)[1:]),
    ],
)
def test_what_does_not_fit_is_refused(arguments):
    images, count, channels, out = arguments
    with pytest.raises(ValueError, match="must be count images of channels, out as many floats"):
        KERNEL.floats(images, count, channels, out)
    assert not out.any()


def test_memory_that_is_read_only_or_apart_is_refused():
    images, out = np.zeros((2, 3), np.uint8), np.zeros(6, np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        KERNEL.floats(images, 2, 3, out)
    with pytest.raises(ValueError, match="contiguous"):
        KERNEL.floats(images[:, ::2], 2, 1, np.zeros(4, np.float32))
