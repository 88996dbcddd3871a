"""On a GPU, Keras on JAX puts a batch there before the trainer asks for it.

``on_a_gpu.py`` runs the other tests that way.
"""

from __future__ import annotations

import keras
import pytest

from tests.keras.recording import BACKEND, INLINE, AfterBatch, built_recorder, sequence_of

BATCHES = 6


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
