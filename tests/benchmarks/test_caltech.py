from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks.harness.gpu_utilisation import GpuUtilisation

pytest.importorskip("keras", reason="Keras is an extra")


def test_the_training_is_ended_without_asking_the_callback_for_its_model() -> None:
    """Keras calls it in a thread, where `Callback.model` breaks the step that JAX computes."""
    from benchmarks.experiments.caltech import watch_of

    model = SimpleNamespace(stop_training=False)
    watch = watch_of(model, 3_600, GpuUtilisation(lambda: None))
    watch.on_train_begin()
    watch.on_train_batch_end(0)
    assert not model.stop_training
    watch = watch_of(model, -1, GpuUtilisation(lambda: None))
    watch.on_train_begin()
    watch.on_train_batch_end(0)
    assert model.stop_training
