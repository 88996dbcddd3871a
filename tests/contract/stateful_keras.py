"""A Keras ``PyDataset`` of whole batches, and a model that keeps what ``fit`` gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np

from tests.contract.stateful import LENGTH, SIZE, pause, raw_file


class Batches(keras.utils.PyDataset):
    """Batches of four samples."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.handle = open(raw_file(folder), "rb")  # noqa: SIM115 - as long as it is used

    def __len__(self) -> int:
        return LENGTH // 4

    def __getitem__(self, index: int) -> Any:
        self.handle.seek(4 * index * SIZE)
        pause()
        rows = np.frombuffer(self.handle.read(4 * SIZE), np.uint8).reshape(4, SIZE)
        return np.arange(4 * index, 4 * index + 4), rows

    def close(self) -> None:
        """Close the file."""
        self.handle.close()


class _Seen:
    """Keras replaces a model's own lists by tracked ones, and an object it leaves alone."""

    def __init__(self) -> None:
        self.trained: list[np.ndarray] = []
        self.tested: list[np.ndarray] = []


class Recorder(keras.Model):
    """Trains nothing; ``seen`` has the features of each batch of training and validation."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = _Seen()
        self.layer = keras.layers.Dense(1)
        # Eager steps see arrays, and not the symbols that stand for them.
        self.compile(optimizer="sgd", loss="mse", run_eagerly=True)

    def call(self, inputs: Any) -> Any:
        """Keras asks for it when it builds the model."""
        return self.layer(keras.ops.cast(inputs, "float32"))

    def train_step(self, *arguments: Any) -> Any:
        """Keep a batch."""
        return self._keep(self.seen.trained, arguments)

    def test_step(self, *arguments: Any) -> Any:
        """Keep a batch."""
        return self._keep(self.seen.tested, arguments)

    @staticmethod
    def _keep(batches: list[np.ndarray], arguments: Any) -> Any:
        batches.append(np.array(keras.ops.convert_to_numpy(arguments[-1][0])))
        logs = {"loss": 0.0}
        return (logs, arguments[0]) if keras.backend.backend() == "jax" else logs
