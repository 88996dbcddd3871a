"""``Resume``: metrics of a half epoch go on exactly, or a warning names one that doesn't."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.keras import Resume, internals, trainingstate
from tests.keras.trainings import Killed, Losses

pytestmark = [
    pytest.mark.one_keras,
    pytest.mark.skipif(
        bool(internals.missing_to_continue()), reason="Resume is refused with this Keras"
    ),
]


class Calls(keras.metrics.Metric):
    """Counts its calls in Python."""

    def __init__(self) -> None:
        super().__init__(name="calls")
        self.count = 0

    def update_state(self, *_: Any, **__: Any) -> None:
        self.count += 1

    def result(self) -> Any:
        return float(self.count)

    def reset_state(self) -> None:
        self.count = 0


class Constant(Calls):
    """Has nothing to keep."""

    def __init__(self) -> None:
        super().__init__()
        del self.count

    def update_state(self, *_: Any, **__: Any) -> None:
        """Counts nothing."""

    def result(self) -> Any:
        return 1.0

    def reset_state(self) -> None:
        """Has nothing to forget."""


def fitted(folder: Path | None, losses: Losses, metrics: list[Any]) -> None:
    """One epoch of eight batches."""
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, "sigmoid")])
    model.compile("sgd", "mse", metrics=metrics, run_eagerly=True)
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(32, 3)), np.eye(2, dtype="float32")[rng.integers(0, 2, 32)]
    with SafeSequence((x, y), 4, shuffle=True, workers=0) as sequence:
        given: list[Any] = [losses]
        if folder is not None:
            losses.resume = Resume(folder, "1 batch")
            given.append(losses.resume)
        model.fit(sequence, callbacks=given, verbose=0)


# Keras's MeanIoU asks JAX for int64.
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64:UserWarning")
def test_metrics_that_no_mean_makes_up_go_on_exactly(tmp_path):
    def metrics() -> list[Any]:
        kinds = keras.metrics
        made = [kinds.F1Score("macro"), kinds.AUC(), kinds.MeanIoU(2), kinds.RootMeanSquaredError()]
        for metric in made:
            metric.name = type(metric).__name__  # Without a number, as in a process of its own.
        return made

    whole, continued = Losses(), Losses()
    fitted(None, whole, metrics())
    with pytest.raises(Killed):
        fitted(tmp_path, Losses(5), metrics())
    fitted(tmp_path, continued, metrics())
    assert 1 < len(continued.seen) < len(whole.seen)
    assert continued.seen == {name: whole.seen[name] for name in continued.seen}


def test_a_metric_that_counts_in_python_is_named(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(trainingstate, "_warned", set())
    fitted(tmp_path, Losses(), [Calls(), "accuracy"])
    assert caplog.text.count("the metric calls keeps count in no variable") == 1
    assert "calls" in caplog.text
    assert "accuracy" not in caplog.text


def test_a_metric_that_counts_nothing_is_left_alone(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(trainingstate, "_warned", set())
    fitted(tmp_path, Losses(), [Constant()])
    assert "in no variable" not in caplog.text
