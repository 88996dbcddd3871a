"""``Resume``: two trainings in one folder are refused, ranks of one job share it."""

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
from tests.keras.versions import NEEDS_RESUME

pytestmark = [pytest.mark.one_keras, NEEDS_RESUME]


class Calls(keras.callbacks.Callback):
    """Does something after the second batch, before which TensorFlow's model is saved, too."""

    def __init__(self, act: Any) -> None:
        super().__init__()
        self.act = act

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.act is not None and batch == 1:
            act, self.act = self.act, None
            act()


def fitted(folder: Path, shard: Any = None, act: Any = None, epochs: int = 1) -> Any:
    """A training, in whose first epoch something is done."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("adam", "mse", run_eagerly=True)
    x = np.arange(24, dtype="float32").reshape(8, 3)
    with SafeSequence((x, x.sum(1)), 1, shuffle=True, shard=shard, workers=0) as sequence:
        given = [Resume(folder, "1 batch"), Calls(act)]
        model.fit(sequence, epochs=epochs, callbacks=given, verbose=0)
    return model


def test_a_second_training_in_the_folder_is_refused(tmp_path):
    said: list[Any] = []

    def another() -> None:
        with pytest.raises(
            RuntimeError, match="folder must be used by one training at a time"
        ) as e:
            fitted(tmp_path)
        said.append(e)

    fitted(tmp_path, act=another)
    assert said
    assert fitted(tmp_path, epochs=2).history.epoch == [0, 1]
    assert {path.suffix for path in tmp_path.iterdir()} == {".npz"}


def test_a_training_that_has_failed_leaves_the_folder(tmp_path):
    def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as kept:
        fitted(tmp_path, act=fails)
    assert fitted(tmp_path).history.epoch == [0]
    assert kept


def writing() -> list[threading.Thread]:
    """The threads of rank 0 that do."""
    return [each for each in threading.enumerate() if each.name == "adapters-resume"]


def test_ranks_share_a_folder_that_rank_0_writes(tmp_path):
    """And go on from what it has written, each with the generators of its own process."""
    written: list[Any] = []

    def other_rank() -> None:
        wait_until(lambda: not writing())
        before = sorted(tmp_path.glob("*.npz"))
        assert before
        fitted(tmp_path, (1, 2))
        assert sorted(tmp_path.glob("*.npz")) == before
        written.append(before)

    fitted(tmp_path, (0, 2), other_rank)
    assert written
    random.seed(5)
    fitted(tmp_path / "another", (1, 2))
    expected = random.random()
    random.seed(5)
    other = fitted(tmp_path, (1, 2))
    assert random.random() == expected
    first = fitted(tmp_path, (0, 2))
    assert np.array_equal(first.layers[-1].get_weights()[0], other.layers[-1].get_weights()[0])
    assert other.history.epoch == [0]


def test_a_rank_without_rank_0_in_its_folder_saves_nothing_and_warns(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "adapters"):
        fitted(tmp_path, (1, 2))
    assert caplog.text.count(f"rank 1 has found no rank 0 in {tmp_path}") == 1
    assert not [*tmp_path.iterdir()]
