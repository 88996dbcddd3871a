"""``Resume``: a training that was killed or stopped goes on as if it had not been."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.keras import Resume, internals, trainingstate
from tests.keras import recording
from tests.keras.conftest import full_on_tensorflow
from tests.keras.programs import Program
from tests.keras.recording import NEEDS_RESUME, AfterBatch, after, linear, sequence_of
from tests.keras.trainings import BATCHES, EPOCHS, Killed, Losses, train, weights

pytestmark = NEEDS_RESUME
KILLS = int(os.environ.get("ADAPTERS_RESUME_KILLS", "2"))
# Where each run is killed, counted from where it begins, and its workers.
WITHIN, IN_VALIDATION, AT_AN_EPOCHS_BEGIN = (4, "train", 0), (3, "test", 2), (BATCHES, "train", 0)
SAMPLES = 5


@functools.cache
def whole(**options: Any) -> tuple[dict[str, dict[str, float]], Any, Any]:
    """Losses, weights and history of a training that nothing interrupts, without Resume."""
    losses = Losses()
    model = train(None, losses, **options)
    return losses.seen, weights(model), model.history.history


def killed_and_continued(
    folder: Path, kills: list[tuple[int, str, int]], **options: Any
) -> tuple[list[dict[str, dict[str, float]]], Any]:
    """What each run saw of a training that is killed again and again, and the model in the end."""
    runs = []
    for kill_at, within, workers in kills:
        losses = Losses(kill_at, within)
        with pytest.raises(Killed):
            train(folder, losses, workers=workers, **options)
        runs.append(losses.seen)
    losses = Losses()
    model = train(folder, losses, workers=2, **options)
    return [*runs, losses.seen], model


def assert_as_if_never_killed(folder: Path, kills: Any, least: int = 1, **options: Any) -> None:
    """Every loss that any run saw is that of a training that nothing interrupts."""
    expected, final, history = whole(**options)
    runs, model = killed_and_continued(folder, kills, **options)
    for seen in runs:
        assert seen == {name: expected[name] for name in seen}
    assert {name for seen in runs for name in seen} == set(expected)
    assert len(runs[-1]) <= len(expected) - least
    assert np.array_equal(weights(model), final)
    assert model.history.history == history
    assert model.history.epoch == list(range(EPOCHS))


@pytest.mark.timeout(300)
def test_kill_within_an_epoch(tmp_path):
    assert_as_if_never_killed(tmp_path, [(BATCHES + 4, "train", 0)], BATCHES)


@full_on_tensorflow
@pytest.mark.timeout(600)
def test_kills_again_and_again(tmp_path):
    assert_as_if_never_killed(tmp_path, [WITHIN, IN_VALIDATION, AT_AN_EPOCHS_BEGIN], BATCHES)


@full_on_tensorflow
@pytest.mark.parametrize(
    ("kill_at", "options"),
    [
        (BATCHES, {}),
        (3, {"steps": 7}),
        pytest.param(0, {}, marks=pytest.mark.one_backend),
        pytest.param(2 * BATCHES + 1, {}, marks=pytest.mark.one_backend),
        pytest.param(8, {"steps": 7}, marks=pytest.mark.one_backend),
        # Ten batches by three: the last execution of an epoch has one.
        pytest.param(2, {"together": 3}, marks=recording.SEVERAL_STEPS),
        pytest.param(7, {"together": 3}, marks=[recording.SEVERAL_STEPS, pytest.mark.one_backend]),
    ],
)
def test_kill_once(kill_at, options, tmp_path):
    workers, least = (0, 1) if options else (2, max(0, kill_at - 5))
    assert_as_if_never_killed(tmp_path, [(kill_at, "train", workers)], least, **options)


@full_on_tensorflow
@pytest.mark.timeout(300 * KILLS + 300)
def test_kill_9(tmp_path):
    """Of as many launches as ADAPTERS_RESUME_KILLS says, or 2, each with 0 or 2 workers."""
    expected, _, _ = whole()
    drawn, kills, trainings, launches = random.Random(1), 0, 0, 0
    while kills < KILLS:
        folder, path, code = tmp_path / str(trainings), tmp_path / f"{trainings}.losses", 1
        trainings += 1
        while code:
            last = kills >= KILLS
            moment = "never" if last else str(drawn.uniform(0, 0.9))
            launches += 1
            program = Program("killed", str(folder), str(path), drawn.choice("02"), moment)
            ended = program.end(300)
            code = ended.code
            assert code in (0, -signal.SIGKILL), ended.errors
            kills += bool(code)
        seen = [json.loads(line) for line in path.read_text().splitlines()]
        for name, logs in seen:
            assert logs == expected[name], name
        assert {name for name, _ in seen} == set(expected)
    print(f"{kills} kills in {trainings} trainings")


# --- each place of a small training ---


def run(folder: Path | None, epochs: int, steps: int | None, kill_at: int | None = None) -> Any:
    keras.utils.set_random_seed(0)
    x = np.arange(SAMPLES, dtype="float32").reshape(-1, 1) / SAMPLES
    losses, states = Losses(kill_at), []
    with SafeSequence((x, 1 - x), batch_size=1, shuffle=True, workers=0) as sequence:
        given = [losses, AfterBatch(lambda model, count: states.append(sequence.state_dict()))]
        if folder is not None:
            losses.resume = Resume(folder, every="1 batch")
            given.append(losses.resume)
        options = {"epochs": epochs, "steps_per_epoch": steps, "verbose": 0}
        with contextlib.suppress(Killed):
            linear(run_eagerly=True).fit(sequence, callbacks=given, **options)
    return states, losses.seen


@pytest.mark.parametrize(
    ("epochs", "steps", "kills"),
    [
        (2, None, [4]),  # One batch is left of the epoch: it is none that Keras looks at.
        (2, 7, [6]),
        pytest.param(2, None, range(1, 10), marks=pytest.mark.full),
        pytest.param(3, 1, range(1, 3), marks=pytest.mark.full),
        pytest.param(3, 3, range(1, 9), marks=pytest.mark.full),
        pytest.param(2, 7, range(1, 14), marks=pytest.mark.full),
    ],
)
def test_states_and_losses(epochs, steps, kills, tmp_path):
    expected = run(None, epochs, steps)
    for kill_at in kills:
        states, losses = run(tmp_path / str(kill_at), epochs, steps, kill_at)
        assert len(states) == kill_at
        more_states, more_losses = run(tmp_path / str(kill_at), epochs, steps)
        assert (states + more_states, losses | more_losses) == expected, kill_at


# --- the end ---


def small_fit(folder: Path | None, *extra: Any, epochs: int = 2, **options: Any) -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("adam", "mse", run_eagerly=True)
    x = np.arange(24, dtype="float32").reshape(8, 3)
    given = [*extra]
    if folder is not None:
        given.append(Resume(folder, **options))
        for losses in (each for each in extra if isinstance(each, Losses)):
            losses.resume = given[-1]
    with SafeSequence((x, x.sum(1)), batch_size=2, shuffle=True, workers=0) as sequence:
        model.fit(sequence, epochs=epochs, callbacks=given, verbose=0)
    return model


def test_ended_training_can_be_longer(tmp_path, caplog):
    expected = Losses()
    final = small_fit(None, expected, stopping(), epochs=3)
    small_fit(tmp_path, stopping(), epochs=2)
    longer, nothing = Losses(), Losses()
    for losses in (longer, nothing):
        model = small_fit(tmp_path, losses, stopping(), epochs=3)
        assert np.array_equal(weights(model), weights(final))
        assert model.history.history == final.history.history
    assert longer.seen == {name: expected.seen[name] for name in expected.seen if name >= "2"}
    assert nothing.seen == {}
    assert caplog.text.count(f"to train: the training in {tmp_path} has ended at epoch 3") == 1


def test_stop_within_an_epoch(tmp_path):
    """As a machine is taken away with a warning: also long before it is time to save."""
    small_fit(tmp_path, after(2, recording.stop), every=1000)
    losses = Losses()
    model = small_fit(tmp_path, losses)
    assert [*losses.seen][:2] == ["0/002", "0/003"]
    assert np.array_equal(weights(model), weights(small_fit(None)))


def test_stop_at_the_end_of_an_epoch(tmp_path):
    class Stops(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training = True

    small_fit(tmp_path, Stops())
    over, more = Losses(), Losses()
    small_fit(tmp_path, over)
    assert over.seen == {}
    model = small_fit(tmp_path, more, epochs=3)
    assert {name[0] for name in more.seen} == {"1", "2"}
    assert np.array_equal(weights(model), weights(small_fit(None, epochs=3)))


# --- what is saved ---


class Counts(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.batches = 0
        self.drawn: list[tuple[float, float]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches += 1
        self.drawn.append((random.random(), float(np.random.random())))

    def state_dict(self) -> dict[str, Any]:
        return {"batches": self.batches}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.batches = state["batches"]


def stopping() -> Any:
    options = {"min_delta": 0.5, "patience": 9, "mode": "min", "restore_best_weights": True}
    return keras.callbacks.EarlyStopping("loss", **options)


def test_states_of_callbacks_and_generators_of_the_process(tmp_path):
    expected, found, stops = Counts(), Counts(), stopping()
    small_fit(None, expected)
    with pytest.raises(Killed):
        small_fit(tmp_path, Counts(), stopping(), Losses(5), every="1 batch")
    small_fit(tmp_path, found, stops)
    assert found.batches == expected.batches == 8
    assert found.drawn == expected.drawn[-len(found.drawn) :] != []
    assert stops.min_delta == -0.5  # EarlyStopping keeps the sign that it has given it.


def test_last_few_files_stay(tmp_path):
    small_fit(tmp_path, Losses(), every="1 epoch", keep=2, epochs=3)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["000002-000000000.npz", "000003-000000000.npz"]


def test_damaged_file_is_passed_over(tmp_path, caplog):
    model = small_fit(tmp_path, Losses(), every="1 epoch", epochs=2)
    newest = max(tmp_path.iterdir())
    octets = bytearray(newest.read_bytes())
    octets[len(octets) // 2] ^= 1
    newest.write_bytes(octets)
    losses = Losses()
    with caplog.at_level(logging.WARNING, "adapters"):
        again = small_fit(tmp_path, losses)
    assert min(losses.seen) == "1/000"
    assert f"{newest} is damaged" in caplog.text
    assert np.array_equal(weights(again), weights(model))


def test_full_disk_is_a_warning(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "no space")))
    small_fit(tmp_path)
    assert "could not be saved" in caplog.text
    assert "no space" in caplog.text
    assert [*tmp_path.iterdir()] == []


def test_training_waits_for_the_copy_alone(tmp_path, monkeypatch):
    """While a file is being written, batches go on, and no other file is begun."""
    first_written, seen = threading.Event(), Counts()
    save, names = Resume(tmp_path)._folder.save.__func__, []

    def slow(self: Any, name: str, value: Any) -> Any:
        names.append(name)
        if len(names) == 1:
            assert first_written.wait(30)
        return save(self, name, value)

    monkeypatch.setattr("adapters.resuming.checkpoint_dir.CheckpointDir.save", slow)
    written = after(3, lambda model: first_written.set())
    small_fit(tmp_path, seen, written, every="1 batch", epochs=1)
    # On TensorFlow, nothing is there to be saved before the first batch.
    assert len([name for name in names if name <= "000000-000000002"]) == 1
    assert seen.batches == 4


def test_position_numbers_batches(tmp_path):
    """Also without Resume: Keras asks for the rest, and doesn't run out of data."""
    losses, model = Losses(), linear(run_eagerly=True)
    with sequence_of(4, workers=0) as sequence:
        sequence.load_state_dict({"epoch": 0, "batch": 3})
        model.fit(sequence, epochs=2, callbacks=[losses], verbose=0)
    assert {*losses.seen} == {"0/003", "0/end", "1/000", "1/001", "1/002", "1/003", "1/end"}
    assert int(model.optimizer.iterations) == 5


def test_weights_that_are_not_finite(tmp_path, caplog):
    x = np.ones((8, 1), "float32")

    def fitted() -> Any:
        model = linear()
        given = [Resume(tmp_path, every="1 batch"), keras.callbacks.TerminateOnNaN()]
        with SafeSequence((x, 0 * x), 1, workers=0) as sequence:
            history = model.fit(sequence, epochs=2, shuffle=False, callbacks=given, verbose=0)
        return history.epoch, bool(np.isfinite(model.get_weights()[0]).all())

    x[5] = np.nan
    assert fitted() == ([0], False)
    assert caplog.text.count("values that are NaN or infinite: nothing is saved") == 1
    x[5] = 1
    assert fitted() == ([0, 1], True)


def test_renamed_attribute_of_a_callback(tmp_path, caplog):
    class Renamed(keras.callbacks.ReduceLROnPlateau):
        def on_train_begin(self, logs: Any = None) -> None:
            super().on_train_begin(logs)
            self.cooling = self.__dict__.pop("cooldown_counter")

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            pass

    small_fit(tmp_path, Renamed(), every="1 batch")
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "has no ReduceLROnPlateau.cooldown_counter, which Resume saves of a Renamed" in said[0]


def test_callbacks_of_keras_without_a_warning(tmp_path, caplog):
    for epochs in (1, 2):
        model = linear()
        model.compile(keras.optimizers.SGD(use_ema=True), "mse")
        with sequence_of(2, workers=0) as sequence:
            given = [
                Resume(tmp_path / "resume", every="1 batch"),
                keras.callbacks.EarlyStopping("loss"),
                keras.callbacks.ReduceLROnPlateau("loss"),
                keras.callbacks.ModelCheckpoint(tmp_path / "model.keras"),
                keras.callbacks.SwapEMAWeights(),
            ]
            history = model.fit(sequence, epochs=epochs, callbacks=given, verbose=0)
    assert history.epoch == [0, 1]
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


# --- metrics ---


class PythonCount(keras.metrics.Metric):
    def __init__(self) -> None:
        super().__init__(name="calls")
        self.count = 0

    def update_state(self, *_: Any, **__: Any) -> None:
        self.count += 1

    def result(self) -> Any:
        return float(self.count)

    def reset_state(self) -> None:
        self.count = 0


class TensorFlowCount(PythonCount):
    def __init__(self) -> None:
        super().__init__()
        self.count = internals.tensorflow().Variable(0)

    def update_state(self, *_: Any, **__: Any) -> None:
        self.count.assign_add(1)

    def reset_state(self) -> None:
        self.count.assign(0)


def with_metrics(folder: Path | None, losses: Losses, metrics: list[Any]) -> None:
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
def test_metrics_of_half_an_epoch(tmp_path):
    def metrics() -> list[Any]:
        kinds = keras.metrics
        made = [kinds.F1Score("macro"), kinds.AUC(), kinds.MeanIoU(2), kinds.RootMeanSquaredError()]
        for metric in made:
            metric.name = type(metric).__name__  # Without a number, as in a process of its own.
        return made

    expected, continued = Losses(), Losses()
    with_metrics(None, expected, metrics())
    with pytest.raises(Killed):
        with_metrics(tmp_path, Losses(5), metrics())
    with_metrics(tmp_path, continued, metrics())
    assert 1 < len(continued.seen) < len(expected.seen)
    assert continued.seen == {name: expected.seen[name] for name in continued.seen}


@pytest.mark.one_keras
@pytest.mark.parametrize(
    "metric", [PythonCount, pytest.param(TensorFlowCount, marks=recording.ON_TENSORFLOW)]
)
def test_metric_that_counts_in_no_keras_variable(metric, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(trainingstate, "_warned", set())
    with_metrics(tmp_path, Losses(), [metric(), "accuracy"])
    assert caplog.text.count("the metric calls keeps count in no Keras variable") == 1
    assert "calls" in caplog.text
    assert "accuracy" not in caplog.text
