"""Runs this folder's tests on the other backends, and under other interpreters; see conftest."""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.keras.conftest import CHILD_VARIABLE, REPORT_MARK

BACKENDS = ("tensorflow", "jax", "torch")
HERE = Path(__file__).parent
TIMEOUT_SECONDS = 900
pytestmark = pytest.mark.timeout(TIMEOUT_SECONDS + 10)


def other_runs() -> Iterator[Any]:
    """(interpreter, backend): of this interpreter, those that this process doesn't test."""
    for backend in BACKENDS:
        if backend != os.environ["KERAS_BACKEND"]:
            yield pytest.param(sys.executable, backend, id=backend)
    for python in filter(None, os.environ.get("ADAPTERS_KERAS_PYTHONS", "").split(":")):
        for backend in BACKENDS:
            yield pytest.param(python, backend, id=f"{Path(python).parents[1].name}-{backend}")


@cache
def installed(python: str, backend: str) -> bool:
    if python == sys.executable:
        return importlib.util.find_spec(backend) is not None
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({backend!r}) is None)"
    return subprocess.run([python, "-c", look], check=False).returncode == 0


@pytest.mark.parametrize(("python", "backend"), list(other_runs()))
def test_all_of_this_folder_passes(python, backend, report):
    if not installed(python, backend):
        reason = "is in no extra of this package and" if backend == "torch" else ""
        pytest.skip(f"{backend} {reason} is not installed for {python}")
    # Dumps a traceback after a time that is meant for a single test.
    faulthandler.cancel_dump_traceback_later()
    run = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", str(HERE)],
        cwd=HERE.parents[1],
        env={**os.environ, "KERAS_BACKEND": backend, CHILD_VARIABLE: "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    for line in re.findall(f"^{REPORT_MARK}(.*)$", run.stdout, re.MULTILINE):
        report(line)
    report(f"{backend}, {python}: {run.stdout.strip().splitlines()[-1]}")
    assert run.returncode == 0, run.stdout[-20000:] + run.stderr[-2000:]
