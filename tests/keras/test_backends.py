"""This folder's tests, on the other backends and under other interpreters; see conftest."""

from __future__ import annotations

import faulthandler
import re

import pytest

from tests.conftest import REPORT_MARK
from tests.keras.conftest import OtherRun, other_runs


@pytest.mark.backends
@pytest.mark.runs_tests
@pytest.mark.timeout(1800)
@pytest.mark.flaky(reruns=0)
@pytest.mark.parametrize(
    "run",
    [
        pytest.param(run, id=run.name, marks=pytest.mark.xdist_group(run.name))
        for run in other_runs()
    ],
)
def test_all_of_this_folder_passes(run: OtherRun, report, pytestconfig, tmp_path):
    if not (run.first or pytestconfig.getoption("full")):
        pytest.skip("another backend is tested with this Keras; pytest --full runs all")
    if not run.installed:
        pytest.skip(f"{run.backend} is not installed for {run.python}: {run.absence}")
    # Dumps a traceback after a time that is meant for a single test.
    faulthandler.cancel_dump_traceback_later()
    code, output = run.outcome(tmp_path / "output.txt")
    for line in re.findall(f"^{REPORT_MARK}(.*)$", output, re.MULTILINE):
        report(line)
    report(f"{run.backend}, {run.python}: {output.strip().splitlines()[-1]}")
    assert code == 0, output[-20000:]
