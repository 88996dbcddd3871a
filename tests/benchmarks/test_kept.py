from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.harness.kept import MOST_KEPT, KeptProcesses
from tests.benchmarks.made_up import open_session, sleeping_row

TELLING, HANGING = "tests.benchmarks.telling", "tests.benchmarks.hanging"


@pytest.fixture
def kept() -> Iterator[KeptProcesses]:
    processes = KeptProcesses()
    yield processes
    processes.close()


def process_of(kept: KeptProcesses, shared: str, backend: str | None = None, **options: str) -> int:
    outcome, unended = kept.run(shared, TELLING, options, 30, backend)
    assert (outcome.failure, unended) == (None, [])
    assert outcome.result is not None
    return int(outcome.result["metrics"]["process"])


def test_rows_that_are_alike_share_a_process(kept: KeptProcesses) -> None:
    first = process_of(kept, "one")
    assert process_of(kept, "another") != first
    assert process_of(kept, "one") == first


def test_only_the_last_few_processes_are_kept(kept: KeptProcesses) -> None:
    first = process_of(kept, "one")
    others = {process_of(kept, str(number)) for number in range(MOST_KEPT)}
    assert len(others) == MOST_KEPT
    assert not Path("/proc", str(first)).exists()
    assert process_of(kept, "one") != first


def test_a_failed_row_says_why_and_the_next_one_runs(kept: KeptProcesses) -> None:
    first = process_of(kept, "one")
    outcome, _ = kept.run("one", TELLING, {"error": "no such thing"}, 30)
    assert outcome.failure == "exit code 1: RuntimeError: no such thing"
    assert "Traceback" in outcome.log
    assert process_of(kept, "one") != first


def test_what_another_row_wrote_is_no_part_of_the_log(kept: KeptProcesses) -> None:
    process_of(kept, "one", says="of the first")
    outcome, _ = kept.run("one", TELLING, {"error": "no such thing"}, 30)
    assert "of the first" not in outcome.log


@pytest.mark.skipif(
    not Path("/dev/shm").is_dir(), reason="shared memory is no folder on this system"
)
def test_a_row_that_hangs_is_ended_and_the_next_one_runs(kept: KeptProcesses) -> None:
    first = process_of(kept, "one")
    name = f"kept-row-{os.getpid()}"
    outcome, _ = kept.run("one", HANGING, {"name": name}, 4)
    assert outcome.failure == "no result within 4 s"
    assert "measure" in outcome.log
    assert not Path("/dev/shm", name).exists()
    assert process_of(kept, "one") != first


def test_a_process_that_ends_badly_is_told(kept: KeptProcesses) -> None:
    process_of(kept, "one", at_exit="7")
    assert kept.close() == ["one: exit code 7"]


def test_only_the_smoke_size_shares(tmp_path: Path) -> None:
    session = open_session(tmp_path)
    specs = [sleeping_row("plain", 0.001), sleeping_row("another loader", 0.001)]
    assert len({spec.shared for spec in specs}) == 1
    for size, count in (("default", 0), ("smoke", 1)):
        session.size = size
        runs = session.sweep(session.experiment(size, size), specs, 1)
        assert [run.failure for run in runs] == [None, None]
        assert len(session.kept) == count
    assert session.close() == []
