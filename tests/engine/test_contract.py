"""What holds for every executor: the batches don't say who computed them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from adapters.alignment import ALIGNMENT_BYTES
from adapters.structure import flatten
from tests.batches import exact
from tests.engine.executors import ONE_OF_EACH_KIND, opened, read
from tests.engine.workloads import Numbers, Uneven, jitter, rich
from tests.plans import epoch_of, plan_of

one_of_each_kind = pytest.mark.parametrize("executor", ONE_OF_EACH_KIND)


class Pair(NamedTuple):
    image: Any
    label: Any


@pytest.mark.parametrize("executor", [*ONE_OF_EACH_KIND, "auto"])
@pytest.mark.parametrize("shuffled", [False, True], ids=["in order", "batches shuffled"])
def test_batches_are_the_same_to_the_last_bit(executor, shuffled):
    arguments = {"shuffle": True, "seed": 7, "transform": rich, "batch_transform": jitter}
    plan = plan_of(Numbers(), **arguments)
    expected = []
    for epoch in range(3):
        batches = epoch_of(plan, epoch)
        order = [plan.order.shuffled_batch(epoch, i) if shuffled else i for i in range(7)]
        expected += [exact(batches[index]) for index in order]
    with opened(Numbers(), executor, **arguments) as engine:
        assert [exact(batch) for batch in read(engine, 21, shuffled=shuffled)] == expected


@pytest.mark.parametrize("executor", ["threads-4", "processes-2", "cluster"])
def test_batches_come_in_order_however_long_each_takes(executor):
    with opened(Numbers(48), executor, transform=Uneven()) as engine:
        assert np.concatenate(read(engine, 12)).tolist() == list(range(48))


SAMPLES: dict[str, Any] = {
    "big endian": np.arange(52, dtype=">i2").reshape(26, 2),
    "nested": (np.arange(26.0), {"y": np.arange(26) > 5, "none": None}),
    "words": np.array([f"word {i}" for i in range(26)]),
    "objects": np.array([f"word {i}" for i in range(26)], object),
    "times": np.arange(26).astype("M8[s]"),
    "records": np.array([(i, i / 3) for i in range(26)], "i4,f2"),
    "of size zero": np.zeros((26, 0, 3), np.float16),
    "named tuples": [Pair(np.full((2, 2), i), i) for i in range(26)],
    "text and bytes": [(f"word {i}" * 50, b"\0" * i, {i}, i) for i in range(26)],
    "a shape per batch": [np.full(1 + i // 4, i) for i in range(26)],
    "one batch much larger": [np.full((200, 200) if i // 4 == 3 else (2,), i) for i in range(26)],
    "promoted": [i if i % 3 else i / 2 for i in range(26)],
}


# Threads hand their batches over as they are.
@pytest.mark.parametrize("executor", ["processes-2", "cluster"])
@pytest.mark.parametrize("data", list(SAMPLES.values()), ids=list(SAMPLES))
def test_whatever_the_samples_are(executor, data):
    expected = [exact(batch) for batch in epoch_of(plan_of(data)) * 2]
    with opened(data, executor) as engine:
        assert [exact(batch) for batch in read(engine, 14)] == expected


BATCHES: dict[str, Any] = {
    "reversed": lambda batch: batch[::-1],
    "the same twice": lambda batch: (batch, batch, batch[:1]),
    "broadcast": lambda batch: np.broadcast_to(batch[:1], (300, len(batch))),
    "transposed": lambda batch: batch.reshape(1, -1).T,
    "no arrays": lambda batch: {"sum": int(batch.sum()), "text": "a", "none": None},
    "a list": lambda batch: [1.5, 2.5],
    "objects": lambda batch: batch.astype(object),
    "a scalar": lambda batch: np.float32(batch.sum()),
    "in place": lambda batch: np.multiply(batch, 3, out=batch),
    "of size zero": lambda batch: np.zeros((0, 5)),
    "much larger": lambda batch: np.repeat(batch, 5000),
    "nothing": lambda batch: (),
}


def all_of_them(batch: Any) -> Any:
    return {name: transform(batch.copy()) for name, transform in BATCHES.items()}


@pytest.mark.parametrize(
    ("executor", "batch_transform"),
    [*(("processes-2", each) for each in BATCHES.values()), ("cluster", all_of_them)],
    ids=[*BATCHES, "all of them, on a cluster"],
)
def test_whatever_a_batch_transform_returns(executor, batch_transform):
    arguments = {"transform": lambda sample: sample, "batch_transform": batch_transform}
    expected = [exact(batch) for batch in epoch_of(plan_of(Numbers(), **arguments))]
    with opened(Numbers(), executor, **arguments) as engine:
        assert [exact(batch) for batch in read(engine, 7)] == expected


@pytest.mark.parametrize("length", [10, 3000])
def test_many_batches_of_objects_are_not_mixed_up(length):
    """Light batches go to a worker several at a time; long ones don't fit into a pipe."""
    words = [f"{number} " * length for number in range(200)]
    with opened(words, "processes-2", 2, queue=40) as engine:
        batches = read(engine, 100)
    assert [word for batch in batches for word in batch] == words


@one_of_each_kind
def test_batches_lie_where_frameworks_take_them_without_a_copy(executor):
    data = (np.ones((26, 5000), np.uint8), np.ones((26, 700)))
    with opened(data, executor, transform=lambda sample: sample) as engine:
        arrays = [array for batch in read(engine, 14) for array in flatten(batch)[0]]
    assert {array.ctypes.data % ALIGNMENT_BYTES for array in arrays} == {0}


@one_of_each_kind
def test_skipped_samples_are_replaced_and_counted(executor, caplog):
    data = [1, None, 3, "x", 5, None, 7, 8]

    def number(sample: Any) -> int:
        return sample + 0

    with opened(data, executor, 3, transform=number, on_error="skip") as engine:
        batches = read(engine, 6)
    assert [batch.tolist() for batch in batches] == [[1, 3, 3], [5, 5, 7], [7, 8]] * 2
    warnings = [record.getMessage() for record in caplog.records if "on_error" in record.message]
    assert warnings == [f"epoch {epoch}: on_error replaced 3 samples" for epoch in (0, 1)]


@one_of_each_kind
def test_arrays_of_other_classes_stay_what_they_are(executor):
    with opened(Numbers(64), executor, batch_transform=hidden) as engine:
        for batch in read(engine, 16):
            assert type(batch) is np.ma.MaskedArray
            np.testing.assert_array_equal(batch.mask.ravel(), batch.data.ravel() % 2 == 1)


def hidden(batch: Any) -> Any:
    return np.ma.masked_array(batch, batch % 2 == 1)
