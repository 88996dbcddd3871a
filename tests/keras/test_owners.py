"""A transform that is a method of whoever has the sequence: copies, worker processes, the end."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from adapters import SafeSequence
from tests.engine.executors import end_idle_workers, wait_until
from tests.keras.recording import INLINE, KINDS_OF_WORKERS, PROCESSES, TWO_THREADS
from tests.keras.samples import Owner

pytestmark = pytest.mark.one_backend

BATCHES = 5


class Data:
    """Has a sequence, and what its samples are multiplied by."""

    def __init__(self, **options: Any) -> None:
        self.factor = 3
        self.sequence = SafeSequence(np.arange(BATCHES), 1, transform=self.multiplied, **options)

    def multiplied(self, sample: Any) -> Any:
        return sample * self.factor


class Counting(Data):
    """Adds the length of its sequence, which it asks for where the batch is made."""

    def multiplied(self, sample: Any) -> Any:
        return sample * self.factor + 100 * len(self.sequence)


def read(sequence: SafeSequence) -> list[int]:
    return [int(batch[0]) for batch in sequence]


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_its_batches_are_the_same_on_all_kinds_of_workers(workers):
    data = Data(**workers)
    with data.sequence as sequence:
        assert [read(sequence) for _ in range(2)] == 2 * [[0, 3, 6, 9, 12]]


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_the_method_may_use_the_sequence(workers):
    data = Counting(**workers)
    with data.sequence as sequence:
        assert read(sequence) == [500, 503, 506, 509, 512]


@pytest.mark.one_keras
def test_worker_processes_import_no_framework_for_it():
    end_idle_workers()  # They may have used a sequence.
    owner = Owner()
    owner.sequence = SafeSequence(list(range(8)), 4, transform=owner.frameworks, **PROCESSES)
    with owner.sequence as sequence:
        np.testing.assert_array_equal(list(sequence), np.zeros((2, 4, 1)))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
def test_a_copy_of_the_owner_has_a_sequence_with_its_own_method(copied):
    data = Data(**TWO_THREADS)
    another = copied(data)
    another.factor = 5
    with data.sequence, another.sequence:
        assert read(another.sequence) == [0, 5, 10, 15, 20]
        assert read(data.sequence) == [0, 3, 6, 9, 12]


@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS])
def test_it_is_collected_with_its_workers(workers):
    data = Data(**workers)
    next(iter(data.sequence))
    gone = weakref.ref(data)
    del data

    def collected() -> bool:
        gc.collect()  # Once its threads have done what they were at.
        names = {thread.name for thread in threading.enumerate()}
        return gone() is None and not any(name.startswith("adapters-worker") for name in names)

    wait_until(collected)
