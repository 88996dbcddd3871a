"""Who had the CPUs: what Linux counts, added up."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from adapters.diagnosis import contention
from adapters.diagnosis.contention import Account

STAT = """cpu  9 9 9 9 9 9 9 9 0 0
cpu0 100 10 30 500 40 5 5 10 7 7
cpu1 1 1 1 1 1 1 1 1 0 0
cpu12 200 0 0 300 0 0 0 0 0 0
intr 12345
"""


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``/proc`` of our own: this process, a worker with a helper, and somebody else's."""
    monkeypatch.setattr(contention, "_PROC", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 12})
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    tmp_path.joinpath("stat").write_text(STAT)
    for number, parent, ticks in [(os.getpid(), 1, 10), (9001, os.getpid(), 20), (9002, 9001, 30)]:
        process(tmp_path, number, parent, ticks)
    process(tmp_path, 9003, 1, 1000)
    return tmp_path


def process(proc: Path, number: int, parent: int, ticks: int) -> None:
    """One that took so many ticks in each of the four ways that are counted."""
    folder = proc / str(number)
    folder.mkdir(exist_ok=True)
    rest = f"S {parent} " + "0 " * 9 + f"{ticks} {ticks} {ticks} {ticks} 20 0"
    folder.joinpath("stat").write_text(f"{number} (a (b) c) {rest}")


def test_the_usable_cpus_are_counted_and_no_others(proc):
    assert (Account.now().busy, Account.now().idle) == (3.6, 8.4)


def test_workers_and_their_children_are_our_own(proc):
    assert Account.now().own == 4 * (10 + 20 + 30) / 100


def test_what_is_neither_ours_nor_idle_is_the_others():
    found = Account(10.0, 20.0, 5.0).until(Account(17.0, 23.0, 8.0))
    assert (found.others, found.idle) == (0.4, 0.3)


def test_nobody_takes_less_than_nothing():
    assert Account(10.0, 20.0, 5.0).until(Account(11.0, 29.0, 6.1)).others == 0


@pytest.mark.parametrize("text", ["", "cpu0 nonsense\n"], ids=["nothing", "nonsense"])
def test_where_nothing_is_told_nothing_is_known(proc, text):
    proc.joinpath("stat").write_text(text)
    assert Account.now() is None


def test_a_system_without_these_files_tells_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(contention, "_PROC", tmp_path / "none")
    assert Account.now() is None


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="only Linux counts it there")
def test_the_time_of_a_child_that_has_ended_is_ours():
    before = Account.now()
    program = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    after = Account.now()
    assert 0.4 < after.own - before.own < after.busy - before.busy + 0.1
    assert time.process_time() > 0
