"""This folder's tests, on the other backends and under other interpreters; see conftest."""

from __future__ import annotations

import faulthandler
import re

import pytest

from tests.keras.conftest import REPORT_MARK, OtherRun, other_runs


@pytest.mark.timeout(900)
@pytest.mark.flaky(reruns=0)
@pytest.mark.parametrize("run", [pytest.param(run, id=run.name) for run in other_runs()])
def test_all_of_this_folder_passes(run: OtherRun, runs_of_others, report):
    if not run.installed:
        pytest.skip(f"{run.backend} is not installed for {run.python}: {run.absence}")
    # Dumps a traceback after a time that is meant for a single test.
    faulthandler.cancel_dump_traceback_later()
    code, output = runs_of_others.outcome(run)
    for line in re.findall(f"^{REPORT_MARK}(.*)$", output, re.MULTILINE):
        report(line)
    report(f"{run.backend}, {run.python}: {output.strip().splitlines()[-1]}")
    assert code == 0, output[-20000:]
