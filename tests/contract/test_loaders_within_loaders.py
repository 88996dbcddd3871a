"""A loader that the data set of another one reads: the two never wait for each other for good."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from adapters import SafeSequence

WORKERS: list[Any] = [0, 2, "auto"]


def slowly(batch: Any) -> Any:
    """Take long enough that ``"auto"`` tries two threads."""
    end = time.perf_counter() + 0.002
    while time.perf_counter() < end:
        pass
    return batch


class Sums:
    """Each sample is the sum of what another loader gives."""

    def __init__(self, workers: Any) -> None:
        self.workers = workers

    def __len__(self) -> int:
        return 2

    def __getitem__(self, number: int) -> np.float32:
        numbers = np.arange(40, dtype="float32") + number
        with SafeSequence(numbers, 4, batch_transform=slowly, workers=self.workers) as sequence:
            return np.float32(sum(float(np.sum(batch)) for batch in sequence))


class Slow:
    """Numbers, each of which takes a while."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, number: int) -> np.float32:
        time.sleep(0.001)
        return np.float32(number)


class Firsts:
    """Each sample is the first batch of another loader, which is closed after it."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, number: int) -> Any:
        with SafeSequence(Slow(), 4, workers=2) as sequence:
            return next(iter(sequence))


@pytest.mark.parametrize("inner", WORKERS)
@pytest.mark.parametrize("outer", WORKERS)
def test_a_loader_whose_batches_alone_are_of_the_users_code(outer, inner):
    with SafeSequence(Sums(inner), 1, workers=outer) as sequence:
        assert [batch.tolist() for batch in sequence] == [[780.0], [820.0]]


@pytest.mark.parametrize("outer", WORKERS)
def test_a_loader_that_is_closed_early_waits_for_no_thread_of_its_own(outer, caplog):
    with SafeSequence(Firsts(), 1, workers=outer) as sequence:
        assert [batch.tolist() for batch in sequence] == [[[0, 1, 2, 3]]] * 2
    assert "is left there" not in caplog.text
