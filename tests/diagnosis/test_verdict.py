"""From times that are made up to the bottleneck, and to what to change."""

from __future__ import annotations

import pytest

from adapters.diagnosis.verdict import Workers
from tests.diagnosis.made_up import made_up

STORAGE = made_up(storage=0.038)
TRANSFORMS = made_up(memory=0.038)
COLLATION = made_up(memory=0.036, collation=0.035)
STEP = made_up(whole=0.0105, loader=0.005, same=0.010, alone=0.010)
COPY = made_up(whole=0.0105, loader=0.005, same=0.010, copy=0.008, alone=0.010)
FOREIGN = made_up(
    storage=None, memory=None, collation=None, alone=None, workers=Workers("unknown", 0, 4)
)


# --- the bottleneck ---


@pytest.mark.parametrize(
    ("diagnosis", "bottleneck"),
    [
        pytest.param(STORAGE, "storage", id="storage"),
        pytest.param(TRANSFORMS, "transforms", id="transforms"),
        pytest.param(COLLATION, "collation", id="collation"),
        pytest.param(COPY, "copy", id="copy"),
        pytest.param(STEP, "step", id="step"),
        pytest.param(FOREIGN, "loader", id="a foreign loader"),
        pytest.param(
            made_up(storage=0.01, whole=0.0110, loader=0.010), "step", id="busy for 9 tenths"
        ),
        pytest.param(
            made_up(storage=0.01, whole=0.0112, loader=0.010), "storage", id="busy for less"
        ),
        # Loader and step compete for the same cores if the step is computed on the CPU.
        pytest.param(made_up(whole=0.02, loader=0.003), "step", id="a loader 3 times as fast"),
        pytest.param(
            made_up(storage=0.038, whole=0.02, loader=0.005), "storage", id="one twice as fast"
        ),
        pytest.param(
            made_up(whole=0.0105, loader=0.005, copy=0.004), "step", id="a copy below half"
        ),
        pytest.param(
            made_up(whole=0.0005, loader=0.0001, same=0.0005, copy=0.0004),
            "step",
            id="quick copy",
        ),
    ],
)
def test_the_part_that_takes_the_time_is_the_bottleneck(diagnosis, bottleneck):
    assert diagnosis.bottleneck == bottleneck


def test_fetching_that_computes_belongs_to_the_transforms():
    diagnosis = made_up(storage=0.038, fetch_computes=0.8)
    assert diagnosis.parts["storage"] == 0
    assert diagnosis.bottleneck == "transforms"


def test_fetching_rows_of_arrays_is_collation_and_counted_once():
    diagnosis = made_up(
        storage=0.021, memory=0.02, collation=0.02, fetch_computes=1.0, gathers=True
    )
    assert diagnosis.parts == {
        "storage": 0.0,
        "transforms": 0.0,
        "collation": pytest.approx(0.021),
    }


def test_rows_of_arrays_that_must_be_waited_for_are_storage():
    diagnosis = made_up(storage=0.038, memory=0.002, collation=0.002, gathers=True)
    assert diagnosis.parts["storage"] == pytest.approx(0.036)
    assert diagnosis.bottleneck == "storage"


def test_transforms_are_what_is_left_without_fetching_and_collation():
    assert made_up(memory=0.005, collation=0.002).parts["transforms"] == pytest.approx(0.003)


def test_no_part_takes_less_than_nothing():
    assert made_up(memory=0.001, collation=0.002).parts["transforms"] == 0


def test_without_a_step_the_slowest_part_of_the_loader_is_named():
    alone = made_up(whole=None, same=None, memory=0.038, waits_seconds=())
    assert (alone.bottleneck, alone.busy_share, alone.gain) == ("transforms", None, None)


# --- the requirement ---


@pytest.mark.parametrize(("late", "share"), [(0, 1.0), (1, 0.99), (2, 0.98)])
def test_batches_that_had_to_be_waited_for_were_not_ready(late, share):
    waits = (0.005,) * late + (0.0,) * (100 - late)
    assert made_up(waits_seconds=waits).ready_share == share


@pytest.mark.parametrize(("late", "said"), [(1, "99.0% of the batches, enough"), (2, "too few")])
def test_exactly_99_of_100_batches_are_enough(late, said):
    waits = (0.005,) * late + (0.0,) * (100 - late)
    assert said in str(made_up(waits_seconds=waits))


@pytest.mark.parametrize(("wait", "share"), [(0.0005, 1.0), (0.0006, 0.0)])
def test_a_wait_of_a_twentieth_of_the_step_is_none(wait, share):
    assert made_up(waits_seconds=(wait,)).ready_share == share


@pytest.mark.parametrize(("wait", "share"), [(0.0001, 1.0), (0.00011, 0.0)])
def test_a_wait_of_a_tenth_of_a_millisecond_is_none(wait, share):
    assert made_up(same=0.0002, waits_seconds=(wait,)).ready_share == share


def test_the_step_time_that_was_asked_for_counts():
    diagnosis = made_up(t=1.0)
    assert (diagnosis.step_seconds, diagnosis.ready_share) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("t", "bottleneck", "word"),
    [(1.0, "step", "enough"), (0.05, "storage", "enough"), (0.02, "storage", "too slow")],
)
def test_a_loader_alone_is_held_against_the_step_time_that_was_asked_for(t, bottleneck, word):
    diagnosis = made_up(whole=None, same=None, waits_seconds=(), storage=0.03, t=t)
    assert diagnosis.bottleneck == bottleneck
    assert f"a batch comes every 40 ms, {word}" in str(diagnosis)
    assert ("keeps up with t" in diagnosis.advice[0]) == (bottleneck == "step")


def test_without_waits_nothing_is_said_about_the_requirement():
    diagnosis = made_up(waits_seconds=())
    assert diagnosis.ready_share is None
    assert "ready within" not in str(diagnosis)


# --- what is gained ---


def test_the_gain_is_bounded_by_the_step():
    assert STORAGE.gain == pytest.approx(4.0)


def test_the_gain_is_bounded_by_the_next_part():
    assert made_up(storage=0.038, memory=0.021).gain == pytest.approx(2.0)


def test_without_the_copy_the_rest_of_the_step_is_left():
    assert COPY.gain == pytest.approx(0.0105 / 0.002)


def test_nothing_is_gained_where_the_step_is_the_bottleneck():
    assert STEP.gain == 1.0


# --- for people ---


def test_the_numbers_are_shown():
    lines = str(STORAGE).splitlines()
    assert lines[:3] == [
        "bottleneck: storage: fetching the samples",
        "the device has work for 25% of the time",
        "without the bottleneck, training would be up to 4 times as fast",
    ]
    rows = {line[:50].strip(): line[50:].split() for line in lines}
    assert rows["the whole, loader and step"] == ["40", "1,600"]
    assert rows["fetching alone"] == ["38", "1,684"]
    assert rows["the step, with the same batch again and again"] == ["10", "6,400"]
    assert "workers: 2 threads, on 4 CPUs" in lines
    assert "ready within t = 10 ms: 0.0% of the batches, too few (wanted: 99%)" in lines


def test_a_large_gain_is_shown_in_full():
    assert "up to 1,250 times as fast" in str(
        made_up(storage=50.0, loader=50.0, whole=50.0, same=0.04)
    )


def test_what_was_not_measured_is_not_shown():
    text = str(FOREIGN)
    assert "fetching alone" not in text
    assert "copy to the device" not in text
    assert "workers: " not in text


def test_it_is_said_that_fetching_computes():
    assert "(computing 80% of it)" in str(made_up(storage=0.038, fetch_computes=0.8))
