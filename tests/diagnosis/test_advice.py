"""What the doctor says of a change, in words."""

from __future__ import annotations

import dataclasses

from adapters.diagnosis.contention import Contention
from adapters.diagnosis.prediction import Prediction
from adapters.diagnosis.verdict import Workers
from tests.diagnosis.made_up import made_up
from tests.diagnosis.test_prediction import INLINE, STORAGE, TRANSFORMS


def test_advice_says_what_it_brings_and_what_nothing_brings():
    advice = STORAGE.advice
    assert advice[0].startswith("workers=8: that many fetches at once keep up with the step (+")
    assert "; workers=4: +" in advice[0]
    assert advice[-1].startswith("nothing brings more than +300% here")


def test_advice_for_a_transform_that_waits_names_more_workers_than_cpus():
    waiting = made_up(memory=0.038, workers=INLINE, alone=0.04, alone_computes=0.02, same=0.002)
    expected = 'workers="auto", or 20: the transform waits for 98% of its time, which takes no CPU'
    assert waiting.advice[0].startswith(f"{expected} (20 times as fast; workers=3: +200%)")
    assert "CPUs would keep up" not in "".join(waiting.advice)
    threads = dataclasses.replace(waiting, workers=Workers("threads", 2, 4), alone=0.08)
    assert threads.advice[0].startswith("workers=40: the transform waits")
    fast = dataclasses.replace(threads, workers=Workers("threads", 64, 4))
    assert not any("the transform waits" in each for each in fast.advice)


def test_copies_of_a_source_that_threads_would_ask_one_at_a_time():
    copied = made_up(storage=0.038, workers=Workers("processes", 2, 4), copied=True)
    assert copied.advice[0] == "workers=8, and another source (+217%)"
    assert copied.advice[1].startswith("workers=8, with_processes as now: that many fetches")


def test_advice_for_a_source_that_is_asked_one_at_a_time_is_one_line_with_what_it_brings():
    workers = Workers("inline", 0, 4)
    found = made_up(
        storage=0.4, alone=0.4, loader=0.4, whole=0.4, one_at_a_time=True, workers=workers
    )
    said = "workers=40, and another source (10 times as fast)"
    assert found.advice[0] == said
    theirs = dataclasses.replace(found, replaced="ours")
    assert theirs.advice[0] == f"ours, with {said}"
    assert not any("alone, it made" in each for each in theirs.advice)


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
