"""Copies of a ``SafeSequence`` are sequences of their own, also where its owner is copied.

An owner is whoever has the sequence, and whose method is its transform.
"""

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
from tests.keras.py_datasets import Shuffling
from tests.keras.recording import (
    INLINE,
    KINDS_OF_WORKERS,
    PROCESSES,
    TWO_THREADS,
    epochs_of,
    numbers,
    sequence_of,
)
from tests.keras.samples import Owner

pytestmark = pytest.mark.one_backend

BATCHES = 6
COPIES = [
    pytest.param(copy.copy, id="copy"),
    pytest.param(copy.deepcopy, id="deepcopy"),
    pytest.param(lambda sequence: pickle.loads(pickle.dumps(sequence)), id="pickle"),
]


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_closing_a_copy_leaves_the_original_open(copied, workers):
    with sequence_of(BATCHES, shuffle=True, **workers) as sequence:
        batches = iter(sequence)
        next(batches)
        copied(sequence).close()
        assert len(list(batches)) == BATCHES - 1


@pytest.mark.parametrize("copied", COPIES)
def test_closing_the_original_leaves_a_copy_open(copied):
    with sequence_of(BATCHES, **TWO_THREADS) as sequence:
        another = copied(sequence)
    with another:
        assert len(list(another)) == BATCHES


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_stands_where_the_original_did_and_moves_by_itself(copied):
    with sequence_of(BATCHES, shuffle=True, seed=3, **TWO_THREADS) as sequence:
        sequence.load_state_dict({"epoch": 2, "batch": 4})
        with copied(sequence) as another:
            found = [numbers(batch) for batch in another]
            expected = epochs_of(copied(sequence), 1, first=2)[4:]
            assert (found, another.epoch, sequence.epoch) == (expected, 3, 2)


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_has_the_arguments_of_the_original(copied):
    with sequence_of(BATCHES, workers=2, use_multiprocessing=True, max_queue_size=3) as sequence:
        another = copied(sequence)
        asked = another.workers, another.use_multiprocessing, another.max_queue_size
        assert (asked, another.num_batches) == ((2, True, 3), BATCHES)


def test_the_epoch_of_a_source_goes_along_when_it_is_pickled():
    with SafeSequence(Shuffling(3), workers=0) as sequence:
        for _ in range(2):
            list(sequence)
        with pickle.loads(pickle.dumps(sequence)) as another:
            assert [int(labels[0, 0]) for _, labels in another] == [2, 2, 2]


def test_a_copy_of_what_is_closed_is_open():
    sequence = sequence_of(BATCHES)
    sequence.close()
    with copy.copy(sequence) as another:
        assert len(list(another)) == BATCHES


# --- owners ---


class Data:
    """Has a sequence, and what its samples are multiplied by."""

    def __init__(self, **options: Any) -> None:
        self.factor = 3
        self.sequence = SafeSequence(np.arange(5), 1, transform=self.multiplied, **options)

    def multiplied(self, sample: Any) -> Any:
        return sample * self.factor


class Counting(Data):
    """Adds the length of its sequence, which it asks for where the batch is made."""

    def multiplied(self, sample: Any) -> Any:
        return sample * self.factor + 100 * len(self.sequence)


def read(sequence: SafeSequence) -> list[int]:
    return [int(batch[0]) for batch in sequence]


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_batches_of_its_owners_method_are_the_same_on_all_kinds_of_workers(workers):
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
def test_it_is_collected_with_its_owner_and_its_workers(workers):
    data = Data(**workers)
    next(iter(data.sequence))
    gone = weakref.ref(data)
    del data

    def collected() -> bool:
        gc.collect()  # Once its threads have done what they were at.
        names = {thread.name for thread in threading.enumerate()}
        return gone() is None and not any(name.startswith("adapters-worker") for name in names)

    wait_until(collected)
