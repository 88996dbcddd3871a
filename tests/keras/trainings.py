"""A training with all that has a state, which can be made again and killed: for tests of Resume."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import keras
import numpy as np

from adapters import SafeSequence
from adapters.keras import Resume

SAMPLES, BATCH_SIZE, EPOCHS = 40, 4, 3
BATCHES = SAMPLES // BATCH_SIZE


class Killed(Exception):
    """In the place of a signal."""


class Losses(keras.callbacks.Callback):
    """Keeps what Keras tells of each batch and epoch, and can end it all.

    That is before batch ``kill_at`` of this run, counted over its epochs, of those of ``within``:
    by a real signal if ``path`` is where a line for each batch goes.
    """

    def __init__(
        self, kill_at: int | None = None, within: str = "train", path: Path | None = None
    ) -> None:
        super().__init__()
        self.kill_at, self.within, self.path = kill_at, within, path
        self.seen: dict[str, dict[str, float]] = {}
        self.counts = {"train": 0, "test": 0}
        self.epoch = 0
        self.resume: Any = None
        """Is waited for at each batch, so that its files are those that were due."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._count("train")

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._count("test")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._note(f"{self.epoch}/{batch:03d}", logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._note(f"{epoch}/end", logs)

    def _count(self, kind: str) -> None:
        if self.resume is not None and self.path is None:
            self.resume._folder.wait()
        if kind == self.within and self.counts[kind] == self.kill_at:
            if self.path is None:
                raise Killed
            os.kill(os.getpid(), signal.SIGKILL)
        self.counts[kind] += 1

    def _note(self, name: str, logs: Any) -> None:
        self.seen[name] = {key: float(value) for key, value in logs.items()}
        if self.path is not None:
            with open(self.path, "a") as file:
                file.write(json.dumps([name, self.seen[name]]) + "\n")


def augmented(sample: Any, rng: Any) -> Any:
    x, y = sample
    return x + rng.normal(size=x.shape).astype("float32") / 10, y


def data(seed: int) -> Any:
    """Arrays that can be learned a little."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(SAMPLES, 6)).astype("float32")
    return x, (x.sum(axis=1) > 0).astype("float32")


def callbacks() -> list[Any]:
    """Those of Keras that have a state, and one whose effect depends on how often it is called."""
    return [
        keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("val_loss", patience=1, factor=0.5, min_delta=0.05),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
    ]


def train(
    folder: Path | None,
    losses: Losses,
    *,
    workers: int = 0,
    together: int = 1,
    steps: int | None = None,
    every: Any = "1 batch",
    epochs: int = EPOCHS,
    extra: Any = (),
    validate: bool = True,
) -> Any:
    """Make everything anew, and ``fit``; the model."""
    keras.utils.set_random_seed(7)
    layers = keras.layers
    model = keras.Sequential(
        [layers.Dense(8, "relu"), layers.BatchNormalization(), layers.Dropout(0.4)]
        + [layers.Dropout(0.1, seed=5), layers.Dense(1, "sigmoid")]
    )
    more = {"steps_per_execution": together} if together > 1 else {}
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"], **more)
    keras.utils.set_random_seed(8)
    options: Any = {"batch_size": BATCH_SIZE, "seed": 3, "transform": augmented, "workers": workers}
    with (
        SafeSequence(data(1), shuffle=True, **options) as training,
        SafeSequence(data(2), **options) as validation,
    ):
        given = [*callbacks(), losses, *extra]
        if folder is not None:
            losses.resume = Resume(folder, every)
            given.append(losses.resume)
        model.fit(
            training,
            epochs=epochs,
            steps_per_epoch=steps,
            validation_data=validation if validate else None,
            callbacks=given,
            verbose=0,
        )
    return model


def weights(model: Any) -> Any:
    return np.concatenate([np.ravel(each) for each in model.get_weights()])
