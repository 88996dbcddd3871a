"""A source and transforms of your own: anything with `__len__` and `__getitem__`."""

from __future__ import annotations

import logging

import numpy as np

from adapters import SafeSequence


class Sines:
    """Noisy sines and their frequencies; a sample depends on its number alone."""

    def __len__(self) -> int:
        """Number of samples."""
        return 4000

    def __getitem__(self, number: int) -> tuple[np.ndarray, np.float32]:
        """float32 (256,), and a frequency."""
        frequency = np.float32(1 + number % 16)
        return np.sin(np.linspace(0, 6.28, 256, dtype="float32") * frequency), frequency


def noisy(sample, rng):
    """Of one sample; the generator depends on the seed, the epoch and the sample's number."""
    wave, frequency = sample
    return wave + rng.normal(0, 0.1, wave.shape).astype("float32"), frequency


def scaled(batch):
    """Of a batch at a time, which is often ten times as fast as sample by sample."""
    waves, frequencies = batch
    return (waves - waves.mean(axis=1, keepdims=True)) / waves.std(
        axis=1, keepdims=True
    ), frequencies


logging.basicConfig(level="INFO")
first, second = (
    SafeSequence(
        Sines(), 64, shuffle=True, transform=noisy, batch_transform=scaled, workers=workers
    )
    for workers in (0, 2)
)
with first, second:
    for one, other in zip(first, second):
        assert all(np.array_equal(*pair) for pair in zip(one, other))
print(f"{len(first)} batches of {one[0].shape}: the same with no worker and with two")
first.explain()
