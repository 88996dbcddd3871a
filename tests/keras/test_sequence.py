"""``SafeSequence`` without ``fit``: length, items, passes, epochs, state, copies, closing."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from typing import Any

import keras
import numpy as np
import pytest

from adapters import ClosedError, SafeSequence
from tests.engine.executors import wait_until
from tests.keras.py_datasets import Hooked, Shuffling
from tests.keras.recording import (
    INLINE,
    KINDS_OF_WORKERS,
    PROCESSES,
    TWO_THREADS,
    built_recorder,
    epochs_of,
    numbers,
    sequence_of,
)
from tests.keras.samples import numbered
from tests.turns import read_by_threads

BATCHES = 6
SHARED = 301
COUNT, SIZE = 20, 4


def read(sequence: SafeSequence) -> list[list[int]]:
    return [numbers(batch) for batch in sequence]


@pytest.mark.parametrize(
    ("samples", "drop_remainder", "batches"), [(8, False, 2), (9, False, 3), (9, True, 2)]
)
def test_length(samples, drop_remainder, batches):
    sequence = SafeSequence(numbered(samples), 4, drop_remainder=drop_remainder)
    assert (len(sequence), sequence.num_batches) == (batches, batches)


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_threads_share_a_pass(workers):
    with SafeSequence(np.arange(SHARED), batch_size=1, shuffle=True, **workers) as sequence:
        for epoch in range(3):
            given = read_by_threads(iter(sequence))
            assert sorted(int(batch[0]) for batch in given) == list(range(SHARED))
            assert sequence.state_dict() == {"epoch": epoch + 1, "batch": 0}


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_pass_broken_off_is_replayed(workers):
    with sequence_of(BATCHES, shuffle=True, **workers) as sequence:
        for _ in sequence:
            break
        assert read(sequence) == epochs_of(sequence, 1)


def test_state_after_each_batch():
    sequence, states, epochs = sequence_of(3), [], []
    for _ in sequence:
        states.append(sequence.state_dict())
        epochs.append(sequence.epoch)
    assert [*epochs[:-1], sequence.epoch] == [0, 0, 1]
    assert states == [
        {"epoch": 0, "batch": 1},
        {"epoch": 0, "batch": 2},
        {"epoch": 1, "batch": 0},
    ]


def test_close_within_pass():
    sequence = sequence_of(BATCHES, **TWO_THREADS)
    batches = iter(sequence)
    next(batches)
    sequence.close()
    with pytest.raises(ClosedError):
        list(batches)
    with pytest.raises(ClosedError):
        next(iter(sequence))


@pytest.mark.parametrize("state", [{"epoch": 0, "batch": 0}, {"epoch": 1, "batch": 2}])
def test_state_set_within_pass(state):
    sequence = sequence_of(BATCHES, **INLINE)
    sequence.set_epoch(2)
    for _ in sequence:
        sequence.set_epoch(state["epoch"])
        if state["batch"]:
            sequence.load_state_dict(state)
    assert (sequence.state_dict(), len(list(sequence))) == (state, BATCHES - state["batch"])


# --- a loop over items, which says by ``on_epoch_end()`` that it is over ---


def shuffled(**options: Any) -> SafeSequence:
    return SafeSequence(numbered(COUNT), SIZE, shuffle=True, seed=5, **options)


def rows(batches: Any) -> list[float]:
    return [float(x) for features, _ in batches for x in np.ravel(features)]


def by_number(sequence: Any) -> list[float]:
    """One epoch, as stock code reads it."""
    found = rows([sequence[index] for index in range(len(sequence))])
    sequence.on_epoch_end()
    return found


@pytest.fixture
def orders() -> list[list[float]]:
    """Of the epochs."""
    with shuffled() as sequence:
        return [rows(sequence) for _ in range(5)]


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_loop_has_the_orders_of_passes(orders, workers):
    with shuffled(**workers) as sequence:
        assert [by_number(sequence) for _ in range(3)] == orders[:3]
        assert (sequence.epoch, sequence.state_dict()) == (3, {"epoch": 3, "batch": 0})
        assert rows(sequence) == orders[3]


def test_on_epoch_end_after_a_pass(orders):
    with shuffled() as sequence:
        found = []
        for _ in range(3):
            found.append(rows(sequence))
            sequence.on_epoch_end()
        assert (found, sequence.epoch) == (orders[:3], 3)
        zipped = [batch for _, batch in zip(range(len(sequence)), sequence)]  # Without asking on.
        sequence.on_epoch_end()
        assert (rows(zipped), sequence.epoch) == (orders[3], 4)
        sequence.on_epoch_end()
        assert sequence.epoch == 5


def test_item_within_a_pass(orders):
    with shuffled() as sequence:
        found = []
        for batch in sequence:
            sequence[0]
            found.append(batch)
        sequence.on_epoch_end()
        assert (rows(found), sequence.epoch) == (orders[0], 1)


def test_on_epoch_end_within_a_pass(orders):
    with shuffled() as sequence:
        next(iter(sequence))
        sequence.on_epoch_end()
        assert rows(sequence) == orders[1]


def test_loop_after_loaded_state(orders):
    with shuffled() as sequence:
        sequence.load_state_dict({"epoch": 1, "batch": 2})
        assert by_number(sequence) == orders[1]
        assert by_number(sequence) == orders[2]


def test_on_epoch_end_in_callback(orders):
    model = built_recorder()
    with shuffled() as sequence, shuffled() as validation:

        def end(epoch: int, logs: Any) -> None:
            sequence.on_epoch_end()
            validation.on_epoch_end()

        told = keras.callbacks.LambdaCallback(on_epoch_end=end)
        model.fit(sequence, validation_data=validation, epochs=3, callbacks=[told], verbose=0)
        assert sequence.epoch == 3
        assert rows(model.lists.trained) == [row for order in orders[:3] for row in order]
        model.evaluate(sequence, verbose=0)
        model.predict(sequence, verbose=0)
        assert sequence.epoch == 5


def test_loop_in_callback(orders):
    found = []
    with shuffled() as sequence, shuffled() as other:
        told = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: found.append(by_number(other))
        )
        built_recorder().fit(sequence, epochs=3, callbacks=[told], verbose=0)
    assert found == orders[:3]


def test_hooks_of_endless_source():
    class Endless(keras.utils.PyDataset):
        num_batches = None
        on_epoch_begin, on_epoch_end = Hooked.on_epoch_begin, Hooked.on_epoch_end

        def __getitem__(self, index: int) -> Any:
            return np.full((SIZE, 1), index), np.full((SIZE, 1), index)

    source = Endless()
    source.calls = []
    with SafeSequence(source, workers=0) as sequence:
        for _ in range(2):
            sequence[0], sequence[1]
            sequence.on_epoch_end()
    assert source.calls == ["begin", "end", "begin", "end", "begin"]


def test_hooks_of_source_in_loop():
    source = Hooked(3)
    with SafeSequence(source, workers=0) as sequence:
        for _ in range(2):
            by_number(sequence)
        assert source.calls == ["begin", "end", "begin", "end", "begin"]


@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS])
def test_source_shuffles_itself_in_loop(workers):
    with SafeSequence(Shuffling(3), **workers) as sequence:
        expected = [rows(sequence) for _ in range(3)]
    with SafeSequence(Shuffling(3), **workers) as sequence:
        assert [by_number(sequence) for _ in range(3)] == expected


# --- copies; an owner has the sequence, and a method of it is the transform ---


def pickled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


COPIES = [copy.copy, copy.deepcopy, pickled]


def values(sequence: SafeSequence) -> list[int]:
    return [int(batch[0]) for batch in sequence]


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("copied", "workers"),
    [(copy.copy, PROCESSES), (copy.deepcopy, INLINE), (pickled, TWO_THREADS)],
)
def test_copy_closed(copied, workers):
    with sequence_of(BATCHES, shuffle=True, **workers) as sequence:
        batches = iter(sequence)
        next(batches)
        copied(sequence).close()
        assert len(list(batches)) == BATCHES - 1


@pytest.mark.one_backend
@pytest.mark.parametrize("copied", COPIES)
def test_copy_has_state_of_its_own(copied):
    with sequence_of(BATCHES, shuffle=True, seed=3, **TWO_THREADS) as sequence:
        sequence.load_state_dict({"epoch": 2, "batch": 4})
        with copied(sequence) as another:
            found = [numbers(batch) for batch in another]
            expected = epochs_of(copied(sequence), 1, first=2)[4:]
            assert (found, another.epoch, sequence.epoch) == (expected, 3, 2)


@pytest.mark.one_backend
@pytest.mark.parametrize("copied", COPIES)
def test_copy_has_arguments(copied):
    with sequence_of(BATCHES, workers=2, use_multiprocessing=True, max_queue_size=3) as sequence:
        another = copied(sequence)
        asked = another.workers, another.use_multiprocessing, another.max_queue_size
        assert (asked, another.num_batches) == ((2, True, 3), BATCHES)


@pytest.mark.one_backend
def test_pickle_takes_epoch_of_source():
    with SafeSequence(Shuffling(3), workers=0) as sequence:
        for _ in range(2):
            list(sequence)
        with pickled(sequence) as another:
            assert [int(labels[0, 0]) for _, labels in another] == [2, 2, 2]


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


@pytest.mark.one_backend
@pytest.mark.usefixtures("light_workers")
@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_method_of_owner_uses_sequence(workers):
    data = Counting(**workers)
    with data.sequence as sequence:
        assert values(sequence) == [500, 503, 506, 509, 512]


@pytest.mark.one_backend
@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_copy_of_owner(copied):
    data = Data(**TWO_THREADS)
    another = copied(data)
    another.factor = 5
    with data.sequence, another.sequence:
        assert values(another.sequence) == [0, 5, 10, 15, 20]
        assert values(data.sequence) == [0, 3, 6, 9, 12]


@pytest.mark.one_backend
@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS])
def test_owner_is_collected(workers):
    data = Data(**workers)
    next(iter(data.sequence))
    gone = weakref.ref(data)
    del data

    def collected() -> bool:
        gc.collect()  # Once its threads have done what they were at.
        names = {thread.name for thread in threading.enumerate()}
        return gone() is None and not any(name.startswith("adapters-worker") for name in names)

    wait_until(collected)
