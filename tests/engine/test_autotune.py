"""Which number of workers is decided for, by the moments at which batches are delivered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from adapters.engine.autotune import Comparison

SETTLE = 12


class Loop:
    """A training loop with a clock of its own.

    Args:
        comparison: Is told of each batch.
        pace: Seconds for a batch, of a number of workers.
        alone: Seconds that a batch takes to compute.
    """

    def __init__(
        self, comparison: Comparison, pace: Callable[[int], float], alone: float = 0.0
    ) -> None:
        self.comparison, self.pace, self.alone = comparison, pace, alone
        self.now = 0.0
        self.used: list[int] = []

    def run(self, batches: int) -> None:
        for _ in range(batches):
            self.used.append(self.comparison.current)
            self.now += self.pace(self.comparison.current)
            self.comparison.delivered(self.now, self.alone)


@pytest.mark.parametrize("fastest", [8, 1, 0])
def test_the_fastest_is_decided_for_wherever_it_stands(fastest):
    comparison = Comparison([8, 1, 0], SETTLE)
    Loop(comparison, lambda workers: 0.001 if workers == fastest else 0.0012).run(1000)
    assert (comparison.decided, comparison.current) == (True, fastest)


def test_the_first_is_kept_where_others_are_hardly_faster():
    comparison = Comparison([8, 1, 0], SETTLE)
    Loop(comparison, lambda workers: 0.001 + 0.00001 * (workers == 8)).run(1000)
    assert comparison.current == 8


def test_settings_take_turns_until_the_decision():
    comparison = Comparison([0, 1], SETTLE)
    loop = Loop(comparison, lambda workers: 0.002)
    while not comparison.decided:
        loop.run(1)
    turns = [b for a, b in zip([None, *loop.used], loop.used) if a != b]
    assert turns == [0, 1, 0, 1, 0, 1, 0]


def test_a_loop_that_gets_faster_by_itself_gains_nothing_by_what_is_tried_later():
    """Files and memory are slow when they are used for the first time."""
    comparison = Comparison([0, 1], SETTLE)
    loop = Loop(comparison, lambda workers: 0.0)
    loop.pace = lambda workers: (0.00008 + 0.002 * 0.01**loop.now) * (1.2 if workers else 1.0)
    while not comparison.decided:
        loop.run(1)
    assert loop.used.count(1) > 3 * 32
    assert comparison.current == 0


def test_what_is_much_slower_gets_one_period():
    comparison = Comparison([8, 1, 0], SETTLE)
    loop = Loop(comparison, lambda workers: 0.01 if workers == 8 else 0.08)
    loop.run(200)
    assert comparison.current == 8
    assert loop.used.count(1) == loop.used.count(0) == SETTLE + 7


# Batches of 64 JPEGs on two cores: fewer workers were tried for nine epochs of 640.
@pytest.mark.parametrize(("pace", "alone"), [(0.02, 0.1), (0.009, 0.0175)])
def test_fewer_are_not_tried_with_slow_batches_that_several_bring_faster(pace, alone):
    comparison = Comparison([8, 1, 0], SETTLE)
    loop = Loop(comparison, lambda workers: pace, alone=alone)
    loop.run(200)
    assert {*loop.used} == {8}


def test_slow_batches_that_several_hold_up_come_from_one():
    comparison = Comparison([8, 1, 0], SETTLE)
    Loop(comparison, lambda workers: {8: 0.12, 1: 0.1, 0: 0.11}[workers], alone=0.1).run(300)
    assert comparison.current == 1


def test_an_end_of_an_epoch_counts_for_none():
    comparison = Comparison([0, 1], SETTLE)
    loop = Loop(comparison, lambda workers: 0.0011 - 0.0001 * workers)
    for _ in range(30):
        loop.run(50)
        loop.now += 2.0
    assert comparison.current == 1


def test_another_pace_of_the_loop_is_another_comparison():
    comparison = Comparison([0, 1], SETTLE)
    loop = Loop(comparison, lambda workers: 0.002 if workers else 0.001)
    loop.run(1000)
    assert comparison.current == 0
    loop.pace = lambda workers: 0.010 if workers else 0.015
    loop.run(1000)
    assert comparison.current == 1


def test_a_little_noise_is_none():
    comparison = Comparison([0, 1], SETTLE)
    loop = Loop(comparison, lambda workers: 0.001 if workers == 0 else 0.002)
    loop.run(1000)
    loop.used.clear()
    loop.pace = lambda workers: 0.0013
    loop.run(1000)
    assert {*loop.used} == {0}


def test_long_waits_for_the_gil_are_no_gaps():
    """A thread that reads ahead may deliver in bursts: it is slower than none, in spite of them."""
    comparison = Comparison([0, 1], 4)
    now = 0.0
    for number in range(20_000):
        burst = comparison.current == 1
        now += (0.005 if number % 40 == 0 else 0.00001) if burst else 0.00006
        comparison.delivered(now, 0.00004)
        if comparison.decided:
            break
    assert (comparison.decided, comparison.current) == (True, 0)
