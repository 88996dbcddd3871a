"""On a busy machine, work that computes isn't taken for work that waits, nor this for that."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapters import clock
from adapters.clock import Spent
from adapters.engine import usable_cpus

BURNERS_PER_CPU = 4
# Ends by itself, should nobody be left to end it.
BURNER = """
import time
until = time.monotonic() + 60
print(flush=True)
while time.monotonic() < until:
    pass
"""
_CPU_SECONDS = 0.05
# Whatever else the machine does adds to what is found, and takes nothing away.
_TRIES = 8

pytestmark = [pytest.mark.serial, pytest.mark.full]
with_schedstat = pytest.mark.skipif(
    not Path(clock._SCHEDSTAT).exists(),
    reason="this system doesn't say how long a thread is queued",
)


@pytest.fixture(autouse=True)
def busy_machine() -> Iterator[None]:
    """Others compute on each CPU."""
    burners = [
        subprocess.Popen([sys.executable, "-c", BURNER], stdout=subprocess.PIPE)
        for _ in range(BURNERS_PER_CPU * usable_cpus())
    ]
    for burner in burners:
        assert burner.stdout is not None
        burner.stdout.readline()
    yield
    for burner in burners:
        burner.kill()
        burner.communicate()


@pytest.fixture
def no_schedstat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_SCHEDSTAT", "/nowhere")


def spin() -> None:
    until = time.thread_time() + _CPU_SECONDS
    while time.thread_time() < until:
        pass


def spin_with_a_pause() -> None:
    spin()
    time.sleep(0.0001)


def sleep() -> None:
    time.sleep(_CPU_SECONDS)


def tries(work: Callable[[], None]) -> list[Spent]:
    """What it takes, several times."""
    found = []
    for _ in range(_TRIES):
        started = Spent.now()
        work()
        found.append(started.until_now())
    return found


def waiting(found: list[Spent]) -> list[float]:
    """The shares of its own time that it has waited."""
    return [1 - spent.busy_seconds / spent.own_seconds for spent in found]


@with_schedstat
def test_time_in_the_queue_for_a_cpu_is_not_the_works_own():
    found = tries(spin)
    assert max(spent.seconds for spent in found) > 2 * _CPU_SECONDS
    assert min(spent.own_seconds for spent in found) < 1.5 * _CPU_SECONDS
    assert any(spent.noisy for spent in found)


@with_schedstat
@pytest.mark.parametrize("work", [spin, spin_with_a_pause])
def test_work_that_computes_is_not_taken_for_waiting(work):
    assert min(waiting(tries(work))) < 0.25


@pytest.mark.usefixtures("no_schedstat")
def test_nor_is_it_where_nobody_says_how_long_a_thread_is_queued():
    found = tries(spin)
    assert {spent.queued_seconds for spent in found} == {0.0}
    assert max(spent.seconds for spent in found) > 2 * _CPU_SECONDS
    assert min(waiting(found)) < 0.25


@with_schedstat
def test_work_that_sleeps_is_taken_for_waiting():
    assert max(waiting(tries(sleep))) > 0.75


@pytest.mark.usefixtures("no_schedstat")
def test_so_it_is_where_nobody_says_how_long_a_thread_is_queued():
    assert max(waiting(tries(sleep))) > 0.75
