from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.harness.processes import run_row

LIMIT_SECONDS = 4
MEBIBYTES = 200


@pytest.mark.alone
@pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").is_file(), reason="the system doesn't tell memory"
)
def test_memory_is_looked_at_in_the_window_and_the_cpu_while_it_is_busy() -> None:
    options = {"bytes": MEBIBYTES * 2**20, "seconds": 2.0}
    rounds = run_row("tests.benchmarks.computing", options, 30).rounds
    assert len(rounds["peak_pss_mib"]) > len(rounds["cpu_percent"]) >= 1
    assert MEBIBYTES < max(rounds["peak_pss_mib"]) < MEBIBYTES + 100
    # Other programs may take the CPU away, but the sleep is no part of it.
    assert 30 < min(rounds["cpu_percent"]) <= max(rounds["cpu_percent"]) < 130


@pytest.mark.skipif(
    not Path("/dev/shm").is_dir(), reason="shared memory is no folder on this system"
)
def test_a_row_that_hangs_leaves_no_shared_memory() -> None:
    name = f"hanging-row-{os.getpid()}"
    outcome = run_row("tests.benchmarks.hanging", {"name": name}, LIMIT_SECONDS)
    assert outcome.failure == "no result within 4 s"
    assert f"made {name}" in outcome.log
    assert not Path("/dev/shm", name).exists()
