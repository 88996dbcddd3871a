from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.harness.processes import ROOT

pytest.importorskip("keras", reason="Keras is an extra")

PROGRAM = """
import sys

sys.modules["mxnet"] = None  # As where it isn't installed.

from benchmarks.harness.ratios import BATCH
from benchmarks.lab.experiments.record_formats import _loader_of

with _loader_of("Keras", list(range(2 * BATCH)), None, 1) as loader:
    print(len(loader))
"""


def test_rows_of_keras_need_no_mxnet() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr
