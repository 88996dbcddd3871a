"""``Resume``: a folder is that of one training, and of all ranks of a job."""

from __future__ import annotations

import logging
import random
import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.keras import Resume
from tests.engine.executors import wait_until
from tests.keras.recording import NEEDS_RESUME, ON_TENSORFLOW, after, linear
from tests.keras.trainings import Killed, Losses

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
    model: Any = None,
    **data: Any,
) -> Any:
    if model is None:
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, name=name)])
    model.compile(optimizer() if callable(optimizer) else optimizer, "mse", run_eagerly=True)
    x = X[:samples]
    given = {"batch_size": 2, "shuffle": True, "workers": 0, **data}
    with SafeSequence((x, x.sum(1)), **given) as sequence:
        callbacks = [Resume(folder, every), *extra]
        model.fit(sequence, epochs=epochs, callbacks=callbacks, verbose=0, shuffle=fit_shuffle)
    return model


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Folders of trainings, which those that are refused leave as they are."""
    folders: dict[str, Path] = {}

    def folder_of(before: dict[str, Any]) -> Path:
        if repr(before) not in folders:
            folders[repr(before)] = tmp_path_factory.mktemp("run")
            fitted(folders[repr(before)], **before)
        return folders[repr(before)]

    return folder_of


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({}, {"optimizer": "nadam"}, "the optimizer Adam, here it is Nadam"),
        (
            {},
            {"optimizer": lambda: keras.optimizers.Adam(amsgrad=True)},
            "6 optimizer variables, here it is 8",
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
def test_difference_names_both_values(before, after, said, saved):
    with pytest.raises(ValueError, match=f"{said}.*(another|new) folder"):
        fitted(saved(before), **{"epochs": 2, **before, **after})


def test_another_model(saved):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match=r"kernel of shape \(3, 1\), here it is \(3, 2\)"):
        fitted(saved({}), model=model, epochs=9)


def test_data_that_is_no_safe_sequence(tmp_path):
    model = linear()
    with pytest.raises(TypeError, match="fit must train on a SafeSequence"):
        model.fit(X[:, :1], X[:, :1], callbacks=[Resume(tmp_path)], verbose=0)


def test_backup_and_restore_refused(tmp_path):
    other = keras.callbacks.BackupAndRestore(tmp_path / "other")
    with pytest.raises(ValueError, match="BackupAndRestore"):
        fitted(tmp_path, extra=[other])


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"folder": 3}, TypeError, "folder must be a path, got 3"),
        ({"folder": ""}, ValueError, "folder must be a path, got ''"),
        ({"folder": "gs://run"}, ValueError, "must be on a disk of this machine, got 'gs://run'"),
        ({"every": 0}, ValueError, "every must be above 0, got 0"),
        ({"every": "often"}, ValueError, "every must be a number and a unit, got 'often'"),
        ({"every": "3 fortnights"}, ValueError, "a number and a unit, got '3 fort"),
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
    def __init__(self) -> None:
        super().__init__()
        self.layer = keras.layers.Dense(1)
        momentum = keras.optimizers.SGD(momentum=0.9)
        self.by_name = {"adam": keras.optimizers.Adam(), "deeper": {"sgd": [momentum]}}
        self.scaled = [keras.optimizers.LossScaleOptimizer(keras.optimizers.RMSprop())]

    def call(self, inputs: Any) -> Any:
        return self.layer(inputs)

    def filled(self, value: float) -> Several:
        self(X)
        for optimizer in self.own:
            optimizer.build(self.trainable_variables)
            for variable in optimizer.variables:
                variable.assign(np.full(variable.shape, value))
        return self

    @property
    def own(self) -> list[Any]:
        return [self.by_name["adam"], *self.by_name["deeper"]["sgd"], *self.scaled]


def test_optimizers_in_lists_and_dicts(tmp_path):
    fitted(tmp_path, model=Several().filled(3))
    fresh = fitted(tmp_path, model=Several().filled(1))
    for optimizer in fresh.own:
        for variable in optimizer.variables:
            assert np.all(keras.ops.convert_to_numpy(variable) == 3), variable.path


@ON_TENSORFLOW
def test_variables_of_tensorflow(tmp_path):
    import tensorflow as tf

    class Holding(keras.Sequential):
        def hold(self, value: int) -> None:
            self.one, self.many = tf.Variable(value), {"sums": [tf.Variable([value], shape=[None])]}
            self.module = tf.Module()
            self.module.each = tf.Variable(value)

    def trained(value: int) -> Any:
        model = Holding([keras.Input((3,)), keras.layers.Dense(1)])
        if value:
            model.hold(value)
        return fitted(tmp_path, model=model)

    trained(3)
    fresh = trained(1)
    for variable in (fresh.one, fresh.many["sums"][0], fresh.module.each):
        assert np.all(variable.numpy() == 3)
    with pytest.raises(ValueError, match="which had 3 variables of TensorFlow, here it is 0"):
        trained(0)


def test_optimizer_of_a_loaded_model(tmp_path):
    base = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    base.compile("adam", "mse")
    fitted(tmp_path, model=keras.Sequential([keras.Input((3,)), base, keras.layers.Dense(1)]))
    assert list(tmp_path.glob("*.npz"))


def sharded(folder: Path, shard: Any, batch_size: int, losses: Losses, samples: int = 24) -> Any:
    x = np.arange(samples, dtype="float32").reshape(-1, 1)
    losses.resume = Resume(folder, "1 batch")
    with SafeSequence((x, x), batch_size, shuffle=True, shard=shard, workers=0) as sequence:
        model = linear(run_eagerly=True)
        model.fit(sequence, epochs=2, callbacks=[losses, losses.resume], verbose=0)
    return [name for name in losses.seen if "end" not in name]


@pytest.mark.parametrize(("count", "batch_size"), [(1, 8), (3, 2)])
def test_other_shards_within_an_epoch(count, batch_size, tmp_path):
    """Of two ranks that had 3 of 6 batches of 2 each, 12 of 24 samples."""
    with pytest.raises(Killed):
        sharded(tmp_path, (0, 2), 2, Losses(3))
    assert max(path.name for path in tmp_path.glob("*.npz")) == "000000-000000003.npz"
    per_epoch = 24 // (count * batch_size)
    rest = -(-12 // (count * batch_size))
    assert sharded(tmp_path, (0, count), batch_size, Losses()) == [
        *(f"0/{batch:03d}" for batch in range(per_epoch - rest, per_epoch)),
        *(f"1/{batch:03d}" for batch in range(per_epoch)),
    ]


def test_other_shards_with_nothing_left(tmp_path):
    """Of 11 samples, two ranks had 8; four find three left, of which none gets any."""
    with pytest.raises(Killed):
        sharded(tmp_path, (0, 2), 1, Losses(4), samples=11)
    assert sharded(tmp_path, (0, 4), 1, Losses(), samples=11) == ["1/000", "1/001"]


def ranked(folder: Path, shard: Any = None, act: Any = None, epochs: int = 1) -> Any:
    # On TensorFlow, the model is saved before the second batch, too.
    extra = [] if act is None else [after(2, lambda model: act())]
    options = {"every": "1 batch", "batch_size": 1, "extra": extra}
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


def test_failed_training_leaves_the_folder(tmp_path, monkeypatch):
    def fails(*_: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as kept:
        ranked(tmp_path, act=fails)
    monkeypatch.setattr("adapters.resuming.checkpoint_dir.CheckpointDir.wait", fails)
    with pytest.raises(ZeroDivisionError) as other:  # Ctrl-C may end the wait, too.
        ranked(tmp_path)
    monkeypatch.undo()
    assert ranked(tmp_path).history.epoch == [0]
    assert kept is not other


def test_ranks_share_a_folder(tmp_path):
    written: list[Any] = []

    def other_rank() -> None:
        wait_until(lambda: "adapters-resume" not in {each.name for each in threading.enumerate()})
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
