"""Small batches reach TensorFlow in groups, and nobody but it can tell."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.keras.dataset import Groups, worth_grouping
from tests.keras.recording import AUTO, INLINE, TWO_THREADS, AfterBatch, built_recorder
from tests.keras.samples import numbered


def batches(*sizes: int) -> Iterator[Any]:
    """Batches of these sizes, numbered from 0 on."""
    for number, size in enumerate(sizes):
        yield np.full((size, 2), number, np.float32), {"label": np.full(size, -number)}


def groups_of(most: int, *sizes: int) -> list[list[int]]:
    """The numbers of the batches in each group."""
    return [group[0][:, 0, 0].tolist() for group in Groups(batches(*sizes), lambda: most)]


def test_as_many_are_put_together_as_may_be():
    assert groups_of(3, 4, 4, 4, 4, 4) == [[0, 1, 2], [3, 4]]
    assert groups_of(1, 4, 4) == [[0], [1]]


def test_no_group_grows_without_bound():
    assert max(map(len, groups_of(1000, *50 * [4]))) <= 8


def test_a_batch_of_another_shape_begins_a_group():
    assert groups_of(8, 4, 4, 3, 4, 3, 3) == [[0, 1], [2], [3], [4, 5]]


def test_a_group_has_the_structure_of_a_batch():
    (features, labels), *_ = Groups(batches(4, 4), lambda: 8)
    assert (features.shape, labels["label"].shape) == ((2, 4, 2), (2, 4))
    np.testing.assert_array_equal(labels["label"], [4 * [0], 4 * [-1]])


def test_batches_that_take_their_time_are_not_waited_for():
    def slow() -> Iterator[Any]:
        for batch in batches(4, 4, 4):
            threading.Event().wait(0.005)
            yield batch

    assert [len(group[0]) for group in Groups(slow(), lambda: 8)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("batch", "worth_it"),
    [
        ((np.zeros((64, 28, 28), np.float32), np.zeros(64)), True),
        ({"a": np.zeros((64, 8)), "b": (np.zeros(64, bool),)}, True),
        ((np.zeros((64, 224, 224, 3), np.uint8),), False),
        ((np.array(["a", "b"], object),), False),
        ((keras.ops.zeros((4, 2)),), False),
    ],
    ids=["digits", "nested", "photographs", "strings", "tensors"],
)
def test_what_is_worth_a_group(batch, worth_it):
    assert worth_grouping([batch, batch], 1000) is worth_it
    assert not worth_grouping([batch, batch], 50)


@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS, AUTO], ids=["inline", "threads", "auto"])
@pytest.mark.parametrize("queue", [1, 3, 10])
def test_no_more_batches_are_ahead_of_the_trainer_than_may_be(workers, queue):
    computed, ahead = itertools.count(1), []
    latest = [0]

    def transform(batch: Any) -> Any:
        latest[0] = next(computed)
        return batch

    def look(model: keras.Model, trained: int) -> None:
        ahead.append(latest[0] - trained)

    options = {**workers, "max_queue_size": queue, "batch_transform": transform}
    with SafeSequence(numbered(400), 4, **options) as sequence:
        recorder = built_recorder()
        recorder.fit(sequence, callbacks=[AfterBatch(look)], shuffle=False, verbose=0)
    assert len(recorder.trained) == 100
    # Each of two workers has one in progress beside few that are ready. Keras takes
    # a batch to build the model, one waits for the trainer, one is on its way there.
    window = queue if workers is INLINE or queue >= 4 else queue + 2
    assert max(ahead) <= max(window, 2) + 1


@pytest.mark.parametrize("workers", [INLINE, AUTO], ids=["inline", "auto"])
def test_the_state_is_that_of_the_batch_in_training(workers):
    states: list[Any] = []
    with SafeSequence(numbered(480), 4, **workers) as sequence:
        look = AfterBatch(lambda model, trained: states.append(sequence.state_dict()))
        built_recorder().fit(sequence, callbacks=[look], shuffle=False, verbose=0)
    assert [state["batch"] for state in states] == [*range(1, 120), 0]
