"""The state during a training that goes on: it is what the next file of ``Resume`` will say.

Metrics of a half epoch go on exactly, or a warning names one that doesn't.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.keras import Resume, trainingstate
from tests.keras.trainings import Killed, Losses
from tests.keras.versions import NEEDS_RESUME

pytestmark = NEEDS_RESUME
SAMPLES, EPOCHS = 5, 3
# The places where a training is killed are those of so many tests.
PARTS = 3


class States(keras.callbacks.Callback):
    """Keeps the state behind each batch.

    Args:
        kill_at: Number of the batch of this run before which it ends; None for never.
    """

    def __init__(self, sequence: SafeSequence, resume: Any, kill_at: int | None) -> None:
        super().__init__()
        self.sequence, self.resume, self.kill_at = sequence, resume, kill_at
        self.seen: dict[tuple[int, int], Any] = {}
        self.epoch = self.count = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.resume is not None:
            self.resume._writer.wait()
        if self.count == self.kill_at:
            raise Killed
        self.count += 1

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen[self.epoch, batch] = self.sequence.state_dict(), float(logs["loss"])


def trained(folder: Path | None, steps: int | None, kill_at: int | None = None) -> Any:
    """Behind each batch, by epoch and batch: the state, and the mean of the losses."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    x = np.arange(SAMPLES, dtype="float32").reshape(-1, 1) / SAMPLES
    sequence = SafeSequence((x, 1 - x), batch_size=1, shuffle=True, workers=0)
    resume = None if folder is None else Resume(folder, every="1 batch")
    states = States(sequence, resume, kill_at)
    given = [states] if resume is None else [resume, states]
    with contextlib.suppress(Killed):
        model.fit(sequence, epochs=EPOCHS, steps_per_epoch=steps, callbacks=given, verbose=0)
    return states.seen


@functools.cache
def whole(steps: int | None) -> Any:
    """Of a training that nothing interrupts."""
    return trained(None, steps)


@pytest.mark.parametrize("first", range(1, 1 + PARTS))
@pytest.mark.parametrize("steps", [None, 1, 2, 3, 7])
def test_states_and_losses_are_those_of_a_training_without_an_end(steps, first, tmp_path):
    """Also where one batch is left of the epoch that goes on: it is none that Keras looks at."""
    expected = whole(steps)
    for kill_at in range(first, EPOCHS * (steps or SAMPLES), PARTS):
        seen = trained(tmp_path / str(kill_at), steps, kill_at)
        assert len(seen) == kill_at
        seen.update(trained(tmp_path / str(kill_at), steps))
        assert seen == expected, kill_at


@pytest.mark.parametrize("steps", [2, 3, 7])
def test_a_training_that_ends_before_each_second_batch(steps, tmp_path):
    expected, seen = whole(steps), {}
    for _ in expected:
        run = trained(tmp_path, steps, kill_at=2)
        assert run == {place: expected[place] for place in run}
        seen |= run
    assert seen == expected


def test_weights_that_are_not_finite_are_not_saved(tmp_path, caplog):
    x = np.ones((8, 1), "float32")

    def run() -> Any:
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        given = [Resume(tmp_path, every="1 batch"), keras.callbacks.TerminateOnNaN()]
        with SafeSequence((x, 0 * x), 1, workers=0) as sequence:
            history = model.fit(sequence, epochs=2, shuffle=False, callbacks=given, verbose=0)
        return history.epoch, bool(np.isfinite(model.get_weights()[0]).all())

    x[5] = np.nan
    assert run() == ([0], False)
    assert caplog.text.count("values that are NaN or infinite: nothing is saved") == 1
    x[5] = 1
    assert run() == ([0, 1], True)


def test_an_attribute_of_a_callback_that_keras_has_renamed_is_named(tmp_path, caplog):
    class Renamed(keras.callbacks.ReduceLROnPlateau):
        def on_train_begin(self, logs: Any = None) -> None:
            super().on_train_begin(logs)
            self.cooling = self.__dict__.pop("cooldown_counter")

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            pass

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.ones((8, 1), "float32")
    with SafeSequence((x, x), 2, workers=0) as sequence:
        given = [Resume(tmp_path, every="1 batch"), Renamed()]
        model.fit(sequence, epochs=2, callbacks=given, verbose=0)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "has no ReduceLROnPlateau.cooldown_counter, which Resume saves of a Renamed" in said[0]


def test_nothing_is_said_of_the_callbacks_of_this_keras(tmp_path, caplog):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(use_ema=True), "mse")
    x = np.ones((8, 1), "float32")
    with SafeSequence((x, x), 2, workers=0) as sequence:
        given = [
            Resume(tmp_path / "resume", every="1 batch"),
            keras.callbacks.EarlyStopping("loss"),
            keras.callbacks.ReduceLROnPlateau("loss"),
            keras.callbacks.ModelCheckpoint(tmp_path / "model.keras"),
            keras.callbacks.SwapEMAWeights(),
        ]
        model.fit(sequence, epochs=2, callbacks=given, verbose=0)
    assert caplog.text == ""


# --- metrics ---


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


def test_nothing_is_said_of_the_callbacks_when_a_training_is_resumed(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(trainingstate, "_warned_of_fields", set())
    x = np.ones((8, 1), "float32")
    for epochs in (1, 2):
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        with SafeSequence((x, x), 2, workers=0) as sequence:
            given = [Resume(tmp_path, every="1 batch")]
            history = model.fit(sequence, epochs=epochs, callbacks=given, verbose=0)
    assert history.epoch == [0, 1]
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


def with_metrics(folder: Path | None, losses: Losses, metrics: list[Any]) -> None:
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
@pytest.mark.one_keras
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64:UserWarning")
def test_metrics_that_no_mean_makes_up_go_on_exactly(tmp_path):
    def metrics() -> list[Any]:
        kinds = keras.metrics
        made = [kinds.F1Score("macro"), kinds.AUC(), kinds.MeanIoU(2), kinds.RootMeanSquaredError()]
        for metric in made:
            metric.name = type(metric).__name__  # Without a number, as in a process of its own.
        return made

    whole, continued = Losses(), Losses()
    with_metrics(None, whole, metrics())
    with pytest.raises(Killed):
        with_metrics(tmp_path, Losses(5), metrics())
    with_metrics(tmp_path, continued, metrics())
    assert 1 < len(continued.seen) < len(whole.seen)
    assert continued.seen == {name: whole.seen[name] for name in continued.seen}


@pytest.mark.one_keras
def test_a_metric_that_counts_in_python_is_named(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(trainingstate, "_warned", set())
    with_metrics(tmp_path, Losses(), [Calls(), "accuracy"])
    assert caplog.text.count("the metric calls keeps count in no variable") == 1
    assert "calls" in caplog.text
    assert "accuracy" not in caplog.text


@pytest.mark.one_keras
def test_a_metric_that_counts_nothing_is_left_alone(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(trainingstate, "_warned", set())
    with_metrics(tmp_path, Losses(), [Constant()])
    assert "in no variable" not in caplog.text
