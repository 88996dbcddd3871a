"""Keras sequences of whole batches, as users have them; worker processes import this module."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from tests.keras.samples import BATCH_SIZE, numbered


class Numbered(keras.utils.PyDataset):
    def __init__(self, batches: int, **options: Any) -> None:
        super().__init__(**options)
        self.batches = batches

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: int) -> Any:
        features, labels = numbered(self.batches * BATCH_SIZE)
        rows = slice(index * BATCH_SIZE, (index + 1) * BATCH_SIZE)
        return features[rows], labels[rows]


class Given(keras.utils.PyDataset):
    def __init__(self, *batches: Any) -> None:
        super().__init__()
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Any:
        return self.batches[index]


class Shuffling(Numbered):
    def __init__(self, batches: int) -> None:
        super().__init__(batches)
        self.epoch = 0
        self.order = np.arange(batches * BATCH_SIZE)
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index: int) -> Any:
        rows = self.order[index * BATCH_SIZE : (index + 1) * BATCH_SIZE]
        features = rows.astype(np.float32).reshape(-1, 1)
        return features, np.full_like(features, self.epoch)

    def on_epoch_end(self) -> None:
        self.epoch += 1
        self.rng.shuffle(self.order)


class Hooked(Numbered):
    def __init__(self, batches: int) -> None:
        super().__init__(batches)
        self.calls: list[str] = []

    def on_epoch_begin(self) -> None:
        self.calls.append("begin")

    def on_epoch_end(self) -> None:
        self.calls.append("end")


class Gaps(Numbered):
    """Has nothing to say for one number."""

    def __init__(self, batches: int, missing: int) -> None:
        super().__init__(batches)
        self.missing = missing

    def __getitem__(self, index: int) -> Any:
        return None if index == self.missing else super().__getitem__(index)


class Endless(keras.utils.PyDataset):
    @property
    def num_batches(self) -> None:
        return None

    def __getitem__(self, index: int) -> Any:
        return numbered(BATCH_SIZE)
