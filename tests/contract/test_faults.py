"""Faults in each phase of a batch, by public names: submit, run, deliver and close."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import psutil
import pytest

from adapters import WorkerError
from tests.contract import faults
from tests.contract.faults import BAD, BATCH_SIZE, CLOSE_SECONDS, Numbers, SpoiltError, collate
from tests.contract.front_ends import ALL_WORKERS, batches_of, loader_of
from tests.engine.executors import wait_until


def read(loader: Any) -> list[Any]:
    return [[int(number) for number in batch] for batch in batches_of(loader)]


EXPECTED = np.arange(faults.COUNT).reshape(-1, BATCH_SIZE).tolist()
BEFORE = BAD // BATCH_SIZE
# A process that imports MXNet anew takes seconds.
SUBMIT_EXIT, RUN_KILL = ("submit", "exit", "keras"), ("run", "kill", "keras")
OF_GLUON = ("run", "exit", "gluon")


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


@pytest.mark.parametrize(("phase", "fault", "front_end"), [SUBMIT_EXIT, RUN_KILL, OF_GLUON])
def test_one_death_costs_nothing_but_time(phase, fault, front_end, tmp_path):
    data = Numbers(phase, fault, tmp_path)
    loader = loader_of(front_end, data, BATCH_SIZE, workers="2 processes", collate=collate)
    assert read(loader) == EXPECTED
    assert (tmp_path / "done").exists()
    loader.close()


@pytest.mark.parametrize(
    ("phase", "fault", "front_end"),
    [
        *(SUBMIT_EXIT, RUN_KILL, ("deliver", "kill", "keras"), OF_GLUON),
        *((phase, "raise", each) for phase in ("submit", "deliver") for each in ("keras", "gluon")),
    ],
)
def test_fault_each_time_is_an_error(phase, fault, front_end):
    said = {"exit": "exited with code 7", "kill": "SIGKILL", "raise": f"spoilt {BAD}"}[fault]
    data = Numbers(phase, fault)
    loader = loader_of(front_end, data, BATCH_SIZE, workers="2 processes", collate=collate)
    with pytest.raises(SpoiltError if fault == "raise" else WorkerError, match=said):
        read(loader)
    loader.close()


@pytest.mark.serial
def test_closing_ends_a_process_that_hangs(front_end, tmp_path):
    data = Numbers("run", "hang", tmp_path)
    loader = loader_of(front_end, data, BATCH_SIZE, workers="2 processes", collate=collate)
    batches = batches_of(loader)
    assert next(batches).tolist() == EXPECTED[0]
    wait_until((tmp_path / "done").exists)
    begun = time.monotonic()
    batches.close()
    loader.close()
    assert time.monotonic() - begun < CLOSE_SECONDS
    hanging = int((tmp_path / "done").read_text())
    wait_until(lambda: not psutil.pid_exists(hanging))


@pytest.mark.parametrize("workers", ["inline", "2 threads"])
def test_without_processes_nothing_is_sent(front_end, workers):
    for phase in ("submit", "deliver"):
        data = Numbers(phase, "exit")
        loader = loader_of(front_end, data, BATCH_SIZE, workers=workers, collate=collate)
        assert sum(1 for _ in loader) == len(EXPECTED)
        loader.close()
