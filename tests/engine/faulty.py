"""Exceptions for the fault matrix, and what raises them; imported by worker processes."""

from __future__ import annotations

from typing import Any

import numpy as np

FAULTS = [
    "ValueError",
    "OwnError",
    "StopIteration",
    "SystemExit",
    "KeyboardInterrupt",
    "MemoryError",
]


class OwnError(Exception):
    """Pickle can't make one of these."""

    def __init__(self, number: int, *, why: str) -> None:
        super().__init__(f"{number}: {why}")
        self.why = why


def fault(name: str) -> BaseException:
    """A new exception of this name."""
    return {
        "ValueError": lambda: ValueError("spoilt"),
        "OwnError": lambda: OwnError(9, why="spoilt"),
        "StopIteration": lambda: StopIteration("spoilt"),
        "SystemExit": lambda: SystemExit("spoilt"),
        "KeyboardInterrupt": lambda: KeyboardInterrupt("spoilt"),
        "MemoryError": lambda: MemoryError("spoilt"),
    }[name]()


class Spoilt:
    """Raises when it comes to ``number``, as a transform, a data set or a batch transform."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number

    def __call__(self, item: Any) -> Any:
        if np.any(item == self.number):
            raise fault(self.name)
        return item

    def __len__(self) -> int:
        return 26

    def __getitem__(self, number: int) -> Any:
        return self(number)
