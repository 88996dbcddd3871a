"""A sample that can't be had: raise, skip, or ask the user."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from adapters.alignment import aligned_empty
from adapters.batch.key import BatchKey
from adapters.batch.sourceplan import SourcePlan
from tests.plans import batch_of, epoch_of, notes_of, plan_of

BROKEN = {3, 4, 9, 19}


class Data:
    """Samples are pairs of their number, some broken."""

    def __init__(self, size: int = 20, broken: set[int] | range = frozenset(BROKEN)) -> None:  # type: ignore[assignment]
        self.size = size
        self.broken = broken

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int) -> tuple[int, int]:
        if number in self.broken:
            raise OSError(f"sample {number} is broken")
        return number, number


class DataAtOnce(Data):
    def __getitems__(self, numbers: list[int]) -> list[tuple[int, int]]:
        return [self[number] for number in numbers]


def refuse(sample: tuple[int, int]) -> tuple[int, int]:
    if sample[0] in BROKEN:
        raise OSError(f"sample {sample[0]} is refused")
    return sample


def draw(sample: tuple[int, int], rng: np.random.Generator) -> tuple[int, int]:
    return sample[0], int(rng.integers(2**62))


def replacements(plan: SourcePlan, epoch: int = 0) -> dict[int, int]:
    """Sample number -> number of the sample that came in its place."""
    asked = [plan.order.batch(epoch, index).tolist() for index in range(plan.num_batches)]
    given = [batch[0].tolist() for batch in epoch_of(plan, epoch)]
    pairs = zip(itertools.chain(*asked), itertools.chain(*given), strict=True)
    return {number: other for number, other in pairs if number != other}


SKIPPED = {3: 5, 4: 5, 9: 10, 19: 0}


@pytest.mark.parametrize("data", [Data(), DataAtOnce()], ids=["one by one", "at once"])
@pytest.mark.parametrize("batch_size", [1, 3, 8, 20])
@pytest.mark.parametrize("shuffle", [False, True])
def test_skip_takes_the_next_sample_that_works_whatever_the_batch(data, batch_size, shuffle):
    plan = plan_of(data, batch_size, shuffle=shuffle, on_error="skip")
    assert replacements(plan) == SKIPPED


def test_skip_does_the_same_for_samples_that_the_transform_refuses():
    plan = plan_of(Data(broken=set()), 8, transform=refuse, on_error="skip")
    assert replacements(plan) == SKIPPED


def test_skip_does_the_same_on_every_shard():
    plans = [plan_of(Data(), 4, shard=(index, 2), on_error="skip") for index in range(2)]
    assert replacements(plans[0]) | replacements(plans[1]) == SKIPPED


def test_a_sample_in_anothers_place_is_the_same_as_in_its_own():
    """Its random numbers, too."""
    drawn = [
        dict(zip(*map(np.ndarray.tolist, batch_of(plan)), strict=True))
        for plan in (
            plan_of(Data(), 20, transform=draw, on_error="skip"),
            plan_of(Data(broken=set()), 20, transform=draw),
        )
    ]
    assert drawn[0] == {n: number for n, number in drawn[1].items() if n not in BROKEN}


def test_replaced_samples_are_counted():
    plan = plan_of(Data(), 8, on_error="skip")
    assert [plan.batch(BatchKey(0, index), aligned_empty).skipped for index in range(3)] == [
        2,
        1,
        1,
    ]


@pytest.mark.parametrize("data", [Data(5, range(5)), Data(1, {0}), Data(300, range(299))])
def test_skip_gives_up_when_all_neighbours_are_broken(data):
    with pytest.raises(OSError, match="sample 0 is broken") as info:
        batch_of(plan_of(data, 2, on_error="skip"))
    assert notes_of(info.value).startswith("in sample 0, batch 0 of epoch 0\nand on_error='skip' ")


def test_a_function_is_asked_with_the_exception_and_the_number():
    asked: list[Any] = []

    def answer(error: Exception, number: int) -> tuple[int, int]:
        asked.append((type(error), str(error), number))
        return -number, 0

    plan = plan_of(Data(), 20, on_error=answer)
    assert replacements(plan) == {3: -3, 4: -4, 9: -9, 19: -19}
    assert asked == [(OSError, f"sample {n} is broken", n) for n in sorted(BROKEN)]


def test_the_answer_of_a_function_is_not_transformed_again():
    plan = plan_of(
        Data(), 20, transform=lambda sample: (sample[0] + 100, 0), on_error=lambda *_: (0, 0)
    )
    assert [int(batch_of(plan)[0][n]) for n in (2, 3, 5)] == [102, 0, 105]


def test_an_exception_of_the_function_is_raised_with_the_first_as_its_context():
    def refuse_too(error: Exception, number: int) -> Any:
        raise LookupError(f"no answer for {number}")

    with pytest.raises(LookupError, match="no answer for 3") as info:
        batch_of(plan_of(Data(), on_error=refuse_too))
    assert isinstance(info.value.__context__, OSError)
    assert "in on_error, for sample 3" in notes_of(info.value)


def test_a_function_without_an_answer_is_said_to_be_one():
    with pytest.raises(ValueError, match="on_error must return a sample, got None"):
        batch_of(plan_of(Data(), on_error=lambda *_: None))


@pytest.mark.parametrize("on_error", ["skip", lambda *_: (0, 0)], ids=["skip", "function"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_who_wants_to_leave_is_not_held_up(error, on_error):
    def leave(sample: Any) -> Any:
        raise error

    with pytest.raises(error):
        batch_of(plan_of(Data(), transform=leave, on_error=on_error))


@pytest.mark.parametrize("on_error", ["skip", lambda *_: (0, 0)], ids=["skip", "function"])
def test_samples_that_do_not_fit_together_are_not_skipped(on_error):
    with pytest.raises(ValueError, match="samples of a batch must have equal shapes"):
        batch_of(plan_of([np.zeros(2), np.zeros(3)], on_error=on_error))
