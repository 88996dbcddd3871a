"""``Resume``: a folder is that of one training, and of all ranks of a job.

Another model, optimizer or data is never taken for those that were saved.
"""

from __future__ import annotations

import functools
import logging
import random
import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.keras import Resume, trainingstate
from tests.engine.executors import wait_until
from tests.keras.recording import NEEDS_RESUME, linear
from tests.keras.trainings import Killed

pytestmark = [pytest.mark.one_keras, NEEDS_RESUME]
X = np.arange(24, dtype="float32").reshape(8, 3)


def fitted(
    folder: Path,
    optimizer: Any = "adam",
    *,
    samples: int = 8,
    name: str | None = None,
    fit_shuffle: bool = True,
    epochs: int = 1,
    every: Any = 30,
    extra: Any = (),
    **data: Any,
) -> Any:
    """A training of one layer, in a folder."""
    layer = keras.layers.Dense(1, name=name)
    model = keras.Sequential([keras.Input((3,)), layer])
    made = optimizer() if isinstance(optimizer, functools.partial) else optimizer
    model.compile(made, "mse", run_eagerly=True)
    x = X[:samples]
    given = {"batch_size": 2, "shuffle": True, "workers": 0, **data}
    with SafeSequence((x, x.sum(1)), **given) as sequence:
        callbacks = [Resume(folder, every), *extra]
        model.fit(sequence, epochs=epochs, callbacks=callbacks, verbose=0, shuffle=fit_shuffle)
    return model


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({}, {"optimizer": "nadam"}, "the optimizer Adam, here it is Nadam"),
        ({}, {"optimizer": "sgd"}, "the optimizer Adam, here it is SGD"),
        (
            {},
            {"optimizer": functools.partial(keras.optimizers.Adam, amsgrad=True)},
            r"6 optimizer variables, here it is 8",
        ),
        ({"name": "head"}, {"name": "tail"}, "head/kernel among its .*, here it is .*tail/kernel"),
        ({}, {"batch_size": 4}, r"batch_size must be 2, .* got 4: make it as it was"),
        ({}, {"shuffle": False}, "shuffle must be True, .* got False"),
        ({}, {"seed": 1}, "seed must be 0, .* got 1"),
        ({}, {"samples": 6}, "the number of samples must be 8, .* got 6"),
        ({"samples": 7}, {"samples": 7, "drop_remainder": True}, "drop_remainder must be False"),
        ({"shuffle": False}, {"shuffle": False, "fit_shuffle": False}, "shuffle of fit must be"),
        (
            {"weights": np.arange(1, 9)},
            {"weights": np.arange(8, 0, -1)},
            "the order of samples must be",
        ),
        ({"bucket_by": np.arange(8)}, {"bucket_by": None}, "shuffle must be 'by length"),
    ],
)
def test_difference_names_both_values(before, after, said, tmp_path):
    fitted(tmp_path, **before)
    with pytest.raises(ValueError, match=f"{said}.*(another|new) folder"):
        fitted(tmp_path, **{"epochs": 2, **before, **after})


def test_another_model(tmp_path):
    fitted(tmp_path)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("adam", "mse", run_eagerly=True)
    x = np.zeros((8, 3), "float32")
    with (
        SafeSequence((x, x[:, :2]), batch_size=2, workers=0) as sequence,
        pytest.raises(ValueError, match=r"kernel of shape \(3, 1\), here it is \(3, 2\)"),
    ):
        model.fit(sequence, epochs=9, callbacks=[Resume(tmp_path)], verbose=0)


def test_data_that_is_no_safe_sequence(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    with pytest.raises(TypeError, match="fit must train on a SafeSequence"):
        model.fit(X, X[:, :1], callbacks=[Resume(tmp_path)], verbose=0)


def test_backup_and_restore_refused(tmp_path):
    other = keras.callbacks.BackupAndRestore(tmp_path / "other")
    with pytest.raises(ValueError, match="BackupAndRestore"):
        fitted(tmp_path, extra=[other])


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
def test_argument_refused(arguments, error, said, tmp_path):
    with pytest.raises(error, match=said):
        Resume(**{"folder": tmp_path, **arguments})


def test_what_may_change(tmp_path):
    """Learning rates, also as a schedule, workers, and the numbers in layers' names."""
    fitted(tmp_path)
    model = fitted(tmp_path, keras.optimizers.Adam(0.5), workers=1, epochs=2)
    assert int(model.optimizer.iterations) == 8
    rates = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    model = fitted(tmp_path, keras.optimizers.Adam(rates), epochs=3)
    assert int(model.optimizer.iterations) == 12


class Several(keras.Model):
    """A model with optimizers in a dict, a list, and within one another."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = keras.layers.Dense(1)
        self.by_name = {"adam": keras.optimizers.Adam(), "deeper": {"sgd": [_momentum()]}}
        self.scaled = [keras.optimizers.LossScaleOptimizer(keras.optimizers.RMSprop())]

    def call(self, inputs: Any) -> Any:
        return self.layer(inputs)

    @property
    def own(self) -> list[Any]:
        sgd = self.by_name["deeper"]["sgd"]
        return [self.optimizer, self.by_name["adam"], *sgd, *self.scaled]


def _momentum() -> Any:
    return keras.optimizers.SGD(momentum=0.9)


def several(value: float) -> Any:
    model = Several()
    model.compile("nadam", "mse")
    model(X)
    for optimizer in model.own:
        optimizer.build(model.trainable_variables)
        for variable in optimizer.variables:
            variable.assign(np.full(variable.shape, value))
    return model


def test_optimizers_in_lists_and_dicts():
    saved, fresh = several(3), several(1)
    trainingstate.set_state(fresh, trainingstate.state_of(saved), metrics=False)
    for optimizer in fresh.own:
        for variable in optimizer.variables:
            assert np.all(keras.ops.convert_to_numpy(variable) == 3), variable.path


def test_one_of_several_optimizers_differs():
    saved, other = several(3), several(1)
    other.by_name["deeper"]["sgd"][0] = keras.optimizers.Adagrad()
    with pytest.raises(ValueError, match=r"SGD.*Adagrad"):
        trainingstate.set_state(other, trainingstate.state_of(saved), metrics=False)


def test_optimizer_of_a_loaded_model(tmp_path):
    base = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    base.compile("adam", "mse")
    model = keras.Sequential([keras.Input((3,)), base, keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    with SafeSequence((X, X.sum(1)), 2, workers=0) as sequence:
        model.fit(sequence, callbacks=[Resume(tmp_path)], verbose=0)
    assert list(tmp_path.glob("*.npz"))


class Seen(keras.callbacks.Callback):
    """The batches' numbers, and a kill before one of them."""

    def __init__(self, kill_at: int | None = None) -> None:
        super().__init__()
        self.kill_at = kill_at
        self.batches: list[tuple[int, int]] = []
        self.epoch = 0
        self.resume: Any = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.resume._writer.wait()
        if len(self.batches) == self.kill_at:
            raise Killed
        self.batches.append((self.epoch, batch))


def sharded(folder: Path, shard: Any, batch_size: int, seen: Seen, samples: int = 24) -> None:
    """A training of two epochs on a part of some samples."""
    model = linear(run_eagerly=True)
    x = np.arange(samples, dtype="float32").reshape(-1, 1)
    seen.resume = Resume(folder, "1 batch")
    with SafeSequence((x, x), batch_size, shuffle=True, shard=shard, workers=0) as sequence:
        model.fit(sequence, epochs=2, callbacks=[seen, seen.resume], verbose=0)


@pytest.mark.parametrize(("count", "batch_size"), [(1, 8), (3, 2)])
def test_other_shards_within_an_epoch(count, batch_size, tmp_path):
    """Of two ranks that had 3 of 6 batches of 2 each, 12 of 24 samples."""
    with pytest.raises(Killed):
        sharded(tmp_path, (0, 2), 2, Seen(kill_at=3))
    before = {path.name for path in tmp_path.glob("*.npz")}
    assert max(before) == "000000-000000003.npz"
    seen = Seen()
    sharded(tmp_path, (0, count), batch_size, seen)
    per_epoch = 24 // (count * batch_size)
    rest = -(-12 // (count * batch_size))
    assert seen.batches == [
        *((0, batch) for batch in range(per_epoch - rest, per_epoch)),
        *((1, batch) for batch in range(per_epoch)),
    ]


def test_other_shards_with_nothing_left(tmp_path):
    """Of 11 samples, two ranks had 8; four find three left, of which none gets any."""
    with pytest.raises(Killed):
        sharded(tmp_path, (0, 2), 1, Seen(kill_at=4), samples=11)
    seen = Seen()
    sharded(tmp_path, (0, 4), 1, seen, samples=11)
    assert seen.batches == [(1, 0), (1, 1)]


class Calls(keras.callbacks.Callback):
    """Does something after the second batch, before which TensorFlow's model is saved, too."""

    def __init__(self, act: Any) -> None:
        super().__init__()
        self.act = act

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.act is not None and batch == 1:
            act, self.act = self.act, None
            act()


def ranked(folder: Path, shard: Any = None, act: Any = None, epochs: int = 1) -> Any:
    """A training, in whose first epoch something is done."""
    options = {"every": "1 batch", "batch_size": 1, "extra": [Calls(act)]}
    return fitted(folder, shard=shard, epochs=epochs, **options)


def test_second_training_refused(tmp_path):
    said: list[Any] = []

    def another() -> None:
        with pytest.raises(
            RuntimeError, match="folder must be used by one training at a time"
        ) as e:
            ranked(tmp_path)
        said.append(e)

    ranked(tmp_path, act=another)
    assert said
    assert ranked(tmp_path, epochs=2).history.epoch == [0, 1]
    assert {path.suffix for path in tmp_path.iterdir()} == {".npz"}


def test_failed_training_leaves_the_folder(tmp_path):
    def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as kept:
        ranked(tmp_path, act=fails)
    assert ranked(tmp_path).history.epoch == [0]
    assert kept


def writing() -> list[threading.Thread]:
    """The threads of rank 0 that do."""
    return [each for each in threading.enumerate() if each.name == "adapters-resume"]


def test_ranks_share_a_folder(tmp_path):
    written: list[Any] = []

    def other_rank() -> None:
        wait_until(lambda: not writing())
        before = sorted(tmp_path.glob("*.npz"))
        assert before
        ranked(tmp_path, (1, 2))
        assert sorted(tmp_path.glob("*.npz")) == before
        written.append(before)

    ranked(tmp_path, (0, 2), other_rank)
    assert written
    random.seed(5)
    ranked(tmp_path / "another", (1, 2))
    expected = random.random()
    random.seed(5)
    other = ranked(tmp_path, (1, 2))
    assert random.random() == expected
    first = ranked(tmp_path, (0, 2))
    assert np.array_equal(first.layers[-1].get_weights()[0], other.layers[-1].get_weights()[0])
    assert other.history.epoch == [0]


def test_rank_without_rank_0(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "adapters"):
        ranked(tmp_path, (1, 2))
    assert caplog.text.count(f"rank 1 has found no rank 0 in {tmp_path}") == 1
    assert not [*tmp_path.iterdir()]
