"""A sequence of whole batches that may not be thread-safe."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import pytest

from adapters.sources import SequenceSource
from tests.batches import exact
from tests.plans import batch_of, epoch_of, notes_of, plan_of


class Batches:
    """Three batches; counts how many threads are in ``__getitem__`` at once."""

    def __init__(self, thread_safe: bool | None = None) -> None:
        if thread_safe is not None:
            self.thread_safe = thread_safe
        self.inside = 0
        self.most_inside = 0
        self.together = threading.Event()
        self.calls: list[str] = []

    def __len__(self) -> int:
        return 3

    def __getitem__(self, number: int) -> Any:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        if self.inside == 2:
            self.together.set()
        if number == 0:
            self.together.wait(0.2)
        self.inside -= 1
        return np.full(2, number), [number]

    def on_epoch_begin(self) -> None:
        self.calls.append("begin")

    def on_epoch_end(self) -> None:
        self.calls.append("end")


def test_a_batch_is_an_item():
    plan = plan_of(SequenceSource(Batches(True), False), 1)
    assert exact(epoch_of(plan)[2]) == exact((np.array([2, 2]), np.array([2])))


def test_batches_are_shuffled_and_sharded_as_samples_are():
    plans = [
        plan_of(SequenceSource([10, 11, 12, 13], False), 1, shuffle=True, shard=(index, 2))
        for index in range(2)
    ]
    assert sorted(epoch_of(plans[0]) + epoch_of(plans[1])) == [10, 11, 12, 13]


def test_the_hooks_of_the_sequence_are_called():
    batches = Batches()
    source = SequenceSource(batches, True)
    assert [source.enter_epoch(epoch) for epoch in (0, 0, 1)] == [False, False, True]
    assert batches.calls == ["begin", "end", "begin"]


def test_a_sequence_needs_no_hooks():
    source = SequenceSource([1, 2], True)
    source.enter_epoch(1)
    source.turn()
    assert source.batch(1) == 2


def test_the_hooks_between_two_epochs_of_keras_are_called():
    batches = Batches()
    SequenceSource(batches, True).turn()
    assert batches.calls == ["end", "begin"]


def test_a_pickled_copy_is_in_the_same_epoch():
    source = SequenceSource([5, 6], True)
    source.enter_epoch(2)
    copy = cloudpickle.loads(cloudpickle.dumps(source))
    assert (copy.enter_epoch(2), copy.enter_epoch(3)) == (False, True)


def test_a_pickled_copy_has_a_lock_of_its_own():
    copy = cloudpickle.loads(cloudpickle.dumps(SequenceSource([5, 6], False)))
    assert (len(copy), copy.batch(1)) == (2, 6)


def test_num_batches_comes_before_len():
    sequence = SimpleNamespace(num_batches=7)
    assert len(SequenceSource(sequence, False)) == 7


class Unsaid:
    """As a ``PyDataset`` that implements neither."""

    @property
    def num_batches(self) -> int:
        raise NotImplementedError


@pytest.mark.parametrize("sequence", [SimpleNamespace(num_batches=None), Unsaid()])
def test_a_sequence_without_a_number_of_batches_has_no_end(sequence):
    source = SequenceSource(sequence, False)
    assert source.endless
    with pytest.raises(TypeError, match="has no end, and so no length"):
        len(source)


def test_a_sequence_without_a_batch_is_refused():
    with pytest.raises(ValueError, match="source must hold at least one batch, got 0"):
        SequenceSource([], False)


def test_an_item_of_none_is_refused():
    plan = plan_of(SequenceSource([None], False), 1)
    with pytest.raises(ValueError, match="source must return a batch for number 0, got None"):
        batch_of(plan)


def test_an_exception_says_which_item():
    class Broken(Batches):
        def __getitem__(self, number: int) -> Any:
            raise OSError("spoilt")

    with pytest.raises(OSError, match="spoilt") as info:
        batch_of(plan_of(SequenceSource(Broken(), False), 1), 4, 2)
    assert notes_of(info.value) == "in item 2 of the source, batch 2 of epoch 4"
