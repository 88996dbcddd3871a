"""Map-style objects, and sequences of whole batches, as a source."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import pytest

from adapters.sources import MapSource, SequenceSource, as_source
from tests.batches import exact
from tests.plans import batch_of, epoch_of, plan_of


class Squares:
    """Remembers what it was asked for."""

    def __init__(self, size: int = 10) -> None:
        self.size = size
        self.asked: list[Any] = []

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: Any) -> int:
        self.asked.append(number)
        return int(number) ** 2


class SquaresAtOnce(Squares):
    def __getitems__(self, numbers: Any) -> list[int]:
        self.asked.append(numbers)
        return [number**2 for number in numbers]


@pytest.mark.parametrize("data", [Squares(), SquaresAtOnce(), [n**2 for n in range(10)]])
def test_samples_are_asked_for_by_number(data):
    found = [batch.tolist() for batch in epoch_of(plan_of(data))]
    assert found == [[0, 1, 4, 9], [16, 25, 36, 49], [64, 81]]
    if type(data) is Squares:
        assert {type(number) for number in data.asked} == {int}


@pytest.mark.parametrize("transform", [None, lambda sample: sample + 1])
def test_getitems_is_asked_once_per_batch(transform):
    data = SquaresAtOnce()
    epoch_of(plan_of(data, transform=transform))
    assert data.asked == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert {type(number) for numbers in data.asked for number in numbers} == {int}


def test_getitems_that_returns_a_generator_is_refused():
    class Generating(Squares):
        def __getitems__(self, numbers: Any) -> Any:
            return (number for number in numbers)

    with pytest.raises(TypeError, match="Generating must return a list of samples, got generator"):
        batch_of(plan_of(Generating()))


@pytest.mark.parametrize("given", [[], [1], [1] * 9])
def test_getitems_of_another_length_is_told(given):
    class Broken(Squares):
        def __getitems__(self, numbers: Any) -> list[int]:
            return given

    with pytest.raises(ValueError, match=f"of Broken must return one .* got {len(given)} for 4"):
        batch_of(plan_of(Broken()))


def test_samples_are_fetched_one_at_a_time():
    """So that one raw sample is in memory, not a batch of them."""
    data = Squares()
    seen: list[int] = []
    batch_of(plan_of(data, transform=lambda sample: seen.append(len(data.asked)) or sample))
    assert seen == [1, 2, 3, 4]


def test_lists_of_lists_have_members():
    batch = batch_of(plan_of([(np.zeros(2), [1, 2], "a"), (np.ones(2), [3, 4], "b")]))
    assert exact(batch[:2]) == exact((np.array([[0.0, 0], [1, 1]]), np.array([[1, 2], [3, 4]])))


def test_array_like_is_not_read_whole():
    class File(Squares):
        shape, dtype = (10,), np.dtype(int)

    assert isinstance(as_source(File()), MapSource)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ((number for number in range(3)), "generator"),
        (iter([1]), "list_iterator"),
        ({1, 2}, "set"),
        (b"bytes", "bytes"),
        (None, "NoneType"),
        (5, "int"),
        (open, "builtin_function_or_method"),
    ],
)
def test_no_random_access_is_refused(data, kind):
    with pytest.raises(TypeError, match=f"got {kind}: .* turn a generator into a list"):
        as_source(data)


@pytest.mark.parametrize("data", [[], Squares(0), range(0)])
def test_no_samples_are_refused(data):
    with pytest.raises(ValueError, match="source must hold at least one sample, got 0"):
        as_source(data)


def test_sequence_is_shuffled_and_sharded():
    plans = [
        plan_of(SequenceSource([10, 11, 12, 13], False), 1, shuffle=True, shard=(index, 2))
        for index in range(2)
    ]
    assert sorted(epoch_of(plans[0]) + epoch_of(plans[1])) == [10, 11, 12, 13]


def test_sequence_copy_is_in_the_same_epoch():
    source = SequenceSource([5, 6], True)
    source.enter_epoch(2)
    copy = cloudpickle.loads(cloudpickle.dumps(source))
    assert (copy.enter_epoch(2), copy.enter_epoch(3)) == (False, True)
    assert (len(copy), copy.batch(1)) == (2, 6)


class Unsaid:
    """As a ``PyDataset`` that implements neither."""

    @property
    def num_batches(self) -> int:
        raise NotImplementedError


@pytest.mark.parametrize("sequence", [SimpleNamespace(num_batches=None), Unsaid()])
def test_sequence_num_batches(sequence):
    assert len(SequenceSource(SimpleNamespace(num_batches=7), False)) == 7
    source = SequenceSource(sequence, False)
    assert source.endless
    with pytest.raises(TypeError, match="has no end, and so no length"):
        len(source)


def test_sequence_without_batches_is_refused():
    with pytest.raises(ValueError, match="source must hold at least one batch, got 0"):
        SequenceSource([], False)
