"""Transforms of batches in a ``SafeSequence``: the same for every kind of workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adapters import SafeSequence
from adapters.alignment import ALIGNMENT_BYTES
from adapters.transforms import Chain, ColorJitter, CutMix, MixUp, OneHot, RandomErasing
from tests.batches import exact

pytestmark = pytest.mark.usefixtures("sent_by_value")

X = np.random.default_rng(0).integers(0, 256, (30, 16, 16, 3), np.uint8)
Y = np.arange(30) % 5


def noisy(batch: Any) -> Any:
    images, labels = batch
    return images + np.random.randint(0, 2, images.shape, np.uint8), labels


ALL = Chain(
    [OneHot(5, 0.1), ColorJitter(0.4, 0.4, 0.4, 0.1), RandomErasing(1.0), MixUp(), CutMix()]
)


def epochs_of(transform: Any, **arguments: Any) -> list[Any]:
    with SafeSequence(
        (X, Y), 8, shuffle=True, seed=4, batch_transform=transform, **arguments
    ) as sequence:
        return [[exact(batch) for batch in sequence] for _ in range(2)]


@pytest.mark.one_backend
@pytest.mark.parametrize("transform", [ALL, Chain([noisy, MixUp(num_classes=5)])], ids=str)
def test_every_kind_of_workers_gives_the_same_batches_and_leaves_the_arrays_alone(transform):
    before = X.copy()
    inline = epochs_of(transform, workers=0)
    assert epochs_of(transform, workers=2) == inline
    assert epochs_of(transform, workers=2, use_multiprocessing=True) == inline
    assert inline[0] != inline[1]
    assert (before == X).all()


def test_a_batch_that_a_data_set_keeps_is_not_written_to():
    import keras

    class Kept(keras.utils.PyDataset):
        """Gives views of one array."""

        thread_safe = True

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return X[index * 8 : index * 8 + 8]

    before = X.copy()
    for batch in SafeSequence(Kept(), batch_transform=RandomErasing(1.0), workers=0):
        assert (batch != before[:8]).any()
    assert (before == X).all()


def test_the_batch_is_not_copied_for_it():
    seen: list[int] = []

    def address(batch: Any) -> Any:
        seen.append(batch[0].__array_interface__["data"][0])
        return batch

    chain = Chain([address, ColorJitter(0.4), address])
    sequence = SafeSequence((X, Y), 8, batch_transform=Chain([ColorJitter(0.4)]), workers=0)
    assert sequence[0][0].__array_interface__["data"][0] % ALIGNMENT_BYTES == 0
    batch = SafeSequence((X, Y), 8, batch_transform=chain, workers=0)[0]
    assert seen[0] != seen[1]  # What a function of the user's has returned may be kept by him.
    assert batch[0].shape == (8, 16, 16, 3)
