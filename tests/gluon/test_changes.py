"""Data sets that change between epochs."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset, Dataset

from adapters import gluon_loader


class Growing(Dataset):
    """All samples are of the same number, which the trainer changes."""

    number = 0

    def __len__(self) -> int:
        return 160

    def __getitem__(self, index: int) -> Any:
        return np.full(2, self.number)


def busy(sample: Any) -> Any:
    """Holds the GIL for so long that "auto" takes processes."""
    until = time.perf_counter() + 0.003
    while time.perf_counter() < until:
        pass
    return sample


def seen(loader: Any) -> set[float]:
    return {float(value) for batch in loader for value in batch.asnumpy().ravel()}


@pytest.mark.parametrize(
    "arguments",
    [{}, {"num_workers": 0}, {"num_workers": 2, "thread_pool": True}],
    ids=["auto", "inline", "threads"],
)
def test_an_epoch_has_the_data_set_as_it_is_when_it_begins(arguments):
    data = Growing()
    with gluon_loader(data.transform(busy), 8, **arguments) as loader:
        epochs = []
        for data.number in range(5):
            epochs.append(seen(loader))
        assert epochs == [{0.0}, {1.0}, {2.0}, {3.0}, {4.0}]


def test_an_array_that_was_changed_in_place_is_sent_to_processes_again():
    array = np.zeros((160, 2))
    with gluon_loader(ArrayDataset(array).transform(busy), 8) as loader:
        epochs = []
        for number in range(5):
            array[:] = number
            epochs.append(seen(loader))
        assert epochs == [{0.0}, {1.0}, {2.0}, {3.0}, {4.0}]
