"""A data set with a fault in one phase of a batch; worker processes import this module."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

COUNT, BATCH_SIZE, BAD = 40, 4, 13
CLOSE_SECONDS = 15


class SpoiltError(Exception):
    """An error with two arguments, which pickle would rebuild with one."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"{reason} {number}")


def act(fault: str, marks: Path | None) -> None:
    """Do what the fault says: once if there is a folder for marks, else each time."""
    if marks is not None:
        if (marks / "done").exists():
            return
        (marks / "done").write_text(str(os.getpid()))
    if fault == "exit":
        os._exit(7)
    elif fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "hang":
        time.sleep(10 * CLOSE_SECONDS)
    else:
        raise SpoiltError(BAD, "spoilt")


class AtArrival:
    """A part of the data set that acts when a worker process receives it."""

    def __init__(self, fault: str, marks: Path | None) -> None:
        self.fault, self.marks, self.trainer = fault, marks, os.getpid()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if os.getpid() != self.trainer:
            act(self.fault, self.marks)


class OnItsWay:
    """A member of a batch that acts when a worker process sends it."""

    def __init__(self, fault: str, marks: Path | None) -> None:
        self.fault, self.marks = fault, marks

    def __reduce__(self) -> Any:
        act(self.fault, self.marks)
        return int, (BAD,)


class Numbers:
    def __init__(self, phase: str = "", fault: str = "", marks: Path | None = None) -> None:
        self.phase, self.fault, self.marks = phase, fault, marks
        self.part = AtArrival(fault, marks) if phase == "submit" else None

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, number: int) -> Any:
        if number == BAD and self.phase == "run":
            act(self.fault, self.marks)
        if number == BAD and self.phase == "deliver":
            return OnItsWay(self.fault, self.marks)
        return number


def collate(samples: list[Any]) -> Any:
    """Numbers as an array; with anything else among them, a list of them."""
    if all(isinstance(sample, int) for sample in samples):
        return np.array(samples)
    return [int(sample) if isinstance(sample, int) else sample for sample in samples]
