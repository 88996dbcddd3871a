"""A ``SafeSequence`` by itself: length, indexing, iteration, epochs, state, closing."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

from adapters import ClosedError, SafeSequence
from tests.keras.recording import (
    ALL_WORKERS,
    INLINE,
    KINDS_OF_WORKERS,
    TWO_THREADS,
    epochs_of,
    numbers,
    sequence_of,
)
from tests.keras.samples import numbered
from tests.turns import read_by_threads

pytestmark = pytest.mark.one_keras

BATCHES = 6
SHARED = 301


def read(sequence: SafeSequence) -> list[list[int]]:
    return [numbers(batch) for batch in sequence]


@pytest.mark.parametrize(
    ("samples", "drop_remainder", "batches"), [(8, False, 2), (9, False, 3), (9, True, 2)]
)
def test_its_length_is_the_number_of_batches(samples, drop_remainder, batches):
    sequence = SafeSequence(numbered(samples), 4, drop_remainder=drop_remainder)
    assert (len(sequence), sequence.num_batches) == (batches, batches)


@pytest.mark.parametrize("workers", ALL_WORKERS)
def test_iterating_is_one_epoch_after_the_other(workers):
    with sequence_of(BATCHES, shuffle=True, **workers) as sequence:
        batches = [batch for _ in range(3) for batch in read(sequence)]
        assert batches == epochs_of(sequence, 3)


def test_indexing_is_about_the_current_epoch():
    sequence = sequence_of(BATCHES, shuffle=True)
    sequence.set_epoch(3)
    indexed = [numbers(sequence[index]) for index in range(BATCHES)]
    assert indexed == read(sequence)


def test_a_negative_index_counts_from_the_end():
    sequence = sequence_of(BATCHES)
    assert numbers(sequence[-1]) == numbers(sequence[BATCHES - 1])


def test_indexing_moves_nothing():
    sequence = sequence_of(BATCHES, shuffle=True)
    for index in range(BATCHES):
        sequence[index]
    assert (sequence.epoch, sequence.state_dict()) == (0, {"epoch": 0, "batch": 0})


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_threads_may_share_a_pass(workers):
    """Each batch goes to one of them."""
    with SafeSequence(np.arange(SHARED), batch_size=1, shuffle=True, **workers) as sequence:
        for epoch in range(3):
            given = read_by_threads(iter(sequence))
            assert sorted(int(batch[0]) for batch in given) == list(range(SHARED))
            assert sequence.state_dict() == {"epoch": epoch + 1, "batch": 0}


def test_many_threads_may_index_at_once():
    sequence, found = sequence_of(BATCHES, shuffle=True), {}
    together = threading.Barrier(BATCHES)

    def index(number: int) -> None:
        together.wait(10)
        found[number] = numbers(sequence[number])

    threads = [threading.Thread(target=index, args=(number,)) for number in range(BATCHES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert [found[number] for number in range(BATCHES)] == epochs_of(sequence, 1)


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_an_epoch_that_was_broken_off_is_replayed_whole(workers):
    with sequence_of(BATCHES, shuffle=True, **workers) as sequence:
        for _ in sequence:
            break
        assert read(sequence) == epochs_of(sequence, 1)


@pytest.mark.parametrize("epoch", [0, 3, 5])
def test_an_epoch_that_is_set_within_a_pass_holds_at_its_end(epoch):
    sequence = sequence_of(BATCHES, **INLINE)
    sequence.set_epoch(3)
    for _ in sequence:
        sequence.set_epoch(epoch)
    assert sequence.state_dict() == {"epoch": epoch, "batch": 0}


def test_a_state_that_is_loaded_within_a_pass_holds_at_its_end():
    sequence, state = sequence_of(BATCHES, **INLINE), {"epoch": 1, "batch": 2}
    sequence.set_epoch(2)
    for _ in sequence:
        sequence.load_state_dict(state)
    assert (sequence.state_dict(), len(list(sequence))) == (state, BATCHES - 2)


def test_the_epoch_advances_when_its_last_batch_is_delivered():
    sequence, epochs = sequence_of(BATCHES), []
    for _ in sequence:
        epochs.append(sequence.epoch)
    assert [*epochs[:-1], sequence.epoch] == [0] * (BATCHES - 1) + [1]


def test_state_dict_names_the_next_batch():
    sequence, states = sequence_of(3), []
    for _ in sequence:
        states.append(sequence.state_dict())
    assert states == [
        {"epoch": 0, "batch": 1},
        {"epoch": 0, "batch": 2},
        {"epoch": 1, "batch": 0},
    ]


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_a_loaded_state_is_where_the_next_pass_starts_and_the_ones_after_it_are_whole(workers):
    with sequence_of(BATCHES, shuffle=True, **workers) as sequence:
        sequence.load_state_dict({"epoch": 1, "batch": 4})
        batches = read(sequence) + read(sequence)
        assert batches == epochs_of(sequence, 2, first=1)[4:]


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_seed_decides_the_order(shuffle):
    orders = {str(read(sequence_of(BATCHES, shuffle=shuffle, seed=seed))) for seed in range(3)}
    assert len(orders) == (3 if shuffle else 1)


def test_a_closed_sequence_says_so():
    sequence = sequence_of(BATCHES, **TWO_THREADS)
    sequence.close()
    with pytest.raises(ClosedError):
        next(iter(sequence))


def test_closing_twice_is_harmless():
    sequence = sequence_of(BATCHES, **TWO_THREADS)
    next(iter(sequence))
    sequence.close()
    assert sequence.close() is None


def test_closing_in_the_middle_ends_the_pass_with_an_error_and_no_hang():
    sequence = sequence_of(BATCHES, **TWO_THREADS)
    batches = iter(sequence)
    next(batches)
    sequence.close()
    with pytest.raises(ClosedError):
        list(batches)


def test_an_iterator_keeps_its_sequence_alive():
    batches = iter(sequence_of(BATCHES, **TWO_THREADS))
    assert len(list(batches)) == BATCHES


def test_a_sequence_that_nobody_refers_to_is_gone_without_the_garbage_collector():
    sequence = sequence_of(BATCHES, **TWO_THREADS)
    alive = weakref.ref(sequence)
    read(sequence)
    gc.disable()
    try:
        del sequence
        assert alive() is None
    finally:
        gc.enable()


def test_batches_are_fresh_arrays_that_may_be_written_to():
    features, labels = numbered(8)
    for batch, _ in SafeSequence((features, labels), 4):
        batch[...] = -1
    np.testing.assert_array_equal(features, numbered(8)[0])
