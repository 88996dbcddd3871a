"""Keras sequences of whole batches, as users have them; worker processes import this module."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tests.keras.samples import BATCH_SIZE, numbered

_SECONDS = 20.0


class Numbered(keras.utils.PyDataset):
    """Batches of numbered samples."""

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
    """These batches."""

    def __init__(self, *batches: Any) -> None:
        super().__init__()
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Any:
        return self.batches[index]


class Shuffling(Numbered):
    """Shuffles itself at the end of each epoch; its labels are the number of the epoch."""

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
    """Writes down which of its hooks were called."""

    def __init__(self, batches: int) -> None:
        super().__init__(batches)
        self.calls: list[str] = []

    def on_epoch_begin(self) -> None:
        self.calls.append("begin")

    def on_epoch_end(self) -> None:
        self.calls.append("end")


class Overlapping(Numbered):
    """Notices two threads that ask at once; each call waits a little for another."""

    def __init__(self, batches: int) -> None:
        super().__init__(batches)
        self.overlaps = 0
        self._inside = threading.Lock()
        self._another = threading.Event()

    def __getitem__(self, index: int) -> Any:
        if self._inside.acquire(blocking=False):
            self._another.wait(0.02)
            self._inside.release()
        else:
            self.overlaps += 1
            self._another.set()
        return super().__getitem__(index)


class Meeting(Numbered):
    """Answers only when two threads ask at once; says that it is thread-safe."""

    thread_safe = True

    def __init__(self, batches: int) -> None:
        super().__init__(batches)
        self.barrier = threading.Barrier(2)

    def __getitem__(self, index: int) -> Any:
        self.barrier.wait(_SECONDS)
        return super().__getitem__(index)


class MeetingOfProcesses(Numbered):
    """Answers only when two processes ask at once: each opens its end of a pipe."""

    def __init__(self, pipe: Path) -> None:
        super().__init__(2)
        self.pipe = pipe

    def __getitem__(self, index: int) -> Any:
        os.close(os.open(self.pipe, [os.O_RDONLY, os.O_WRONLY][index]))
        return super().__getitem__(index)


class Gaps(Numbered):
    """Has nothing to say for one number."""

    def __init__(self, batches: int, missing: int) -> None:
        super().__init__(batches)
        self.missing = missing

    def __getitem__(self, index: int) -> Any:
        return None if index == self.missing else super().__getitem__(index)


class Endless(keras.utils.PyDataset):
    """Has no number of batches."""

    @property
    def num_batches(self) -> None:
        return None

    def __getitem__(self, index: int) -> Any:
        return numbered(BATCH_SIZE)
