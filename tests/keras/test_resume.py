"""``Resume``: a training that was killed goes on as if it had not been."""

from __future__ import annotations

import functools
import json
import logging
import os
import random
import signal
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.keras import Resume, trainingstate
from tests.keras.conftest import full_on_tensorflow
from tests.keras.programs import Program
from tests.keras.trainings import BATCHES, EPOCHS, Killed, Losses, train, weights
from tests.keras.versions import NEEDS_RESUME

pytestmark = NEEDS_RESUME
BACKEND = keras.backend.backend()
KILLS = int(os.environ.get("ADAPTERS_RESUME_KILLS", "2"))
# Where each run is killed, counted from where it begins, and its workers.
WITHIN, IN_VALIDATION, AT_AN_EPOCHS_BEGIN = (4, "train", 0), (3, "test", 2), (BATCHES, "train", 0)


def first(moment: int, *others: int) -> list[Any]:
    """One of several moments that no backend can tell apart; the others are on one backend only."""
    return [moment, *(pytest.param(each, marks=pytest.mark.one_backend) for each in others)]


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
def test_a_training_that_is_killed_within_an_epoch(tmp_path):
    """With no worker; two go on."""
    assert_as_if_never_killed(tmp_path, [(BATCHES + 4, "train", 0)], BATCHES)


@full_on_tensorflow
@pytest.mark.timeout(600)
def test_a_training_that_is_killed_again_and_again(tmp_path):
    """Within an epoch, in validation and at an epoch's begin, with 0 and 2 workers."""
    assert_as_if_never_killed(tmp_path, [WITHIN, IN_VALIDATION, AT_AN_EPOCHS_BEGIN], BATCHES)


@full_on_tensorflow
@pytest.mark.parametrize("kill_at", first(BATCHES, 0, 1, BATCHES - 1, 2 * BATCHES + 1))
def test_a_training_that_is_killed_once(kill_at, tmp_path):
    assert_as_if_never_killed(tmp_path, [(kill_at, "train", 2)], least=max(0, kill_at - 5))


@full_on_tensorflow
@pytest.mark.parametrize("kill_at", first(3, 6, 8))
def test_epochs_of_another_length_than_the_sequence(kill_at, tmp_path):
    assert_as_if_never_killed(tmp_path, [(kill_at, "train", 0)], steps=7)


@full_on_tensorflow
@pytest.mark.skipif(BACKEND == "torch", reason="Keras has no steps_per_execution on PyTorch")
@pytest.mark.parametrize("kill_at", first(2, 4, 7))
def test_several_steps_in_one_execution(kill_at, tmp_path):
    """Ten batches by three: the last execution of an epoch has one."""
    assert_as_if_never_killed(tmp_path, [(kill_at, "train", 0)], together=3)


@full_on_tensorflow
@pytest.mark.timeout(300 * KILLS + 300)
def test_kill_9_at_random_moments(tmp_path):
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


# --- the end ---


class Stops(keras.callbacks.Callback):
    """Stops before a batch or after an epoch, counted over the run.

    Args:
        batch: After which it does.
        epoch: Likewise.
    """

    def __init__(self, batch: int | None = None, epoch: int | None = None) -> None:
        super().__init__()
        self.batch, self.epoch = batch, epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.stop_training = self.model.stop_training or batch == self.batch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.stop_training = self.model.stop_training or epoch == self.epoch


def small_fit(
    folder: Path | None, *extra: Any, epochs: int = 2, validate: bool = False, **options: Any
) -> Any:
    """A training of a few numbers."""
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
        validation = (x, x.sum(1)) if validate else None
        model.fit(sequence, epochs=epochs, callbacks=given, verbose=0, validation_data=validation)
    return model


def test_a_training_that_has_ended_stays_there_and_can_be_longer(tmp_path):
    def stopping() -> Any:
        return keras.callbacks.EarlyStopping("loss", patience=9, restore_best_weights=True)

    expected = Losses()
    final = small_fit(None, expected, stopping(), epochs=3, validate=True)
    small_fit(tmp_path, stopping(), epochs=2, validate=True)
    longer, nothing = Losses(), Losses()
    for losses in (longer, nothing):
        model = small_fit(tmp_path, losses, stopping(), epochs=3, validate=True)
        assert np.array_equal(weights(model), weights(final))
        assert model.history.history == final.history.history
    assert longer.seen == {name: expected.seen[name] for name in expected.seen if name >= "2"}
    assert nothing.seen == {}


def test_what_was_stopped_within_an_epoch_goes_on_there(tmp_path):
    """As a machine is taken away with a warning: also long before it is time to save."""
    small_fit(tmp_path, Stops(batch=1), every=1000)
    losses = Losses()
    model = small_fit(tmp_path, losses)
    assert [*losses.seen][:2] == ["0/002", "0/003"]
    assert np.array_equal(weights(model), weights(small_fit(None)))


def test_what_was_stopped_at_the_end_of_an_epoch_is_over(tmp_path):
    small_fit(tmp_path, Stops(epoch=0))
    losses = Losses()
    small_fit(tmp_path, losses)
    assert losses.seen == {}


def test_what_was_stopped_at_the_end_of_an_epoch_goes_on_with_more_epochs(tmp_path):
    small_fit(tmp_path, Stops(epoch=0), epochs=2)
    losses = Losses()
    model = small_fit(tmp_path, losses, epochs=3)
    assert {name[0] for name in losses.seen} == {"1", "2"}
    assert np.array_equal(weights(model), weights(small_fit(None, epochs=3)))


# --- what is saved ---


class Counts(keras.callbacks.Callback):
    """A callback with a state of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches += 1

    def state_dict(self) -> dict[str, Any]:
        return {"batches": self.batches}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.batches = state["batches"]


def test_a_callback_of_ones_own_is_given_its_state_back(tmp_path):
    with pytest.raises(Killed):
        small_fit(tmp_path, Counts(), Losses(6), every="1 batch")
    counts = Counts()
    small_fit(tmp_path, counts)
    assert counts.batches == 8


def test_early_stopping_keeps_the_sign_of_min_delta(tmp_path):
    stopping = functools.partial(
        keras.callbacks.EarlyStopping, "loss", min_delta=0.5, patience=1, mode="min"
    )
    with pytest.raises(Killed):
        small_fit(tmp_path, stopping(), Losses(6), every="1 batch")
    again = stopping()
    small_fit(tmp_path, again)
    assert again.min_delta == -0.5


def test_the_process_s_generators_go_on_where_they_were(tmp_path):
    class Draws(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.drawn: list[tuple[float, float]] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.drawn.append((random.random(), float(np.random.random())))

    expected = Draws()
    small_fit(None, expected)
    with pytest.raises(Killed):
        small_fit(tmp_path, Draws(), Losses(5), every="1 batch")
    continued = Draws()
    small_fit(tmp_path, continued)
    assert continued.drawn == expected.drawn[-len(continued.drawn) :] != []


def test_the_last_few_files_stay(tmp_path):
    small_fit(tmp_path, Losses(), every="1 epoch", keep=2, epochs=4)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "000003-000000000.npz",
        "000004-000000000.npz",
    ]


def test_a_damaged_file_is_passed_over(tmp_path, caplog):
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


def test_a_disk_that_is_full_is_a_warning(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "no space")))
    small_fit(tmp_path)
    assert "could not be saved" in caplog.text
    assert "no space" in caplog.text
    assert [*tmp_path.iterdir()] == []


def test_training_stops_for_the_copy_alone(tmp_path, monkeypatch):
    """While a file is being written, batches go on, and no other file is begun."""
    import threading

    first_written, seen = threading.Event(), Counts()
    save, names = Resume(tmp_path)._folder.save.__func__, []

    def slow(self: Any, name: str, value: Any) -> Any:
        names.append(name)
        if len(names) == 1:
            assert first_written.wait(30)
        return save(self, name, value)

    class Releases(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 3:
                first_written.set()

    monkeypatch.setattr("adapters.resuming.CheckpointDir.save", slow)
    small_fit(tmp_path, seen, Releases(), every="1 batch", epochs=1)
    # On TensorFlow, nothing is there to be saved before the first batch.
    assert len([name for name in names if name <= "000000-000000002"]) == 1
    assert seen.batches == 4


# --- where it can't ---


def test_another_model_is_refused(tmp_path):
    small_fit(tmp_path)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("adam", "mse", run_eagerly=True)
    x = np.zeros((8, 3), "float32")
    with (
        SafeSequence((x, x[:, :2]), batch_size=2, workers=0) as sequence,
        pytest.raises(ValueError, match=r"kernel of shape \(3, 1\), here it is \(3, 2\)"),
    ):
        model.fit(sequence, epochs=9, callbacks=[Resume(tmp_path)], verbose=0)


def test_data_that_is_no_safe_sequence_is_refused(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    x = np.zeros((8, 3), "float32")
    with pytest.raises(TypeError, match="fit must train on a SafeSequence"):
        model.fit(x, x[:, :1], callbacks=[Resume(tmp_path)], verbose=0)


def test_backup_and_restore_beside_it_is_refused(tmp_path):
    other = keras.callbacks.BackupAndRestore(tmp_path / "other")
    with pytest.raises(ValueError, match="BackupAndRestore"):
        small_fit(tmp_path, other)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"folder": 3}, TypeError, "folder must be a path, got 3"),
        ({"every": 0}, ValueError, "every must be above 0, got 0"),
        ({"every": "often"}, ValueError, "every must be a number and a unit, got 'often'"),
        ({"every": "3 fortnights"}, ValueError, "a unit that is known"),
        ({"every": None}, TypeError, "every must be a number or a text, got None"),
        ({"keep": 0}, ValueError, "keep must be >= 1, got 0"),
    ],
)
def test_wrong_arguments(arguments, error, said, tmp_path):
    with pytest.raises(error, match=said):
        Resume(**{"folder": tmp_path, **arguments})


def test_a_position_within_an_epoch_numbers_its_batches(tmp_path):
    """Also without Resume: Keras asks for the rest, and doesn't run out of data."""
    losses = Losses()
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    x = np.zeros((8, 1), "float32")
    with SafeSequence((x, x), batch_size=2, workers=0) as sequence:
        sequence.load_state_dict({"epoch": 0, "batch": 3})
        model.fit(sequence, epochs=2, callbacks=[losses], verbose=0)
    assert [name for name in losses.seen if "end" not in name] == [
        "0/003",
        *(f"1/{batch:03d}" for batch in range(4)),
    ]
    assert int(model.optimizer.iterations) == 5


def test_all_variables_are_saved():
    """Those of the model, its optimizer and metrics; seeds, too."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    model.fit(np.zeros((4, 3)), np.zeros((4, 1)), verbose=0)
    saved = trainingstate.state_of(model)["variables"]
    assert len(saved["model variables"]) == 3  # Kernel, bias and the state of the dropout's seed.
    assert len(saved["optimizer variables"]) == len(model.optimizer.variables) >= 6
    assert len(saved["metric variables"]) == len(model.metrics_variables) == 4
