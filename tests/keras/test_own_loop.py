"""A loop of the program's own over ``seq[i]``, which says by ``on_epoch_end()`` that it is over."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from tests.keras.py_datasets import Hooked, Shuffling
from tests.keras.recording import INLINE, PROCESSES, TWO_THREADS, built_recorder
from tests.keras.samples import numbered

COUNT, SIZE = 20, 4
WORKERS = [
    pytest.param(INLINE, id="inline"),
    pytest.param(TWO_THREADS, id="threads"),
    pytest.param(PROCESSES, id="processes"),
]


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


@pytest.mark.parametrize("workers", WORKERS)
def test_each_epoch_has_the_order_that_it_has_in_a_pass(orders, workers):
    with shuffled(**workers) as sequence:
        assert [by_number(sequence) for _ in range(3)] == orders[:3]
        assert (sequence.epoch, sequence.state_dict()) == (3, {"epoch": 3, "batch": 0})
        assert rows(sequence) == orders[3]


def test_after_a_pass_that_came_to_its_end_it_says_nothing_new(orders):
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


def test_a_look_at_a_batch_within_a_pass_changes_nothing(orders):
    with shuffled() as sequence:
        found = []
        for batch in sequence:
            sequence[0]
            found.append(batch)
        sequence.on_epoch_end()
        assert (rows(found), sequence.epoch) == (orders[0], 1)


def test_after_a_pass_a_loop_by_number_has_an_end_of_its_own(orders):
    with shuffled() as sequence:
        assert rows(sequence) == orders[0]
        assert [by_number(sequence) for _ in range(2)] == orders[1:3]


def test_a_pass_that_was_abandoned_is_not_replayed(orders):
    with shuffled() as sequence:
        next(iter(sequence))
        sequence.on_epoch_end()
        assert rows(sequence) == orders[1]


def test_an_epoch_that_goes_on_in_its_middle_ends_too(orders):
    with shuffled() as sequence:
        sequence.load_state_dict({"epoch": 1, "batch": 2})
        assert by_number(sequence) == orders[1]
        assert by_number(sequence) == orders[2]


def test_keras_and_its_callbacks_advance_nothing_by_it(orders):
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


def test_a_callback_may_loop_over_a_sequence_that_is_its_own(orders):
    found = []
    with shuffled() as sequence, shuffled() as other:
        told = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: found.append(by_number(other))
        )
        built_recorder().fit(sequence, epochs=3, callbacks=[told], verbose=0)
    assert found == orders[:3]


def test_the_hooks_of_a_pydataset_are_called_once():
    source = Hooked(3)
    with SafeSequence(source, workers=0) as sequence:
        for _ in range(2):
            by_number(sequence)
        assert source.calls == ["begin", "end", "begin", "end", "begin"]


@pytest.mark.parametrize("workers", WORKERS)
def test_a_pydataset_shuffles_itself(workers):
    with SafeSequence(Shuffling(3), **workers) as sequence:
        expected = [rows(sequence) for _ in range(3)]
    with SafeSequence(Shuffling(3), **workers) as sequence:
        assert [by_number(sequence) for _ in range(3)] == expected


class WithHooks(SafeSequence):
    """Writes down its hooks; as stock classes do, it calls those of its base."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.calls: list[str] = []
        self.on_epoch_end()  # As stock classes do, to shuffle for the first time.
        super().__init__(*args, **options)

    def on_epoch_begin(self) -> None:
        super().on_epoch_begin()
        self.calls.append(f"begin {self.epoch}")

    def on_epoch_end(self) -> None:
        self.calls.append("end")
        if len(self.calls) > 1:
            super().on_epoch_end()


class Inheriting(WithHooks):
    """Its hooks call those of its base."""

    def on_epoch_end(self) -> None:
        super().on_epoch_end()


@pytest.mark.parametrize("kind", [WithHooks, Inheriting])
@pytest.mark.parametrize("begins", [False, True])
def test_a_subclass_has_its_hooks_called_once(kind, begins, orders):
    with kind(numbered(COUNT), SIZE, shuffle=True, seed=5, **TWO_THREADS) as sequence:
        found = []
        for _ in range(2):
            if begins:
                sequence.on_epoch_begin()
            found.append(by_number(sequence))
        assert found == orders[:2]
        assert sequence.calls == ["end", "begin 0", "end", "begin 1", "end"]
        assert rows(sequence) == orders[2]
        sequence.on_epoch_end()
        assert sequence.calls[5:] == ["begin 2", "end"]


def test_a_source_without_an_end_has_its_hooks_called():
    class Endless(keras.utils.PyDataset):
        """Any number is that of a batch."""

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
