"""A linear regression that every program trains alike, what it tells, and where it goes on.

    python -m tests.ranks.programs.NAME '{"folder": ..., "batch_size": ..., "dies_after": ...}'

Each process writes a line of JSON to ``rank-R-of-W.jsonl`` for each step: which samples it has
taken, where known, and the weights after it. The first one saves weights and state after each step.
One that is to die does so as a killed machine does, in the middle of the step after.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

SIZE, EPOCHS, RATE = 36, 3, 0.5
ORDER = {"shuffle": True, "seed": 7}


def data() -> tuple[np.ndarray, np.ndarray]:
    """Samples whose first feature is their number; float32 (36, 2) and (36, 1)."""
    number = np.arange(SIZE, dtype="float32") / SIZE
    return np.stack([number, np.ones_like(number)], axis=1), (3 * number**2 - 1)[:, None]


def numbers(x: Any) -> list[int]:
    """Which samples a batch has."""
    return [round(float(value) * SIZE) for value in np.asarray(x)[:, 0]]


class Job:
    """What this process was told, and how it tells."""

    def __init__(self) -> None:
        told = json.loads(sys.argv[1])
        self.folder = Path(told["folder"])
        self.batch_size: int = told["batch_size"]
        self.dies_after: int | None = told["dies_after"]
        self.address: str = told["address"]
        self.world: int = told["world"]
        self.rank: int = told["rank"]
        self.steps = 0
        self.saved = self.folder / "saved.json"
        name = f"rank-{self.rank}-of-{self.world}.jsonl"
        self.lines = (self.folder / name).open("w", buffering=1)

    def restored(self) -> tuple[list[list[float]], dict[str, int] | None]:
        """Weights, float32 (2, 1), and the state of the run that goes on."""
        if not self.saved.exists():
            return [[0.0], [0.0]], None
        saved = json.loads(self.saved.read_text())
        return saved["weights"], saved["state"]

    def begin_step(self) -> None:
        """Die, if that is so; before this process has told the others its gradients."""
        if self.rank == self.world - 1 and self.steps == self.dies_after:
            os.kill(os.getpid(), signal.SIGKILL)

    def end_step(self, weights: Any, state: dict[str, int], x: Any = None) -> None:
        """A step is done on all processes."""
        self.steps += 1
        kept = np.asarray(weights, "float32").reshape(2, 1).tolist()
        line = {"samples": None if x is None else numbers(x), "weights": kept, "state": state}
        self.lines.write(json.dumps(line) + "\n")
        if self.rank == 0:
            new = self.saved.with_suffix(".new")
            new.write_text(json.dumps({"weights": kept, "state": state}))
            new.replace(self.saved)
