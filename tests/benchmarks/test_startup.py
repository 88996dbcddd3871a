"""What short programs may take, next to those without this package's loaders."""

from __future__ import annotations

import pytest

from benchmarks.lab.experiments.startup import CALLS
from benchmarks.harness.results import Run
from benchmarks.test_startup import Program, slow_calls


def runs_of(ours: bool, *calls: float) -> list[Run]:
    """Three runs: as said, half as fast and twice as fast."""
    return [
        Run(
            framework="a program, JAX",
            loader="SafeSequence" if ours else "PyDataset",
            workers="",
            ours=ours,
            metrics={call: seconds * factor for call, seconds in zip(CALLS, calls)},
            software="",
            device="",
            failure=None,
            log="",
        )
        for factor in (1, 2, 0.5)
    ]


def program(**limits: object) -> Program:
    return Program("a program", ("jax",), "SafeSequence", "PyDataset", CALLS[1:], **limits)


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [({"ratio": 1.2}, 1.2), ({"seconds": 0.3}, 1.3), ({"most_seconds": 0.5}, 0.5)],
    ids=["a ratio", "a difference", "an amount"],
)
def test_the_medians_of_the_calls_that_are_held_are_compared(limits, seconds):
    stock = runs_of(False, 1.0, 1.0, 1.0)
    fast = stock + runs_of(True, 9.0, seconds - 0.01, seconds - 0.01)
    assert slow_calls(fast, program(**limits)) == []
    (said,) = slow_calls(stock + runs_of(True, 0.1, 0.1, seconds + 0.02), program(**limits))
    assert said == (
        f"a program, JAX: the third call took {seconds + 0.02:.2f} s, {seconds:.2f} s are allowed"
    )


def test_of_several_limits_the_smallest_holds():
    assert program(ratio=2, most_seconds=0.3).allowed(1.0) == 0.3


def test_nothing_is_compared_with_nothing():
    assert slow_calls(runs_of(True, 1.0, 1.0, 1.0), program(ratio=1)) == []
