"""On a GPU, Keras puts a batch there for JAX before the trainer asks for it: nothing else changes.

That is told by the name of JAX's backend alone, so that it can be tested without one, see
``on_a_gpu.py``.
"""

from __future__ import annotations

import faulthandler
import sys

import keras
import pytest

from tests.keras.conftest import OtherRun
from tests.keras.recording import BACKEND, INLINE, AfterBatch, built_recorder, sequence_of

BATCHES = 6
# What builds a model, ends early and goes on; endless sources; evaluation; failures.
FILES = [
    "aside",
    "delivery",
    "endings",
    "endless",
    "failures",
    "interruption",
    "resume_states",
    "sequence_source",
    "validation",
]


@pytest.mark.runs_tests
@pytest.mark.full
@pytest.mark.one_backend
@pytest.mark.timeout(900)
@pytest.mark.flaky(reruns=0)
def test_batches_and_states_are_the_same_there(tmp_path):
    pytest.importorskip("jax", reason="of JAX alone")
    faulthandler.cancel_dump_traceback_later()  # It is meant for a single test.
    code, output = OtherRun(sys.executable, "jax").outcome(
        tmp_path / "output.txt",
        "-p",
        "tests.keras.on_a_gpu",
        *(f"tests/keras/test_{name}.py" for name in FILES),
    )
    assert code == 0, output[-20000:]


@pytest.mark.skipif(BACKEND != "jax", reason="of JAX alone")
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_behind_a_distribution_it_reads_no_batch_ahead(platform, monkeypatch):
    import jax

    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    states: list[int] = []
    with sequence_of(BATCHES, **INLINE) as sequence, keras.distribution.DataParallel().scope():
        look = AfterBatch(lambda model, count: states.append(sequence.state_dict()["batch"]))
        built_recorder().fit(sequence, callbacks=[look], verbose=0)
    assert states[:-1] == list(range(1, BATCHES))
