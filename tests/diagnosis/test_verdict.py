"""From times that are made up to the bottleneck, and to doubts of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from adapters.diagnosis import Diagnosis
from adapters.diagnosis.verdict import NAMES, Round, Workers
from tests.diagnosis.made_up import BUSY, THREADS, made_up

STORAGE = made_up(storage=0.038, alone_computes=0.1)
TRANSFORMS = made_up(memory=0.038)
COLLATION = made_up(memory=0.036, collation=0.035)
STEP = made_up(whole=0.0105, loader=0.005, same=0.010, alone=0.010)
COPY = made_up(whole=0.0105, loader=0.005, same=0.010, copy=0.008, alone=0.010)
UNKNOWN = Workers("unknown", 0, 4)
FOREIGN = made_up(storage=None, memory=None, collation=None, alone=None, workers=UNKNOWN)
INLINE = Workers("inline", 0, 4)


@pytest.mark.parametrize(
    ("diagnosis", "bottleneck"),
    [
        (STORAGE, "storage"),
        (TRANSFORMS, "transforms"),
        (COLLATION, "collation"),
        (COPY, "copy"),
        (STEP, "step"),
        (FOREIGN, "loader"),
        # The device is busy for 9 tenths of the time, or for less.
        (made_up(storage=0.01, whole=0.0110, loader=0.010), "step"),
        (made_up(storage=0.01, whole=0.0112, loader=0.010), "storage"),
        # Loader and step compete for the same cores if the step is computed on the CPU.
        (made_up(whole=0.02, loader=0.003), "step"),
        (made_up(storage=0.038, whole=0.02, loader=0.005), "storage"),
        # A loader without workers adds its time; of a replaced one, the time isn't known.
        (made_up(whole=0.013, loader=0.003, workers=INLINE), "storage"),
        (made_up(whole=0.02, loader=0.001, workers=INLINE), "step"),
        (made_up(whole=0.02, loader=0.001, replaced="another"), "loader"),
        # A copy below half of the step, and a quick one.
        (made_up(whole=0.0105, loader=0.005, copy=0.004), "step"),
        (made_up(whole=0.0005, loader=0.0001, same=0.0005, copy=0.0004), "step"),
        (dataclasses.replace(COPY, on_cpu=True), "step"),
        # Fetching that computes belongs to the transforms.
        (made_up(storage=0.038, fetch_computes=0.8), "transforms"),
        # Rows of arrays that must be waited for.
        (made_up(storage=0.038, memory=0.002, collation=0.002, gathers=True), "storage"),
    ],
)
def test_bottleneck_is_the_part_that_takes_the_time(diagnosis, bottleneck):
    assert diagnosis.bottleneck == bottleneck


def test_bottleneck_without_a_step_is_the_slowest_part():
    alone = made_up(whole=None, same=None, memory=0.038, waits_seconds=())
    assert (alone.bottleneck, alone.busy_share) == ("transforms", None)


@pytest.mark.parametrize(
    ("late", "share", "said"),
    [(0, 1.0, "enough"), (1, 0.99, "99.0% of the batches, enough"), (2, 0.98, "too few")],
)
def test_ready_are_99_of_100_batches(late, share, said):
    found = made_up(waits_seconds=(0.005,) * late + (0.0,) * (100 - late))
    assert found.ready_share == share
    assert said in str(found)


@pytest.mark.parametrize(
    ("t", "bottleneck", "word"),
    [(1.0, "step", "enough"), (0.05, "storage", "enough"), (0.02, "storage", "too slow")],
)
def test_step_time_that_was_asked_for_counts(t, bottleneck, word):
    assert (made_up(t=1.0).step_seconds, made_up(t=1.0).ready_share) == (1.0, 1.0)
    alone = made_up(whole=None, same=None, waits_seconds=(), storage=0.03, t=t)
    assert alone.bottleneck == bottleneck
    assert f"a batch comes every 40 ms, {word}" in str(alone)
    if t < 0.05:  # A shorter t than the measured step: its waits say nothing about t.
        assert f"a batch comes every 40 ms, {word}" in str(
            made_up(same=0.05, t=t, waits_seconds=(0.0,))
        )
    assert ("keeps up with t" in alone.advice[0]) == (bottleneck == "step")


def rounds_of(diagnosis: Diagnosis, **changes: list[Any]) -> tuple[Round, ...]:
    """Rounds that found what the diagnosis says, but for these."""
    same = {name: each for name in NAMES if (each := getattr(diagnosis, name)) is not None}
    rows = zip(*changes.values(), strict=True)
    return tuple({**same, **dict(zip(changes, row))} for row in rows)


def test_text_has_the_numbers():
    lines = str(STORAGE).splitlines()
    assert lines[0] == "bottleneck: storage: fetching the samples"
    assert "the device has work for 25% of the time" in lines
    rows = {line[:50].strip(): line[50:].split() for line in lines}
    assert rows["the whole, loader and step"] == ["40", "1,600"]
    assert rows["fetching alone"] == ["38", "1,684"]
    assert rows["the step, with the same batch again and again"] == ["10", "6,400"]
    assert "workers: 2 threads, on 4 CPUs" in lines
    assert "workers: 1 thread, on 4 CPUs" in str(made_up(workers=Workers("threads", 1, 4)))
    assert "(computing 80% of it)" in str(made_up(storage=0.038, fetch_computes=0.8))


def test_text_has_the_range_of_each_figure():
    diagnosis = made_up(rounds=rounds_of(TRANSFORMS, loader=[0.038, 0.04, 0.044]), workers=THREADS)
    lines = {line[:50].strip(): line[50:].split() for line in str(diagnosis).splitlines()}
    assert lines["the loader alone"] == ["40", "1,600", "38", "to", "44", "ms"]
    assert lines["a batch of 64"][-3:] == ["in", "3", "rounds"]


# --- figures that can't all be true: nothing is advised on the strength of them ---


LOADER, WHOLE = "the loader alone takes", "the whole, loader and step takes"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"workers": INLINE, "loader": 0.016, "whole": 0.02, "memory": 0.015},
            [f"{LOADER} 16 ms, with no workers", "made by one thread takes 80 ms"],
        ),
        (
            {"workers": INLINE, "alone": 0.016},
            [f"{LOADER} 40 ms, with no workers", "made by one thread takes 16 ms"],
        ),
        ({"alone": 0.2}, [f"{LOADER} 40 ms, with 2 threads", "made by one thread takes 200 ms"]),
        ({"storage": 0.08}, ["fetching alone takes 80 ms", f"{LOADER} 40 ms"]),
        ({"memory": 0.08}, ["samples in memory takes 80 ms", f"{LOADER} 40 ms"]),
        ({"collation": 0.08}, ["collation alone takes 80 ms", f"{LOADER} 40 ms"]),
        ({"copy": 0.03}, ["copy to the device takes 30 ms", "again and again takes 10 ms"]),
        ({"same": 0.07}, ["again and again takes 70 ms", f"{WHOLE} 40 ms"]),
        ({"whole": 0.012}, [f"{LOADER} 40 ms", f"{WHOLE} 12 ms"]),
        ({"whole": 0.15}, [f"{WHOLE} 150 ms", f"{LOADER} 40 ms", "again and again takes 10 ms"]),
    ],
)
def test_contradiction_is_said_and_nothing_advised(changes, said):
    diagnosis = made_up(**{"memory": 0.038, **changes})
    (found,) = diagnosis.contradictions
    assert [each for each in said if each not in found] == []
    assert not diagnosis.certain
    lines = str(diagnosis).splitlines()
    assert lines[0] == "bottleneck: can't be told, figures contradict each other"
    assert f"contradiction: {found}" in lines
    (advice,) = diagnosis.advice
    assert advice.startswith("nothing yet: these figures are too uncertain")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"alone": 0.0802 * 1.5},  # Less than a full wave of workers.
        {"storage": 0.06},
        {"whole": 0.09},  # Taking turns.
        {"loader": 0.0001, "storage": 0.0005, "memory": 0.0005, "alone": 0.0006, "whole": 0.01},
        # What was examined in the place of a loader may differ from it.
        {"replaced": "SafeSequence", "whole": 0.012},
        {"replaced": "SafeSequence", "whole": 1.0},
        # Gathering rows into new memory may take longer than the loader.
        {"gathers": True, "storage": 0.1},
        # Workers of a foreign loader aren't known.
        {"workers": Workers("unknown", 0, 4), "alone": 9.0},
    ],
)
def test_contradiction_is_none_where_it_may_well_be(changes):
    assert made_up(**{"collation": 0.0, **changes}).contradictions == ()


@pytest.mark.parametrize(("share", "disturbs"), [(BUSY, True), (0.1, False)])
def test_noise_is_of_others_who_have_the_cpus(share, disturbs):
    said = "other programs had the CPUs for 60% of the time"
    noisy = made_up(queued_share=share)
    assert noisy.noise == ((said,) if disturbs else ())
    assert (f"noise: {said}" in str(noisy).splitlines()) is disturbs


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"loader": [0.016, 0.04, 0.08]}, "the loader alone took 16 to 80 ms"),
        ({"loader": [0.032, 0.04, 0.05]}, None),
        ({"loader": [0.0001, 0.0002, 0.0004]}, None),
        ({"same": [0.001, 0.002, 0.009]}, None),  # A small part of the whole.
        ({"whole": [0.02] * 3, "same": [0.001, 0.002, 0.009]}, "took 1 to 9 ms"),
    ],
)
def test_noise_is_in_rounds_that_differ(changes, said):
    whole = changes.pop("whole", [0.04])[0]
    noise = made_up(whole=whole, rounds=rounds_of(TRANSFORMS, **changes)).noise
    assert noise == () if said is None else said in noise[0]


@pytest.mark.parametrize(
    ("changes", "queued", "certain"),
    [
        ({"loader": [0.04, 0.1, 0.04], "whole": [0.05, 0.11, 0.05]}, BUSY, True),
        ({"memory": [0.038, 0.002, 0.038], "storage": [0.002, 0.038, 0.002]}, BUSY, False),
        # Two parts that take the same, on a quiet machine.
        ({"memory": [0.021, 0.019, 0.021], "storage": [0.02] * 3}, 0.0, True),
    ],
)
def test_noise_leaves_a_bottleneck_that_all_rounds_name(changes, queued, certain):
    rounds = rounds_of(TRANSFORMS, **changes)
    diagnosis = dataclasses.replace(TRANSFORMS, rounds=rounds, queued_share=queued)
    assert diagnosis.certain is certain
    if not certain:
        assert str(diagnosis).startswith("bottleneck: can't be told, the machine is too noisy")
        assert diagnosis.advice[0].startswith("nothing yet: these figures are too uncertain")


@pytest.mark.parametrize("quiet", [STORAGE, TRANSFORMS])
def test_noise_means_no_number_is_advised(quiet):
    noisy = dataclasses.replace(quiet, queued_share=BUSY)
    assert noisy.certain
    assert any("workers=" in advice for advice in quiet.advice)
    assert not any("workers=" in advice for advice in noisy.advice)
    assert noisy.advice[-1].endswith("these figures are too uncertain")
    assert "times as fast" not in str(noisy)
