from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest

from benchmarks.harness import ratios
from benchmarks.harness.installed import Peer
from benchmarks.harness.ratios import Contestant, Pace, Ratio, measure_ratio, pace

BUSY_SECONDS = 0.2
PEER = Peer("Keras", "sys", "numpy")


@pytest.fixture(autouse=True)
def whole_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ratios, "_short", False)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")


def measured(ratio: Ratio, rounds: int | None, short: bool = False) -> dict[str, float]:
    return measure_ratio(ratio, {"rounds": rounds, "short": short})["metrics"]


def batches() -> Iterator[float]:
    """Of two samples each, which take so much processor time."""
    while True:
        ends = time.process_time() + BUSY_SECONDS
        while time.process_time() < ends:
            pass
        yield 2.0


def test_a_pace_tells_what_processor_time_is_worth() -> None:
    found = pace(batches(), 1, 5, float)
    # Ten in a second of processor time; the clock of that ticks a hundred times a second.
    assert found.per_cpu_second == pytest.approx(2 / BUSY_SECONDS, rel=0.2)
    assert found <= 2 / BUSY_SECONDS * 1.01


def test_a_row_says_how_correct_it_is_beside_its_speed() -> None:
    def contestants() -> dict[str, Contestant]:
        return {"ours": lambda: Pace(40, 20), "peer": lambda: Pace(10, 5)}

    metrics = measured(Ratio(PEER, "samples/s", contestants, correct=lambda: {"lost": 3.0}), 2)
    assert (metrics["ratio"], metrics["lost"]) == (4, 3)
    assert (metrics["ours_per_cpu_second"], metrics["peer_per_cpu_second"]) == (20, 5)


def test_without_a_pace_nothing_is_said_of_processor_time() -> None:
    ratio = Ratio(PEER, "images/s", lambda: {"ours": lambda: 2.0, "peer": lambda: Pace(1, 1)})
    assert "ours_per_cpu_second" not in measured(ratio, 1)


def test_a_short_round_takes_as_few_batches_as_can_be() -> None:
    taken: list[int] = []

    def amount(number: int) -> float:
        taken.append(number)
        return 1.0

    def contestant() -> float:
        return pace(itertools.count(), 14, 100, amount)

    contestants = {"ours": contestant, "peer": lambda: 1.0}
    measured(Ratio(PEER, "samples/s", lambda: contestants, rounds=9), None, short=True)
    assert taken == [1, 2]
