"""A sequence of whole batches that may not be thread-safe."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
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


@pytest.mark.parametrize(("thread_safe", "most"), [(None, 1), (False, 1), (True, 2)])
def test_only_a_thread_safe_sequence_is_asked_by_two_threads_at_once(thread_safe, most):
    batches = Batches(thread_safe)
    source = SequenceSource(batches, False)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(source.batch, [0, 0]))
    assert batches.most_inside == most


def test_the_hooks_of_the_sequence_are_called():
    batches = Batches()
    source = SequenceSource(batches, True)
    source.begin_epoch()
    source.end_epoch()
    assert batches.calls == ["begin", "end"]


def test_a_sequence_needs_no_hooks():
    source = SequenceSource([1, 2], True)
    source.begin_epoch()
    source.end_epoch()
    assert source.batch(1) == 2


def test_a_pickled_copy_has_a_lock_of_its_own():
    copy = cloudpickle.loads(cloudpickle.dumps(SequenceSource([5, 6], False)))
    assert (len(copy), copy.batch(1)) == (2, 6)


def test_num_batches_comes_before_len():
    sequence = SimpleNamespace(num_batches=7)
    assert len(SequenceSource(sequence, False)) == 7


@pytest.mark.parametrize(
    ("sequence", "message"),
    [
        (SimpleNamespace(num_batches=None), "SimpleNamespace must have a finite length"),
        ([], "source must hold at least one batch, got 0"),
    ],
)
def test_a_sequence_without_an_end_or_a_batch_is_refused(sequence, message):
    with pytest.raises(ValueError, match=message):
        SequenceSource(sequence, False)


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
