"""Worker processes that die or are killed: their batches are computed again, or it is an error."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from typing import Any
from unittest.mock import Mock

import numpy as np
import psutil
import pytest

from adapters import WorkerError
from tests.engine.executors import end_idle_workers, opened, read, wait_until, within, workers
from tests.engine.workloads import Dying, Numbers

# Recovery is promised within seconds.
SECONDS = 10


def test_deadly_batch_is_given_up_and_spares_the_others(tmp_path):
    dying = Dying(tmp_path / "deaths", 9)
    with opened(Numbers(), "processes-2", transform=dying) as engine:
        stream = engine.stream(0, 0, False)
        assert [stream.next()[0], stream.next()[0]] == [0, 4]
        expected = r"worker process \d+ was killed by SIGKILL \(signal 9\) while computing batch 2 "
        for _ in range(2):
            with pytest.raises(WorkerError, match=expected + "of epoch 0; tried 3 times"):
                stream.next()
        stream.close()
        assert dying.deaths.calls == 3
        assert np.concatenate(read(engine, 4, step=3)).tolist() == list(range(12, 26))


def test_deadly_batch_is_found_among_those_of_its_task(tmp_path):
    """Batches that take little go to a worker several at a time."""
    dying = Dying(tmp_path / "deaths", 333)
    with opened(Numbers(800), "processes-2", queue=40, transform=dying) as engine:
        stream = engine.stream(0, 0, False)
        for step in range(83):
            assert stream.next()[0] == 4 * step
        with pytest.raises(WorkerError, match="computing batch 83 of epoch 0; tried 3 times"):
            stream.next()
        stream.close()
        assert read(engine, 1, step=84)[0].tolist() == [336, 337, 338, 339]


def test_workers_that_die_while_they_start_computed_nothing(new_processes, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    expected = "exited with code 1 before it could compute batch 0 .* Look for what it printed"
    with opened(Numbers(), "processes-2") as engine, pytest.raises(WorkerError, match=expected):
        read(engine, 1)


@pytest.mark.serial
@pytest.mark.parametrize("descriptors", [True, False], ids=["descriptors", "before Linux 5.3"])
def test_idle_workers_that_were_killed_are_replaced(descriptors, new_processes, monkeypatch):
    if not descriptors:
        monkeypatch.setattr(os, "pidfd_open", Mock(side_effect=OSError))
    with opened(Numbers(), "processes-2", queue=1) as engine, within(SECONDS):
        stream = engine.stream(0, 0, False)
        assert stream.next().tolist() == [0, 1, 2, 3]
        for worker in workers():
            with suppress(psutil.NoSuchProcess):  # The pool has noticed already.
                worker.kill()
                # Not worker.wait(), which would take the child away from the pool.
                wait_until(lambda worker=worker: worker.status() == psutil.STATUS_ZOMBIE)
        assert np.concatenate([stream.next() for _ in range(6)]).tolist() == list(range(4, 26))
        stream.close()
    end_idle_workers()


def with_helper(sample: Any) -> int:
    return subprocess.Popen(["sleep", "100"]).pid


def test_helpers_of_user_code_end_with_their_worker(new_processes):
    with opened(Numbers(), "processes-1", 1, transform=with_helper) as engine:
        pids = np.concatenate(read(engine, 3)).tolist()
        assert all(map(psutil.pid_exists, pids))
        workers()[0].kill()
        wait_until(lambda: not any(map(psutil.pid_exists, pids)))
