"""Copies of a ``SafeSequence`` are sequences of their own."""

from __future__ import annotations

import copy
import pickle

import pytest

from adapters import SafeSequence
from tests.keras.py_datasets import Shuffling
from tests.keras.recording import KINDS_OF_WORKERS, TWO_THREADS, epochs_of, numbers, sequence_of

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
