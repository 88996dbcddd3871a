from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.harness.paced_consumer import Steps, consume

STEP = 0.5  # seconds; a power of two, so that sums are exact


class FakeTime:
    """A clock that only a fetch or a sleep moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds

    def fetches(self, *seconds: float) -> Iterator[int]:
        """Batches, each of which takes so long from when it is asked for."""
        for number, each in enumerate(seconds):
            self.now += each
            yield number


def steps_of(*seconds: float, batches: int = 1_000, limit: float = 1_000) -> Steps:
    fake = FakeTime()
    return consume(
        fake.fetches(*seconds),
        STEP,
        most_batches=batches,
        most_seconds=limit,
        clock=fake,
        sleep=fake.sleep,
    )


@pytest.mark.parametrize("fetch", [0.0, STEP / 2, STEP])
def test_a_loader_that_keeps_up_starves_nobody(fetch: float) -> None:
    steps = steps_of(*[fetch] * 8)
    assert steps.waits_seconds == [0.0] * 8
    assert (steps.utilisation, steps.on_time_share) == (1.0, 1.0)
    assert steps.total_seconds == 8 * STEP


def test_a_loader_half_as_fast_leaves_it_idle_half_of_the_time() -> None:
    steps = steps_of(*[2 * STEP] * 8)
    assert steps.waits_seconds == [STEP] * 8
    assert (steps.utilisation, steps.on_time_share) == (0.5, 0.0)


def test_one_late_batch_is_not_made_up_for() -> None:
    steps = steps_of(0, 0, 4 * STEP, 0, 0, 0)
    assert steps.waits_seconds == [0, 0, 3 * STEP, 0, 0, 0]
    assert steps.on_time_share == 5 / 6
    # Six steps from the end of the one before the first, and the wait.
    assert [start - 100 for start in steps.starts] == [0.5, 1.0, 3.0, 3.5, 4.0, 4.5]
    assert steps.total_seconds == 4.5


def test_as_many_batches_as_asked_for() -> None:
    assert len(steps_of(*[0.0] * 8, batches=3).starts) == 3


def test_no_fetch_after_the_time_is_up() -> None:
    """The fetches begin 0, 1 and 2 seconds after the call; the third ends at 3."""
    assert len(steps_of(*[2 * STEP] * 8, limit=2.5).starts) == 3


def test_a_batch_out_of_time_still_counts() -> None:
    assert steps_of(10 * STEP, limit=0.1).waits_seconds == [9 * STEP]


def test_the_end_of_the_batches_is_the_end() -> None:
    assert len(steps_of(0.0, 0.0).starts) == 2


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="at least one, got none"):
        steps_of()
    with pytest.raises(ValueError, match="most_batches must be >= 1, got 0"):
        steps_of(0.0, batches=0)
    with pytest.raises(ValueError, match="step_seconds must be > 0, got 0"):
        consume(iter([1]), 0, most_batches=1, most_seconds=1)
