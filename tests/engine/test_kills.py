"""Worker processes that are killed from outside, at any moment."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np
import psutil
import pytest

from adapters.engine.processes import Processes
from tests.batches import exact
from tests.engine.executors import PROCESSES, opened, read, wait_until, within, workers
from tests.engine.workloads import Gate, Numbers, Slow, jitter, rich
from tests.plans import epoch_of, plan_of

pytestmark = pytest.mark.timeout(60)
every_pool = pytest.mark.parametrize("executor", PROCESSES)
# Recovery is promised within seconds.
SECONDS = 10


@pytest.mark.serial
@every_pool
def test_idle_workers_that_were_killed_are_replaced_when_there_is_work(executor):
    with opened(Numbers(), executor, queue=1) as engine, within(SECONDS):
        stream = engine.stream(0, 0, False)
        assert stream.next().tolist() == [0, 1, 2, 3]
        for worker in workers():
            with suppress(psutil.NoSuchProcess):  # The pool has noticed already.
                worker.kill()
                # Not worker.wait(), which would take the child away from the pool.
                wait_until(lambda worker=worker: worker.status() == psutil.STATUS_ZOMBIE)
        assert np.concatenate([stream.next() for _ in range(6)]).tolist() == list(range(4, 26))
        stream.close()


@pytest.mark.timeout(20)
def test_a_worker_that_is_gone_holds_nobody_up_until_its_executor_has_heard_of_it(monkeypatch):
    gone, died = threading.Event(), Processes.died

    def heard_later(executor: Processes, *arguments: Any) -> None:
        gone.set()
        time.sleep(0.1)  # The consumer may want to give it another job meanwhile.
        died(executor, *arguments)

    with opened(Numbers(), "processes-1", queue=1) as engine:
        stream = engine.stream(0, 0, False)
        assert stream.next().tolist() == [0, 1, 2, 3]
        monkeypatch.setattr(Processes, "died", heard_later)
        for worker in workers():
            worker.kill()
        assert gone.wait(SECONDS)
        assert np.concatenate([stream.next() for _ in range(6)]).tolist() == list(range(4, 26))
        stream.close()


@pytest.mark.serial
@every_pool
def test_workers_killed_while_they_start_are_replaced(executor):
    with opened(Numbers(), executor) as engine, within(SECONDS):
        engine.stream(0, 0, False)
        engine.start_workers()
        consumer: list[Any] = []
        thread = threading.Thread(target=lambda: consumer.extend(read(engine, 7)))
        thread.start()
        wait_until(workers)
        for worker in workers():
            with suppress(psutil.NoSuchProcess):
                worker.kill()
        thread.join(SECONDS)
        assert np.concatenate(consumer).tolist() == list(range(26))


def test_a_long_batch_of_objects_arrives_without_going_through_a_pipe():
    """A worker that is killed while it writes into a pipe would leave half a message there."""
    with opened(
        Numbers(40), "processes-2", 8, queue=2, transform=lambda n: str(n) * 2**20
    ) as engine:
        stream = engine.stream(0, 0, False)
        batches = [[text[:2] for text in stream.next()] for _ in range(5)]
        stream.close()
    assert batches == [[f"{n}{n}"[:2] for n in range(i, i + 8)] for i in range(0, 40, 8)]


# --- close ---


@pytest.mark.serial
@every_pool
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_an_engine_whose_workers_are_dead_closes_at_once(executor, number, tmp_path):
    gate = Gate(tmp_path / "gate", start=4)
    with opened(Numbers(), executor, transform=gate) as engine, within(SECONDS):
        stream = engine.stream(0, 0, False)
        stream.next()
        wait_until(lambda: gate.arrived.calls)
        for worker in workers():
            with suppress(psutil.NoSuchProcess):
                worker.send_signal(number)
        stream.close()


@every_pool
def test_workers_that_are_busy_or_stopped_are_ended_by_closing(executor, tmp_path):
    gate = Gate(tmp_path / "gate", start=4)
    with opened(Numbers(), executor, transform=gate) as engine:
        stream = engine.stream(0, 0, False)
        stream.next()
        wait_until(lambda: gate.arrived.calls == len(workers()))
        children = workers()
        children[0].suspend()
        stream.close()
    gone, alive = psutil.wait_procs(children, 5)
    assert (len(gone), alive) == (len(children), [])


# --- at random ---


class Hunter:
    """Kills a worker, whatever it is doing, a random time after every third delivered batch."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._delivered = threading.Semaphore(0)
        self._over = False
        self._thread = threading.Thread(target=self._hunt)
        self.kills = 0

    def delivered(self) -> None:
        """A batch has come."""
        self._delivered.release()

    def _hunt(self) -> None:
        while True:
            for _ in range(3):
                self._delivered.acquire()
            if self._over:
                return
            time.sleep(self._rng.uniform(0, 0.1))
            if victims := workers():
                os.kill(self._rng.choice(victims).pid, signal.SIGKILL)
                self.kills += 1

    def __enter__(self) -> Hunter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._delivered.release(3)
        self._thread.join()


@pytest.mark.parametrize("seconds", [0.001, 0.008], ids=["light", "heavy"])
def test_workers_killed_at_random_for_several_epochs_lose_and_repeat_nothing(seconds):
    """A heavy batch is computed in parts."""
    slow = Slow(seconds)

    def transform(sample: int, rng: np.random.Generator) -> Any:
        return rich(slow(sample), rng)

    arguments = {"shuffle": True, "transform": transform, "batch_transform": jitter}
    plan = plan_of(Numbers(80), 16, **arguments | {"transform": rich})
    expected = [exact(batch) for epoch in range(4) for batch in epoch_of(plan, epoch)]
    batches = []
    with opened(Numbers(80), "processes-2", 16, **arguments) as engine, Hunter(4) as hunter:
        stream = engine.stream(0, 0, False)
        for _ in range(20):
            batches.append(exact(stream.next()))
            hunter.delivered()
        stream.close()
    assert batches == expected
    assert hunter.kills >= 4
