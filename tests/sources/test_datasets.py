"""Map-style objects as a source."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adapters.sources import MapSource, as_source
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
    assert [batch.tolist() for batch in epoch_of(plan_of(data))] == [
        [0, 1, 4, 9],
        [16, 25, 36, 49],
        [64, 81],
    ]


def test_a_data_set_is_asked_with_plain_integers():
    data = Squares()
    batch_of(plan_of(data, shuffle=True))
    assert {type(number) for number in data.asked} == {int}


def test_getitems_is_asked_once_per_batch_with_a_list_of_integers():
    data = SquaresAtOnce()
    epoch_of(plan_of(data))
    assert data.asked == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert {type(number) for numbers in data.asked for number in numbers} == {int}


def test_getitems_is_asked_when_there_is_a_transform_too():
    data = SquaresAtOnce()
    batch = batch_of(plan_of(data, transform=lambda sample: sample + 1))
    assert (batch.tolist(), data.asked) == ([1, 2, 5, 10], [[0, 1, 2, 3]])


@pytest.mark.parametrize("given", [[], [1], [1] * 9])
def test_getitems_that_gives_another_number_of_samples_is_told_so(given):
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


def test_a_list_in_a_list_is_a_sample_with_members():
    batch = batch_of(plan_of([(np.zeros(2), [1, 2], "a"), (np.ones(2), [3, 4], "b")]))
    assert exact(batch[:2]) == exact((np.array([[0.0, 0], [1, 1]]), np.array([[1, 2], [3, 4]])))


def test_a_data_set_of_pytorch_is_a_source():
    data = pytest.importorskip("torch.utils.data", reason="PyTorch is an optional framework")
    torch = pytest.importorskip("torch", reason="PyTorch is an optional framework")
    tensors = data.TensorDataset(torch.arange(4.0).reshape(4, 1), torch.arange(4))
    assert exact(batch_of(plan_of(data.Subset(tensors, [3, 1])))) == exact(
        (np.array([[3], [1]], np.float32), np.array([3, 1]))
    )


def test_something_like_an_array_that_is_not_in_memory_is_not_read_whole():
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
def test_what_has_no_random_access_is_refused_with_the_remedy(data, kind):
    with pytest.raises(TypeError, match=f"got {kind}: .* turn a generator into a list"):
        as_source(data)


@pytest.mark.parametrize("data", [[], Squares(0), range(0)])
def test_a_source_without_samples_is_refused(data):
    with pytest.raises(ValueError, match="source must hold at least one sample, got 0"):
        as_source(data)
