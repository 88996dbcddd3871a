"""What the doctor says of a change, in words."""

from __future__ import annotations

import dataclasses

import pytest

from adapters.diagnosis import Diagnosis
from adapters.diagnosis.advice import Prediction
from adapters.diagnosis.contention import Contention
from adapters.diagnosis.verdict import Hints, Workers
from tests.diagnosis.made_up import THREADS, made_up
from tests.diagnosis.test_verdict import COLLATION, COPY, FOREIGN, STEP, STORAGE, TRANSFORMS

INLINE = Workers("inline", 0, 4)
WAITING = made_up(memory=0.038, workers=INLINE, alone=0.04, alone_computes=0.02, same=0.002)
SERIAL = made_up(storage=0.4, alone=0.4, loader=0.4, whole=0.4, serial=True, workers=INLINE)
REPLACED = "SafeSequence in the place of the PyDataset"


def changed(diagnosis: Diagnosis, **changes: object) -> Diagnosis:
    return dataclasses.replace(diagnosis, **changes)


# --- the first advice ---


@pytest.mark.parametrize(
    ("diagnosis", "advice"),
    [
        pytest.param(
            STORAGE,
            "workers=8: that many fetches at once keep up with the step (+",
            id="by what one takes and the step does",
        ),
        pytest.param(
            made_up(storage=0.038, workers=dataclasses.replace(THREADS, keyword="num_workers")),
            "num_workers=8: ",
            id="in the loader's own word",
        ),
        pytest.param(
            made_up(whole=5.0, loader=5.0, storage=5.0, alone=10.0),
            "workers=64: that many fetches at once are the most that pay as a rule, where it would "
            "take 1,000 to keep up",
            id="no more than 64",
        ),
        pytest.param(
            made_up(memory=0.038, alone=0.04, workers=INLINE),
            'workers="auto", which finds out whether threads or processes help',
            id="a loader without workers",
        ),
        pytest.param(TRANSFORMS, "workers=4: there are CPUs left", id="up to the CPUs"),
        pytest.param(
            made_up(memory=0.038, alone=0.040),
            "worker processes: 2 threads make 1 times",
            id="threads that make no more than one",
        ),
        pytest.param(
            made_up(memory=0.038, kernel_missing=True),
            "build the image kernel",
            id="the missing kernel comes first",
        ),
        pytest.param(
            WAITING,
            'workers="auto", or 20: the transform waits for 98% of its time, which takes no CPU '
            "(20 times as fast; workers=3: +200%)",
            id="a transform that waits: more workers than CPUs",
        ),
        pytest.param(
            changed(WAITING, workers=Workers("threads", 2, 4), alone=0.08),
            "workers=40: the transform waits",
            id="a transform that waits, on threads",
        ),
        pytest.param(
            made_up(memory=0.038, alone=0.04, alone_computes=0.02, workers=INLINE, serial=True),
            "workers=4, and another source (",
            id="a transform that waits, one at a time",
        ),
        pytest.param(STEP, "nothing about the loader: the device is busy", id="a busy accelerator"),
    ],
)
def test_the_first_advice(diagnosis, advice):
    assert diagnosis.advice[0].startswith(advice)


def test_advice_says_what_fewer_workers_bring():
    assert "; workers=4: +" in STORAGE.advice[0]


@pytest.mark.parametrize(
    ("diagnosis", "advice"),
    [
        pytest.param(
            SERIAL, "workers=40, and another source (10 times as fast)", id="one at a time"
        ),
        pytest.param(
            changed(SERIAL, replaced="ours"),
            "ours, with workers=40, and another source (10 times as fast)",
            id="one at a time, in the place of another loader",
        ),
        pytest.param(made_up(storage=0.038, serial=True), "another source", id="it must change"),
        pytest.param(
            made_up(memory=0.038, replaced=REPLACED),
            f"{REPLACED}: its batches are made while the step runs; alone, it made 1,600 samples/s "
            "here",
            id="a loader in the place of another",
        ),
    ],
)
def test_the_first_advice_in_full(diagnosis, advice):
    assert diagnosis.advice[0] == advice


def test_copies_of_a_source_that_threads_would_ask_one_at_a_time():
    copied = made_up(storage=0.038, workers=Workers("processes", 2, 4), serial=True)
    assert copied.advice[0] == "workers=8, and another source (+217%)"
    assert copied.advice[1].startswith("workers=8, with_processes as now: that many fetches")


# --- what is said, and what isn't ---


@pytest.mark.parametrize(
    ("diagnosis", "said", "unsaid"),
    [
        pytest.param(
            STORAGE, ["adapters pack"], ["another transform", "another source"], id="storage"
        ),
        pytest.param(
            TRANSFORMS,
            ["resize", "another transform"],
            ["kernel", "worker processes", "another source"],
            id="transforms",
        ),
        pytest.param(
            made_up(memory=0.038, workers=Workers("processes", 4, 4)),
            ["8 CPUs would keep up with the step, and there are 4"],
            ["CPUs left"],
            id="all CPUs have a worker",
        ),
        pytest.param(made_up(storage=0.038, serial=True), [], ["workers="], id="one at a time"),
        pytest.param(changed(SERIAL, replaced="ours"), [], ["alone, it made"], id="threads first"),
        pytest.param(WAITING, [], ["CPUs would keep up"], id="a transform that waits"),
        pytest.param(
            changed(WAITING, workers=Workers("threads", 64, 4), alone=0.08),
            [],
            ["the transform waits"],
            id="enough threads",
        ),
        pytest.param(
            changed(TRANSFORMS, alone_computes=0.02),
            [],
            ["another transform"],
            id="nothing computes less than a wait",
        ),
        pytest.param(
            changed(TRANSFORMS, has_transform=False), [], ["another transform"], id="no transform"
        ),
        pytest.param(
            changed(TRANSFORMS, gathers=True),
            ["do once, before training, what is the same"],
            ["resize"],
            id="arrays are no pictures",
        ),
        pytest.param(COLLATION, ["uint8"], [], id="smaller samples"),
        pytest.param(COPY, ["pinned memory"], [], id="the copy"),
        pytest.param(FOREIGN, ["SafeSequence"], [], id="a foreign loader"),
        pytest.param(
            changed(STORAGE, contention=Contention(0.6, 0.05)), [], ["%"], id="noise: no number"
        ),
    ],
)
def test_what_is_said_and_what_is_not(diagnosis, said, unsaid):
    text = "\n".join(diagnosis.advice)
    assert [each for each in said if each not in text] == []
    assert [each for each in unsaid if each in text] == []


def test_nothing_is_said_where_the_kind_of_loader_has_nothing():
    plain = changed(TRANSFORMS, hints=Hints())
    assert set(TRANSFORMS.advice) - set(plain.advice) == {"another transform"}
    assert "" not in made_up(storage=0.038, serial=True, hints=Hints()).advice


def test_where_the_accelerator_is_busy_no_other_loader_is_advised():
    assert changed(STEP, replaced=REPLACED).advice == STEP.advice


def test_many_times_as_fast_is_not_said_in_hundredths():
    assert str(Prediction("workers", 8, 0.1, 1.7)) == "+70%"
    assert str(Prediction("workers", 64, 0.1, 64.4)) == "64 times as fast"


def test_on_a_noisy_machine_there_are_predictions_all_the_same():
    assert changed(STORAGE, contention=Contention(0.6, 0.05)).predictions
