"""What the doctor predicts of a change, and what it says of that."""

from __future__ import annotations

import dataclasses

import pytest

from adapters.diagnosis import Diagnosis
from adapters.diagnosis.contention import Contention
from adapters.diagnosis.prediction import Prediction, with_workers
from adapters.diagnosis.verdict import Workers
from tests.diagnosis.made_up import made_up

INLINE = Workers("inline", 0, 4)
STORAGE = made_up(storage=0.038)
TRANSFORMS = made_up(memory=0.038)


def named(diagnosis: Diagnosis, change: str, workers: int | None = None) -> Prediction:
    """What was predicted of a change; of as many workers, where there are several."""
    (found,) = (
        each
        for each in diagnosis.predictions
        if each.change == change and workers in (None, each.workers)
    )
    return found


def test_workers_that_wait_make_batches_by_their_number_until_the_step_is_slower():
    diagnosis = made_up(
        workers=INLINE, alone=0.040, loader=0.040, whole=0.050, storage=0.039, memory=0.001
    )
    four = named(diagnosis, "workers", 4)
    assert with_workers(diagnosis, 3).seconds == pytest.approx(0.040 / 3)
    assert four.seconds == pytest.approx(0.010)
    assert four.gain == pytest.approx(5.0)


def test_threads_that_bring_more_bring_as_much_for_each_of_two_more():
    slow = dataclasses.replace(TRANSFORMS, workers=Workers("threads", 2, 16))
    assert with_workers(slow, 4).seconds == pytest.approx(0.020)
    assert str(with_workers(slow, 4)) == "+100%"


def test_computing_workers_beyond_the_cpus_bring_nothing():
    four, eight = (with_workers(TRANSFORMS, count) for count in (4, 8))
    assert four.seconds == eight.seconds == pytest.approx(0.020)


def test_threads_that_bring_nothing_bring_nothing_more_and_processes_do():
    diagnosis = made_up(memory=0.038, alone=0.041)
    assert with_workers(diagnosis, 4).gain == 1.0
    assert {each.change for each in diagnosis.predictions} == {"processes"}
    assert named(diagnosis, "processes").seconds == pytest.approx(0.041 / 4, rel=0.01)


def test_a_transform_that_waits_needs_no_cpu_for_each_worker():
    waiting = made_up(memory=0.038, workers=INLINE, alone=0.04, alone_computes=0.1, same=0.002)
    assert waiting.waits
    assert with_workers(waiting, 8).seconds == pytest.approx(0.005)
    assert named(waiting, "workers", 20).seconds == pytest.approx(0.002)
    alone = dataclasses.replace(waiting, whole=None, same=None)
    assert named(alone, "workers", 10).seconds == pytest.approx(0.004)
    assert not dataclasses.replace(waiting, alone_computes=0.9).waits


def test_a_source_that_is_asked_one_at_a_time_gets_no_advice_of_workers():
    diagnosis = made_up(storage=0.038, alone=0.04, one_at_a_time=True)
    assert with_workers(diagnosis, 8).seconds == pytest.approx(0.040)
    assert {each.change for each in diagnosis.predictions} == {"without storage"}


def test_processes_that_wait_are_four_for_each_cpu_at_the_most():
    waits = made_up(storage=1.9, alone=4.0, loader=2.0, whole=2.0, memory=0.001, same=0.01)
    assert named(waits, "workers", 64)
    processes = dataclasses.replace(waits, workers=Workers("processes", 2, 4))
    assert {each.workers for each in processes.predictions} == {16, None}
    assert named(processes, "workers", 16).seconds == pytest.approx(0.25)


def test_without_a_part_the_others_are_left():
    assert named(STORAGE, "without storage").seconds == pytest.approx(0.010)
    slow_rest = made_up(storage=0.020, memory=0.019, workers=INLINE, alone=0.04, whole=0.05)
    assert named(slow_rest, "without storage").seconds == pytest.approx(0.019 + 0.010)


def test_a_loader_without_a_step_is_predicted_alone():
    alone = made_up(whole=None, same=None, memory=0.038, waits_seconds=())
    assert named(alone, "workers").seconds == pytest.approx(0.020)


def test_nothing_is_predicted_of_a_busy_accelerator_or_a_foreign_loader():
    assert made_up(whole=0.0105, loader=0.005, alone=0.010).predictions == ()
    foreign = made_up(storage=None, memory=None, alone=None, workers=Workers("unknown", 0, 4))
    assert foreign.predictions == ()


# --- in words ---


def test_advice_says_what_it_brings_and_what_nothing_brings():
    advice = STORAGE.advice
    assert advice[0].startswith("workers=8: that many fetches at once keep up with the step (+")
    assert advice[-1].startswith("nothing brings more than +300% here")


def test_advice_for_a_transform_that_waits_names_more_workers_than_cpus():
    waiting = made_up(memory=0.038, workers=INLINE, alone=0.04, alone_computes=0.02, same=0.002)
    expected = 'workers="auto", or 20: the transform waits for 98% of its time, which takes no CPU'
    assert waiting.advice[0].startswith(f"{expected} (20 times as fast)")
    assert "CPUs would keep up" not in "".join(waiting.advice)
    threads = dataclasses.replace(waiting, workers=Workers("threads", 2, 4), alone=0.08)
    assert threads.advice[0].startswith("workers=40: the transform waits")
    fast = dataclasses.replace(threads, workers=Workers("threads", 64, 4))
    assert not any("the transform waits" in each for each in fast.advice)


def test_a_loader_in_the_place_of_another_says_how_fast_it_is():
    theirs = dataclasses.replace(TRANSFORMS, replaced="ours")
    assert theirs.advice[0].startswith("ours: its batches are made while the step runs; alone, it")


def test_for_a_transform_that_waits_nothing_is_advised_that_computes_less():
    waiting = dataclasses.replace(TRANSFORMS, alone_computes=0.02)
    assert waiting.waits
    assert "another transform" not in waiting.advice


def test_where_there_is_no_transform_nothing_is_advised_about_it():
    assert "another transform" in TRANSFORMS.advice
    assert "another transform" not in dataclasses.replace(TRANSFORMS, has_transform=False).advice


def test_advice_for_arrays_speaks_of_no_pictures():
    assert "resize" in "".join(TRANSFORMS.advice)
    arrays = dataclasses.replace(TRANSFORMS, gathers=True).advice
    assert "resize" not in "".join(arrays)
    assert any(each.startswith("do once, before training, what is the same") for each in arrays)


def test_many_times_as_fast_is_not_said_in_hundredths():
    assert str(Prediction("workers", 8, 0.1, 1.7)) == "+70%"
    assert str(Prediction("workers", 64, 0.1, 64.4)) == "64 times as fast"


def test_on_a_noisy_machine_no_number_is_said():
    noisy = dataclasses.replace(STORAGE, contention=Contention(0.6, 0.05))
    assert noisy.predictions
    assert "%" not in "".join(noisy.advice)
