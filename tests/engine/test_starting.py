"""While worker processes start: the consumer makes batches itself, if they were its to make."""

from __future__ import annotations

import os

import numpy as np
import pytest

from adapters.engine import Engine, Settings
from adapters.engine.tuning import Choice, Trial
from tests.plans import plan_of

# More than are made until processes have started.
BATCHES = 500_000


def with_pid(sample):
    return np.array([sample, os.getpid()])


@pytest.fixture
def measured():
    """An engine whose measurement has just come to an end, in favour of two processes."""
    plan = plan_of(np.arange(4 * BATCHES), 4, transform=with_pid)
    engine = Engine(plan, Settings("auto"))
    engine._trial, engine._choice = Trial(plan, False), Choice("processes", 2, 2)
    yield engine
    engine.close()


def test_after_the_measurement_nobody_waits_for_processes_to_start(measured):
    stream = measured.stream(0, 0, False)
    first = stream.next()
    assert first.tolist() == [[number, os.getpid()] for number in range(4)]


def test_the_processes_take_over_and_no_batch_is_lost_or_repeated(measured):
    stream = measured.stream(0, 0, False)
    batches = [stream.next()]
    while batches[-1][0, 1] == os.getpid() and len(batches) < BATCHES - 10:
        batches.append(stream.next())
    batches += [stream.next() for _ in range(9)]
    samples = np.concatenate(batches)[:, 0].tolist()
    assert (samples == list(range(len(samples))), batches[-1][0, 1] == os.getpid()) == (True, False)


@pytest.mark.parametrize("workers", [2, "auto"])
def test_processes_that_were_asked_for_make_every_batch(workers):
    """What kills its process must not kill the trainer."""
    plan = plan_of(np.arange(40), 4, transform=with_pid)
    engine = Engine(plan, Settings(workers, True))
    stream = engine.stream(0, 0, False)
    pids = {int(pid) for _ in range(10) for pid in stream.next()[:, 1]}
    engine.close()
    assert os.getpid() not in pids
