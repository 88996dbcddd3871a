"""Workers of loaders: how far ahead of the loop they are, and two passes that share them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import gluon_loader
from adapters.engine import pool, usable_cpus
from tests.engine.executors import end_idle_workers
from tests.engine.test_window import settled
from tests.engine.workloads import Tally
from tests.gluon.executors import PROCESSES, THREADS, arguments_of

BATCH = 4
SIZE = 400


class Counted:
    """A data set that counts what is asked of it, in all processes."""

    def __init__(self, path: Path) -> None:
        self.tally = Tally(path)

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, number: int) -> Any:
        return self.tally(number)


@pytest.mark.parametrize("executor", [THREADS, pytest.param(PROCESSES, marks=pytest.mark.full)])
@pytest.mark.parametrize(("prefetch", "ahead"), [(1, 3), (3, 5), (None, 4)])
def test_as_many_batches_are_ready_as_prefetch_says_and_one_in_progress_for_each_worker(
    executor, prefetch, ahead, tmp_path
):
    data = Counted(tmp_path / "calls")
    with gluon_loader(data, BATCH, prefetch=prefetch, **arguments_of(executor)) as loader:
        for taken, _ in enumerate(loader, 1):
            most = (taken + ahead) * BATCH
            assert settled(data.tally, most) == most
            if taken == 5:
                break


class Spinning:
    """A data set of numbers and of who made them, which holds the interpreter's lock meanwhile."""

    def __len__(self) -> int:
        return 20 * BATCH

    def __getitem__(self, number: int) -> Any:
        until = time.thread_time() + 0.004
        while time.thread_time() < until:
            pass
        return number, os.getpid()


def made(batches: Iterable[Any]) -> tuple[list[int], set[int]]:
    """The numbers in some batches of these, and who made them."""
    numbers, processes = (np.concatenate([b.asnumpy() for b in each]) for each in zip(*batches))
    return numbers.tolist(), set(processes.tolist())


@pytest.mark.full
@pytest.mark.skipif(usable_cpus() < 2, reason="one CPU has nothing to choose from")
def test_two_passes_at_once_have_all_samples_in_order_where_auto_chooses_processes(
    monkeypatch, capsys
):
    """A thread makes the first batches, and processes take over in the midst of both passes."""
    end_idle_workers()
    monkeypatch.setattr(pool.kept(), "start_seconds", 0.05)
    with gluon_loader(Spinning(), BATCH, num_workers="auto") as loader:
        epochs = [[made(each) for each in zip(*zip(loader, loader))] for _ in range(2)]
        loader.explain()
    assert f"workers: {usable_cpus()} processes" in capsys.readouterr().out
    assert [numbers for epoch in epochs for numbers, _ in epoch] == 4 * [[*range(20 * BATCH)]]
    assert all(os.getpid() not in processes for _, processes in epochs[-1])
