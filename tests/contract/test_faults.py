"""Faults in each phase of a batch, by public names: submit, run, deliver and close."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from adapters import WorkerError
from tests.contract.front_ends import (
    ALL_WORKERS,
    FRONT_ENDS,
    INLINE,
    TWO_PROCESSES,
    TWO_THREADS,
    batches_of,
    loader_of,
)

COUNT, BATCH_SIZE, BAD = 40, 4, 13
BEFORE = BAD // BATCH_SIZE
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
    """A data set of numbers, with a fault."""

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


def read(loader: Any) -> list[Any]:
    """The batches of an epoch, as lists."""
    return [[int(number) for number in batch] for batch in batches_of(loader)]


def wait_until(condition: Callable[[], bool]) -> None:
    """Fail if it isn't so in time."""
    deadline = time.monotonic() + CLOSE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


EXPECTED = np.arange(COUNT).reshape(-1, BATCH_SIZE).tolist()


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("workers", ALL_WORKERS)
def test_error_comes_as_itself_after_the_batches_before(front_end, workers):
    loader = loader_of(
        front_end, Numbers("run", "raise"), BATCH_SIZE, workers=workers, collate=collate
    )
    for _ in range(2):
        batches = batches_of(loader)
        assert [next(batches).tolist() for _ in range(BEFORE)] == EXPECTED[:BEFORE]
        with pytest.raises(SpoiltError, match=f"spoilt {BAD}") as info:
            next(batches)
        assert f"sample {BAD}" in "".join(info.value.__notes__)
    loader.close()


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("phase", ["submit", "deliver"])
def test_error_on_the_way_comes_as_itself(front_end, phase):
    loader = loader_of(
        front_end, Numbers(phase, "raise"), BATCH_SIZE, workers=TWO_PROCESSES, collate=collate
    )
    with pytest.raises(SpoiltError, match=f"spoilt {BAD}"):
        read(loader)
    loader.close()


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("fault", ["exit", "kill"])
@pytest.mark.parametrize("phase", ["submit", "run"])
def test_one_death_costs_nothing_but_time(front_end, phase, fault, tmp_path):
    data = Numbers(phase, fault, tmp_path)
    loader = loader_of(front_end, data, BATCH_SIZE, workers=TWO_PROCESSES, collate=collate)
    assert read(loader) == EXPECTED
    assert (tmp_path / "done").exists()
    loader.close()


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("fault", ["exit", "kill"])
@pytest.mark.parametrize("phase", ["submit", "run", "deliver"])
def test_death_each_time_is_a_worker_error(front_end, phase, fault):
    data = Numbers(phase, fault)
    loader = loader_of(front_end, data, BATCH_SIZE, workers=TWO_PROCESSES, collate=collate)
    with pytest.raises(WorkerError, match="exited with code 7" if fault == "exit" else "SIGKILL"):
        read(loader)
    loader.close()


@pytest.mark.serial
@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_closing_ends_a_process_that_hangs(front_end, tmp_path):
    data = Numbers("run", "hang", tmp_path)
    loader = loader_of(front_end, data, BATCH_SIZE, workers=TWO_PROCESSES, collate=collate)
    batches = batches_of(loader)
    assert next(batches).tolist() == EXPECTED[0]
    wait_until((tmp_path / "done").exists)
    begun = time.monotonic()
    batches.close()
    loader.close()
    assert time.monotonic() - begun < CLOSE_SECONDS
    hanging = int((tmp_path / "done").read_text())
    wait_until(lambda: not psutil.pid_exists(hanging))


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS])
def test_without_processes_nothing_is_sent(front_end, workers):
    for phase in ("submit", "deliver"):
        data = Numbers(phase, "exit")
        loader = loader_of(front_end, data, BATCH_SIZE, workers=workers, collate=collate)
        assert sum(1 for _ in loader) == len(EXPECTED)
        loader.close()
