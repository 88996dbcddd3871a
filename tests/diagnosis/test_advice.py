"""What the doctor says of a change, and predicts of it, against what happens when it is made."""

from __future__ import annotations

import dataclasses
import itertools
import time
from typing import Any

import pytest

from adapters import SafeSequence, diagnose
from adapters.diagnosis import Diagnosis
from adapters.diagnosis.report import with_workers
from adapters.diagnosis.verdict import Workers
from tests.diagnosis.made_up import BUSY, made_up
from tests.diagnosis.planted import BATCH_SIZE, Numbers
from tests.diagnosis.test_verdict import COLLATION, COPY, FOREIGN, INLINE, STEP, STORAGE, TRANSFORMS

WAITING = made_up(memory=0.038, workers=INLINE, alone=0.04, alone_computes=0.02, same=0.002)
MANY = Workers("threads", 64, 4)
SERIAL = made_up(
    storage=0.4, alone=0.4, alone_computes=0.1, loader=0.4, whole=0.4, serial=True, workers=INLINE
)
DECLARED = "thread_safe=True, if several threads may run your code at once"
REPLACED = "SafeSequence in the place of the PyDataset"
# Within that of what happens; a round has two batches or more.
WITHIN, SECONDS = 0.2, 0.3


def changed(diagnosis: Diagnosis, **changes: object) -> Diagnosis:
    return dataclasses.replace(diagnosis, **changes)


@pytest.mark.parametrize(
    ("diagnosis", "advice"),
    [
        # By what one takes and the step does, in the loader's own word, up to 64.
        (STORAGE, "more workers, for as many fetches at once (workers=8: +300%)"),
        (
            made_up(whole=5.0, loader=5.0, storage=5.0, alone=10.0, alone_computes=0.01),
            "more workers, for as many fetches at once (workers=64: 32 times as fast)",
        ),
        (
            made_up(memory=0.038, alone=0.04, workers=INLINE),
            'workers="auto", which finds out whether threads or processes help',
        ),
        (TRANSFORMS, "more workers: there are CPUs left (workers=4: +100%)"),
        # Threads that make no more than one.
        (
            made_up(memory=0.038, alone=0.040),
            "worker processes (use_multiprocessing=True; in Gluon, thread_pool=False): several",
        ),
        (made_up(memory=0.038, kernel_missing=True), "build the native kernel"),
        # A transform that waits: more workers than CPUs, unless it is one at a time.
        (
            WAITING,
            "more workers, as the transform waits, which takes no CPU (workers=20: 20 times as "
            "fast)",
        ),
        (changed(WAITING, serial=True), DECLARED),
        (STEP, "nothing about the loader: the device is busy"),
        # What asks its source one at a time.
        (SERIAL, DECLARED),
        (made_up(storage=0.038, serial=True), DECLARED),
        (
            made_up(memory=0.038, replaced=REPLACED),
            f"{REPLACED}: its batches are made while the step runs; alone, it made 1,600 samples/s",
        ),
        (
            made_up(storage=0.038, workers=Workers("processes", 2, 4), serial=True),
            "more workers, for as many fetches at once (workers=8: +300%)",
        ),
        # Samples in a store behind URLs.
        (made_up(storage=0.038, store="uncached"), 'cache="/a/local/folder"'),
        (made_up(storage=0.038, store="cached"), "let the cache fill"),
    ],
)
def test_advice_begins_with_what_brings_most(diagnosis, advice):
    assert diagnosis.advice[0].startswith(advice)


@pytest.mark.parametrize(
    ("diagnosis", "said", "unsaid"),
    [
        (STORAGE, ["adapters pack"], ["whole batch", "cache=", DECLARED]),
        (
            TRANSFORMS,
            ["resize", "whole batch"],
            ["kernel", "worker processes", DECLARED],
        ),
        (
            made_up(memory=0.038, workers=Workers("processes", 4, 4)),
            ["more CPUs, or less work for each sample"],
            ["CPUs left"],
        ),
        (made_up(storage=0.038, serial=True, alone_computes=1.0), [], ["workers="]),
        (SERIAL, ["(workers=40: 10 times as fast)"], []),
        (WAITING, [], ["more CPUs"]),
        (changed(WAITING, workers=MANY, alone=0.08), [], ["more workers"]),
        (changed(TRANSFORMS, alone_computes=0.02), [], ["whole batch"]),
        (changed(TRANSFORMS, has_transform=False), [], ["whole batch"]),
        (COLLATION, ["uint8"], []),
        (COPY, ["pinned memory"], ["ctx="]),
        (changed(COPY, workers=Workers("threads", 2, 4, "num_workers")), ["ctx="], []),
        (FOREIGN, ["SafeSequence"], []),
        (changed(STORAGE, queued_share=BUSY), [], ["%"]),
        (made_up(memory=0.038, alone=0.040, queued_share=BUSY), [], ["interpreter lock"]),
        (made_up(storage=0.038, store="uncached"), ["local disk (+300%)"], ["network share"]),
    ],
)
def test_advice_says_what_applies(diagnosis, said, unsaid):
    text = "\n".join(diagnosis.advice)
    assert [each for each in said if each not in text] == []
    assert [each for each in unsaid if each in text] == []


def test_advice_for_a_busy_device_is_no_other_loader():
    assert changed(STEP, replaced=REPLACED).advice == STEP.advice
    (advice,) = made_up(whole=0.02, loader=0.003, alone=0.006, replaced=REPLACED).advice
    assert advice.startswith(REPLACED)


@pytest.mark.parametrize(
    ("diagnosis", "changes"),
    [
        # Threads that bring nothing, or have to run one at a time, bring nothing if they are more.
        (made_up(memory=0.038, alone=0.041), {"processes"}),
        (changed(STORAGE, alone=0.04, serial=True), {"without storage", "threads"}),
        (made_up(whole=0.0105, loader=0.005, alone=0.010), set()),  # The device is busy.
        (FOREIGN, set()),
        (changed(STORAGE, store="cached"), {"workers", "without storage"}),
        (changed(STORAGE, queued_share=BUSY), {"workers", "without storage"}),
    ],
)
def test_prediction_is_of_what_may_help(diagnosis, changes):
    assert {each.change for each in diagnosis.predictions} == changes


BATCH_SECONDS, STEP_SECONDS = 0.04, 0.01


def waiting(batch: Any) -> Any:
    """A transform that lets other threads work meanwhile, as decoders do."""
    time.sleep(BATCH_SECONDS)
    return batch


waiting.thread_safe = True  # type: ignore[attr-defined]


def step(batch: Any) -> None:
    time.sleep(STEP_SECONDS)


def waiting_with(workers: Any) -> SafeSequence:
    return SafeSequence(Numbers(), BATCH_SIZE, batch_transform=waiting, workers=workers)


def trained_seconds(workers: Any) -> float:
    """Of a batch, in the training loop of somebody who has followed the advice."""
    with waiting_with(workers) as sequence:
        batches = (batch for _ in itertools.count() for batch in sequence)
        for batch in itertools.islice(batches, 2 * len(sequence)):
            step(batch)
        began = time.perf_counter()
        for batch in itertools.islice(batches, 2 * len(sequence)):
            step(batch)
        return (time.perf_counter() - began) / (2 * len(sequence))


@pytest.mark.serial
def test_followed_advice_of_workers_for_a_transform():
    with waiting_with(0) as sequence:
        found = diagnose(sequence, step, seconds=SECONDS)
    if found.noise:
        pytest.skip("the doctor predicts nothing while others have the CPUs")
    predicted = with_workers(found, 2)
    assert (found.bottleneck, predicted.gain > 1.5) == ("transforms", True)
    assert trained_seconds(2) == pytest.approx(predicted.seconds, rel=WITHIN)
    chosen = found.predictions[0]
    assert (chosen.change, chosen.gain > 3) == ("workers", True)
    assert trained_seconds("auto") == pytest.approx(chosen.seconds, rel=WITHIN)
