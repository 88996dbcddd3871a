"""What the doctor predicts of a change, against what happens when the change is made."""

from __future__ import annotations

import dataclasses
import itertools
import time
from typing import Any

import pytest

from adapters import SafeSequence, diagnose
from adapters.diagnosis import Diagnosis
from adapters.diagnosis.advice import Prediction, with_threads, with_workers
from adapters.diagnosis.verdict import Workers
from tests.diagnosis.made_up import made_up
from tests.diagnosis.planted import BATCH_SIZE, Numbers, burning

INLINE = Workers("inline", 0, 4)
STORAGE = made_up(storage=0.038)
TRANSFORMS = made_up(memory=0.038)
# Within that of what happens; long enough that a batch more or less doesn't count.
WITHIN, SECONDS = 0.2, 0.6


def named(diagnosis: Diagnosis, change: str, workers: int | None = None) -> Prediction:
    """What was predicted of a change; of as many workers, where there are several."""
    (found,) = (
        each
        for each in diagnosis.predictions
        if each.change == change and workers in (None, each.workers)
    )
    return found


# --- the arithmetic ---


def test_workers_that_wait_make_batches_by_their_number_until_the_step_is_slower():
    diagnosis = made_up(
        workers=INLINE, alone=0.040, loader=0.040, whole=0.050, storage=0.039, memory=0.001
    )
    four, three = named(diagnosis, "workers", 4), named(diagnosis, "workers", 3)
    assert three.seconds == pytest.approx(0.040 / 3, rel=0.2)
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


def test_what_is_computed_beside_waiting_limits_threads():
    diagnosis = made_up(
        workers=INLINE, alone=0.040, loader=0.040, storage=0.020, memory=0.018, whole=0.050
    )
    # And the step has the interpreter for a millisecond.
    assert with_workers(diagnosis, 64).seconds == pytest.approx(0.023, rel=0.01)


def test_a_transform_that_waits_needs_no_cpu_for_each_worker():
    waiting = made_up(memory=0.038, workers=INLINE, alone=0.04, alone_computes=0.1, same=0.002)
    assert waiting.waits
    assert with_workers(waiting, 8).seconds == pytest.approx(0.005)
    # What it computes beside waiting, threads may have to do one at a time, beside the step.
    assert with_workers(waiting, 20).seconds == pytest.approx(0.005)
    assert named(waiting, "workers", 20)
    alone = dataclasses.replace(waiting, whole=None, same=None)
    assert named(alone, "workers", 10).seconds == pytest.approx(0.004)
    assert not dataclasses.replace(waiting, alone_computes=0.9).waits


def test_a_source_that_is_asked_one_at_a_time_gets_no_advice_of_workers():
    diagnosis = made_up(storage=0.038, alone=0.04, serial=True)
    assert with_workers(diagnosis, 8).seconds == pytest.approx(0.040)
    assert {each.change for each in diagnosis.predictions} == {"without storage", "threads"}


def test_threads_that_may_ask_a_source_at_once_make_batches_by_their_number():
    workers = Workers("threads", 2, 4)
    slow = made_up(storage=0.4, alone=0.4, loader=0.4, whole=0.4, workers=workers)
    threads = with_threads(dataclasses.replace(slow, serial=True))
    assert (threads.change, threads.workers) == ("threads", 40)
    # A tenth of the fetching computes, one thread at a time.
    assert threads.seconds == pytest.approx(0.041)
    copied = Workers("processes", 2, 4)
    copies = dataclasses.replace(slow, storage=0.2, loader=0.2, workers=copied, serial=True)
    assert with_threads(copies).seconds == pytest.approx(0.041)
    assert with_threads(slow) is None
    assert with_threads(made_up(memory=0.04, serial=True)) is None


def test_processes_that_wait_are_four_for_each_cpu_at_the_most():
    waits = made_up(storage=1.9, alone=4.0, loader=2.0, whole=2.0, memory=0.001, same=0.01)
    assert named(waits, "workers", 64)
    processes = dataclasses.replace(waits, workers=Workers("processes", 2, 4))
    assert {each.workers for each in processes.predictions} == {16, 4, None}
    assert named(processes, "workers", 16).seconds == pytest.approx(0.25)


def test_without_a_part_the_others_are_left():
    assert named(STORAGE, "without storage").seconds == pytest.approx(0.010)
    slow_rest = made_up(storage=0.020, memory=0.019, workers=INLINE, alone=0.04, whole=0.05)
    assert named(slow_rest, "without storage").seconds == pytest.approx(0.019 + 0.010)


def test_a_loader_without_a_step_is_predicted_alone():
    alone = made_up(whole=None, same=None, memory=0.038, waits_seconds=())
    assert named(alone, "workers").seconds == pytest.approx(0.020)


def test_training_that_is_disturbed_by_its_loader_stays_so():
    disturbed = made_up(memory=0.038, whole=0.044)
    assert with_workers(disturbed, 4).seconds == pytest.approx(0.022)


def test_nothing_is_predicted_of_a_busy_accelerator_or_a_foreign_loader():
    assert made_up(whole=0.0105, loader=0.005, alone=0.010).predictions == ()
    foreign = made_up(storage=None, memory=None, alone=None, workers=Workers("unknown", 0, 4))
    assert foreign.predictions == ()


# --- advice that is followed ---

BATCH_SECONDS, STEP_SECONDS = 0.04, 0.01


class Stored(Numbers):
    """Slow storage that is asked for many samples at a time."""

    thread_safe = True

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        # Of a part of a batch, as long as that takes.
        time.sleep(BATCH_SECONDS / BATCH_SIZE * len(numbers))
        return [self[number] for number in numbers]


def waiting(batch: Any) -> Any:
    """A transform that lets other threads work meanwhile, as decoders do."""
    time.sleep(BATCH_SECONDS)
    return batch


waiting.thread_safe = True  # type: ignore[attr-defined]


def step(batch: Any) -> None:
    time.sleep(STEP_SECONDS)


def before(source: Any, step: Any = step, **options: Any) -> Diagnosis:
    """What the doctor finds."""
    with SafeSequence(source, BATCH_SIZE, **options) as sequence:
        found = diagnose(sequence, step, seconds=SECONDS)
    if found.noise:
        pytest.skip("the doctor predicts nothing while others have the CPUs")
    return found


def trained_seconds(source: Any, step: Any = step, **options: Any) -> float:
    """Of a batch, in the training loop of somebody who has followed the advice."""
    with SafeSequence(source, BATCH_SIZE, **options) as sequence:
        batches = (batch for _ in itertools.count() for batch in sequence)
        for batch in itertools.islice(batches, 2 * len(sequence)):
            step(batch)
        began = time.perf_counter()
        for batch in itertools.islice(batches, 2 * len(sequence)):
            step(batch)
        return (time.perf_counter() - began) / (2 * len(sequence))


def happens(seconds: float) -> Any:
    return pytest.approx(seconds, rel=WITHIN)


@pytest.mark.serial
def test_more_fetches_at_once_bring_what_was_predicted():
    predicted = named(before(Stored(), workers=0), "workers", 3)
    assert predicted.gain > 2
    assert trained_seconds(Stored(), workers=3) == happens(predicted.seconds)


@pytest.mark.serial
def test_more_workers_for_a_transform_bring_what_was_predicted():
    found = before(Numbers(), batch_transform=waiting, workers=0)
    predicted = with_workers(found, 2)
    assert (found.bottleneck, predicted.gain > 1.5) == ("transforms", True)
    options = {"batch_transform": waiting, "workers": 2}
    assert trained_seconds(Numbers(), **options) == happens(predicted.seconds)


@pytest.mark.serial
def test_workers_that_are_chosen_for_a_waiting_transform_bring_what_was_predicted():
    predicted = before(Numbers(), batch_transform=waiting, workers=0).predictions[0]
    assert (predicted.change, predicted.gain > 3) == ("workers", True)
    taken = trained_seconds(Numbers(), batch_transform=waiting, workers="auto")
    assert taken == happens(predicted.seconds)


@pytest.mark.serial
@pytest.mark.full
def test_samples_in_memory_bring_what_was_predicted():
    predicted = named(before(Stored(), workers=0), "without storage")
    assert trained_seconds(Numbers(), workers=0) == happens(predicted.seconds)


@pytest.mark.serial
@pytest.mark.full
def test_processes_for_a_transform_that_computes_bring_what_was_predicted():
    found = before(Numbers(), transform=burning, workers=2)
    if found.workers.cpus < 2:
        pytest.skip("two processes that compute need two CPUs")
    predicted = with_workers(found, 2, processes=True)
    options = {"workers": 2, "use_multiprocessing": True, "transform": burning}
    assert trained_seconds(Numbers(), **options) == happens(predicted.seconds)


@pytest.mark.serial
@pytest.mark.full
def test_workers_for_a_busy_accelerator_bring_nothing_as_predicted():
    found = before(Numbers(), waiting, workers=0)
    assert (found.bottleneck, found.predictions) == ("step", ())
    assert trained_seconds(Numbers(), waiting, workers=2) == happens(found.whole)
