"""A Keras ``PyDataset`` of whole batches."""

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
