"""Worker processes that die or are killed: their batches are computed again, or it is an error."""

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

from adapters import WorkerError
from adapters.engine import Engine, pool
from adapters.sources import SequenceSource
from tests.batches import exact
from tests.engine.executors import (
    PROCESSES,
    opened,
    read,
    wait_until,
    within,
    workers,
)
from tests.engine.workloads import Dying, Gate, Numbers, Slow, jitter, rich
from tests.plans import epoch_of, plan_of

every_pool = pytest.mark.parametrize("executor", PROCESSES)
every_death = pytest.mark.parametrize("how", ["exit", "kill"])
HOW = {"exit": "exited with code 7", "kill": r"was killed by SIGKILL \(signal 9\)"}
# Recovery is promised within seconds.
SECONDS = 10


class Deadly(Numbers):
    """Samples, or a sequence of batches of one, that end their process."""

    def __init__(self, place: str, dying: Dying) -> None:
        super().__init__()
        self.place, self.dying = place, dying

    def __getitem__(self, number: int) -> Any:
        return self.dying(np.array([number]) if self.place == "sequence" else number)


# --- run ---


@pytest.mark.serial
@every_pool
@pytest.mark.parametrize(
    ("place", "how"),
    [("source", "exit"), ("sequence", "kill"), ("transform", "kill"), ("batch_transform", "exit")],
)
def test_death_costs_nothing_but_time(executor, place, how, tmp_path):
    dying = Dying(tmp_path / "deaths", how, 9, times=1)
    data, arguments = Deadly(place, dying), {}
    if place == "sequence":
        data = SequenceSource(data, changes_between_epochs=False)
    elif place != "source":
        data, arguments = Numbers(), {place: dying}
    size = 1 if place == "sequence" else 4
    with opened(data, executor, size, shuffle=True, **arguments) as engine, within(SECONDS):
        batches = np.concatenate(read(engine, 2 * -(-26 // size))).tolist()
    plan = plan_of(Numbers(), size, shuffle=True)
    assert batches == [n for epoch in (0, 1) for n in np.concatenate(epoch_of(plan, epoch))]
    assert dying.deaths.calls == 1


@every_pool
@every_death
def test_deadly_batch_is_given_up(executor, how, tmp_path):
    dying = Dying(tmp_path / "deaths", how, 9)
    with opened(Numbers(), executor, transform=dying) as engine:
        stream = engine.stream(0, 0, False)
        assert [stream.next()[0], stream.next()[0]] == [0, 4]
        expected = rf"worker process \d+ {HOW[how]} while computing batch 2 of epoch 0; tried 3 t"
        for _ in range(2):
            with pytest.raises(WorkerError, match=expected):
                stream.next()
        stream.close()
    assert dying.deaths.calls == 3


@every_pool
def test_deadly_batch_spares_the_others(executor, tmp_path):
    with opened(Numbers(), executor, transform=Dying(tmp_path / "deaths", "exit", 9)) as engine:
        for _ in range(2):
            with pytest.raises(WorkerError):
                read(engine, 3)
            assert np.concatenate(read(engine, 4, step=3)).tolist() == list(range(12, 26))


def test_deadly_batch_is_found_among_those_of_its_job(tmp_path):
    """Batches that take little go to a worker several at a time."""
    dying = Dying(tmp_path / "deaths", "kill", 333)
    with opened(Numbers(800), "processes-2", queue=40, transform=dying) as engine:
        stream = engine.stream(0, 0, False)
        for step in range(83):
            assert stream.next()[0] == 4 * step
        with pytest.raises(WorkerError, match="computing batch 83 of epoch 0; tried 3 times"):
            stream.next()
        stream.close()
        assert read(engine, 1, step=84)[0].tolist() == [336, 337, 338, 339]


def heavy(sample: int) -> int:
    time.sleep(0.01)
    return sample


def test_death_after_writing_leaves_no_trace(tmp_path):
    dying = Dying(tmp_path / "deaths", "kill", 2 * 45, times=1)

    def double(batch: Any) -> Any:
        batch *= 2
        return dying(batch)

    arguments = {"transform": heavy, "batch_transform": double}
    with opened(Numbers(64), "processes-2", 8, queue=1, **arguments) as engine:
        assert np.concatenate(read(engine, 8)).tolist() == list(range(0, 128, 2))
    assert dying.deaths.calls == 1


# --- from outside ---


@pytest.mark.serial
@every_pool
def test_idle_workers_that_were_killed_are_replaced(executor):
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


# --- close ---


@every_pool
def test_engine_with_dead_workers_closes(executor, tmp_path):
    gate = Gate(tmp_path / "gate", start=4)
    with opened(Numbers(), executor, transform=gate) as engine:
        stream = engine.stream(0, 0, False)
        stream.next()
        wait_until(lambda: gate.arrived.calls)
        for worker in workers():
            with suppress(psutil.NoSuchProcess):
                worker.send_signal(signal.SIGSEGV)
        stream.close()


@every_pool
def test_closing_ends_busy_and_stopped_workers(executor, tmp_path):
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


def test_random_kills_lose_and_repeat_nothing():
    slow = Slow(0.001)

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


def pid(sample: Any) -> int:
    return os.getpid()


def pids_of(engine: Engine, count: int = 5) -> set[int]:
    return set(np.concatenate(read(engine, count)).tolist())


def test_death_that_is_noticed_late_costs_no_batch(monkeypatch):
    """The only worker no longer takes jobs, and nobody knows yet that it is dead."""
    look_at, noticed = pool.Pool._look_at, threading.Event()

    def late(self: pool.Pool, worker: Any, what: Any) -> None:
        assert worker.pid != victim or noticed.wait(20)
        look_at(self, worker, what)

    with opened(Numbers(400), "processes-1", transform=pid) as engine:
        (victim,) = pids_of(engine)
        monkeypatch.setattr(pool.Pool, "_look_at", late)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: psutil.Process(victim).status() == psutil.STATUS_ZOMBIE)
        threading.Timer(0.2, noticed.set).start()
        assert len(read(engine, 40)) == 40
