"""A data set that the training loop changes; worker processes import this module."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

LENGTH = 64


class Scaled:
    def __init__(self, path: Any) -> None:
        self.path, self.file, self.factor = path, None, 1

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, number: int) -> np.float32:
        if self.file is None:
            self.file = open(self.path, "rb")  # noqa: SIM115
        self.file.seek(number)
        time.sleep(0.001)
        return np.float32(self.file.read(1)[0] * self.factor)
