"""The spread within one process."""

from __future__ import annotations

import pytest

from benchmarks.harness.rounds import rounds_of


def test_an_even_pace_has_no_spread() -> None:
    rounds = rounds_of([float(moment) for moment in range(11)], 32, [0.5] * 11, 320)
    assert rounds == {
        "samples_per_second": pytest.approx([32.0] * 5),
        "waited_share": pytest.approx([0.5] * 5),
        "wait_p50_ms": pytest.approx([500.0] * 5),
        "wait_p99_ms": pytest.approx([500.0] * 5),
        "train_seconds": pytest.approx([10.0] * 5),
    }


def test_a_slow_stretch_is_seen_in_its_round_alone() -> None:
    moments = [0.0, 1, 2, 3, 4, 5, 6, 10, 14, 15, 16]
    waits = [0.0, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0]
    rounds = rounds_of(moments, 32, waits)
    assert rounds["samples_per_second"] == pytest.approx([32, 32, 32, 8, 32])
    assert rounds["waited_share"] == pytest.approx([0, 0, 0, 0.75, 0])
    assert rounds["wait_p50_ms"] == pytest.approx([0, 0, 0, 3000, 0])


def test_too_few_batches_have_no_rounds() -> None:
    assert rounds_of([0.0, 1, 2, 3, 4], 32, [0.0] * 5) == {}
