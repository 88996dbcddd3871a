"""What the peers' own tests ask of a data set or loader, ours does, but for what is listed."""

from __future__ import annotations

import faulthandler
import importlib.util
import os
from pathlib import Path

import pytest

from tests.peers.comparison import Comparison
from tests.peers.deviations import DEVIATIONS
from tests.peers.runs import Run
from tests.peers.sources import Absent, find
from tests.peers.suites import SUITES, Suite

_ALL = bool(os.environ.get("ADAPTERS_PEERS_ALL"))


@pytest.mark.timeout(2000)
@pytest.mark.flaky(reruns=0)
@pytest.mark.parametrize(
    ("suite", "variant"),
    [
        pytest.param(
            suite,
            variant,
            id=f"{suite.name} {variant}".strip(),
            marks=pytest.mark.full,
        )
        for suite in SUITES
        for variant in suite.variants
    ],
)
def test_ours_passes_what_theirs_passes(suite: Suite, variant: str, tmp_path: Path, report):
    try:
        source = find(suite.package, tmp_path)
    except Absent as absence:
        pytest.skip(str(absence))
    backend = suite.variants[variant].get("KERAS_BACKEND")
    if backend is not None and importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} isn't installed")
    # Dumps a traceback after a time that is meant for a single test.
    faulthandler.cancel_dump_traceback_later()
    runs = []
    try:
        for ours in (False, True):
            folder = tmp_path / ("ours" if ours else "theirs")
            folder.mkdir()
            runs.append(Run(suite, variant, source, folder, ours=ours, all_of_it=_ALL))
        theirs, ours = (run.outcomes() for run in runs)
    finally:
        for run in runs:
            run.kill()
    concerned = [d for d in DEVIATIONS if d.concerns(suite.name, variant, source.version)]
    comparison = Comparison(theirs, ours, concerned)
    report(
        suite.name,
        variant,
        f"{len(comparison.passed_by_theirs)} passed, {len(comparison.failed_by_theirs)} failed",
        f"{len(comparison.passed_by_ours)} passed",
        comparison.replaced,
        len(comparison.deviating),
    )
    problems = comparison.problems()
    assert not problems, "\n".join(problems)
