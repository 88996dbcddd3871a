from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.processes import run_row

LIMIT_SECONDS = 4

pytestmark = pytest.mark.skipif(
    not Path("/dev/shm").is_dir(), reason="shared memory is no folder on this system"
)


def test_a_row_that_hangs_leaves_no_shared_memory() -> None:
    name = f"hanging-row-{os.getpid()}"
    outcome = run_row("tests.benchmarks.hanging", {"name": name}, LIMIT_SECONDS)
    assert outcome.failure == "no result within 4 s"
    assert f"made {name}" in outcome.log
    assert not Path("/dev/shm", name).exists()
