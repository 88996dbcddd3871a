"""On a machine that others keep busy for a while, no advice comes from figures that disagree."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from adapters import SafeSequence, diagnose
from tests.diagnosis.planted import BATCH_SIZE, SLOW, Numbers, burning

_CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
# All of them are busy at once for a while and idle for a while, by the clock of the machine. They
# end by themselves where nobody is left to end them.
_PROGRAM = """
import os, time
os.write(1, b"%d\\n" % os.getpid())
while time.monotonic() < {end}:
    while time.monotonic() % 1.2 < 0.8:
        pass
    time.sleep(0.01)
"""
# Nobody's children: what this process starts counts as its own.
_STARTER = """
import subprocess, sys
for _ in range({count}):
    subprocess.Popen([sys.executable, "-c", {program!r}])
"""
_MOST_SECONDS = 60

pytestmark = [
    pytest.mark.skipif(not _CPUS, reason="only Linux tells who has the CPUs"),
    pytest.mark.serial,
    pytest.mark.full,
]


@pytest.fixture
def others() -> Iterator[None]:
    """Four busy programs of somebody else for each CPU."""
    program = _PROGRAM.format(end=time.monotonic() + _MOST_SECONDS)
    starter = _STARTER.format(count=4 * _CPUS, program=program)
    with subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.wait() == 0
        busy = [int(started.stdout.readline()) for _ in range(4 * _CPUS)]
        try:
            yield
        finally:
            for pid in busy:
                os.kill(pid, signal.SIGKILL)


def short_step(batch: Any) -> None:
    """Computes for about a millisecond."""
    sum(range(20_000))


def test_a_busy_machine_is_noticed_and_no_numbers_are_advised(others):
    with SafeSequence(Numbers(), BATCH_SIZE, workers=0, transform=burning) as sequence:
        diagnosis = diagnose(sequence, short_step, seconds=0.5)
    text = str(diagnosis)
    assert diagnosis.contention.others > 0.15
    assert re.search(r"noise: other programs took \d+% of the CPU time", text)
    assert "CPUs would keep up" not in text
    assert not re.search(r"workers=\d", text)
    if diagnosis.certain:
        # One thread does it all: both figures are of the same work.
        assert diagnosis.loader == pytest.approx(diagnosis.alone, rel=1.0)
        assert diagnosis.bottleneck == "transforms"
        assert diagnosis.loader > 0.8 * BATCH_SIZE * SLOW
