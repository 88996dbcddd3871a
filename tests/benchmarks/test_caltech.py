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


def test_every_accelerator_paces_ours_and_the_naive_loader():
    from benchmarks.experiments.caltech import DEMANDS, NAIVE_KERAS, PACKED
    from benchmarks.test_caltech import rows

    found = {(key, loader) for key, loader, _ in rows(every=True, trained=False)}
    assert found >= {(key, loader) for key in DEMANDS for loader in (NAIVE_KERAS, PACKED)}
    assert {key for key, _, _ in rows(every=False, trained=False)} == {"single", "h100"}
    # A GPU that is there trains at its own pace.
    assert {key for key, _, _ in rows(every=True, trained=True)} == {"single", "mixed"}


@pytest.mark.parametrize(("key", "rate"), [("h100", 2_791), ("single", None)])
def test_a_published_rate_stands_beside_its_rows_and_names_its_source(key, rate):
    from benchmarks.experiments.caltech import DEMANDS
    from benchmarks.test_caltech import published_rate

    demand = DEMANDS[key]
    speeds = [run.metrics["samples_per_second"] for run in published_rate(demand.paced)]
    assert speeds == ([] if rate is None else [pytest.approx(rate)])
    assert (rate is None) == (demand.source == "")
    if rate is not None:
        assert f"{rate:,}" in demand.source
