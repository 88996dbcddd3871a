"""Data sets over views of arrays, and others that hold something; for worker processes, too."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

MIB = 2**20
ROWS = 4000
SCALED_LENGTH = 64
_COLUMNS = 1024


def base() -> Any:
    """31 MiB of float64 ``(4000, 1024)``, all different."""
    return np.arange(ROWS * _COLUMNS, dtype=np.float64).reshape(ROWS, _COLUMNS)


def on_disk(folder: Path) -> Any:
    base().tofile(folder / "base.bin")
    return np.memmap(folder / "base.bin", np.float64, "r", shape=(ROWS, _COLUMNS))


# Each with no more than 31 MiB of its own, however large it looks.
VIEWS: dict[str, Callable[[Path], Any]] = {
    "every other row": lambda folder: base()[::2],
    "columns from behind": lambda folder: base()[:, ::-1],
    "transposed": lambda folder: base().T,
    "broadcast rows": lambda folder: np.broadcast_to(np.arange(1024.0), (200_000, 1024)),
    "windows": lambda folder: np.lib.stride_tricks.sliding_window_view(np.arange(1_179_648.0), 100),
    "a field": lambda folder: np.zeros(500_000, [("x", np.float64, 4), ("y", np.int64)])["x"],
    "rows of a memory map": lambda folder: on_disk(folder)[100:2100],
    "an array over a memory map": lambda folder: np.asarray(on_disk(folder))[:, ::2],
}


class Rows:
    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, number: int) -> Any:
        return self.array[number]


class Writing(Rows):
    def __getitem__(self, number: int) -> Any:
        if self.array.flags.writeable:
            self.array[number] += 1
        return self.array[number]


class Pairs:
    def __init__(self, array: Any) -> None:
        self.now, self.later = array[:-1], array[1:]

    def __len__(self) -> int:
        return len(self.now)

    def __getitem__(self, number: int) -> Any:
        return self.now[number], self.later[number]


class Annotated:
    """A list of dicts, as the annotations of a large data set are read from a file of JSON."""

    def __init__(self, length: int) -> None:
        self.rows = [
            {"file": f"images/{n:012d}.jpg", "label": n % 80, "box": [n, n + 1, n + 2, n + 3]}
            for n in range(length)
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Any:
        end = time.perf_counter() + 0.0002
        while time.perf_counter() < end:
            pass
        row = self.rows[number]
        return np.array([row["label"], *row["box"], os.getpid()])


class Scaled:
    """Numbers from a file, times a factor that the training loop changes."""

    def __init__(self, path: Any) -> None:
        self.path, self.file, self.factor = path, None, 1

    def __len__(self) -> int:
        return SCALED_LENGTH

    def __getitem__(self, number: int) -> np.float32:
        if self.file is None:
            self.file = open(self.path, "rb")  # noqa: SIM115
        self.file.seek(number)
        time.sleep(0.001)
        return np.float32(self.file.read(1)[0] * self.factor)
