"""Workers of a Dask cluster: what is theirs alone. What all executors do is in test_contract."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from adapters.engine import CLUSTER, Engine, Settings
from adapters.errors import ClosedError, WorkerError
from tests.clusters import cluster
from tests.engine.executors import opened, read, streamed, wait_until, within
from tests.engine.workloads import Dying, Gate, Numbers, Tally, count
from tests.forking import forks
from tests.plans import notes_of, plan_of

DATA = list(range(40))


def settings(client: Any, queue: int = 4) -> Settings:
    return Settings(1, max_queue_size=queue, kind=CLUSTER, cluster=client)


def test_who_they_are_is_said(dask_client, caplog):
    caplog.set_level(logging.INFO, "adapters")
    engine = Engine(plan_of(Numbers(400), 4), Settings(2, kind=CLUSTER, cluster=dask_client))
    assert engine.description == "2 workers of a Dask cluster"
    read(engine, 1)
    assert "workers: 2 workers of a Dask cluster, 2 threads" in caplog.messages
    engine.close()


def test_no_more_is_under_way_than_the_queue_is_long(dask_client, tmp_path):
    tally = Tally(tmp_path / "calls")
    with streamed(Numbers(400), "cluster", queue=3, transform=tally) as stream:
        stream.next()
        wait_until(lambda: tally.calls >= 16)
        for _ in range(20):
            stream.next()
            assert tally.calls <= 4 * (21 + 3)


# In the cluster, it is opened by two workers in one process, and on its way.
@pytest.mark.parametrize(("executor", "most"), [("processes-1", 1), ("cluster", 3)])
def test_plan_is_sent_once(executor, most, tmp_path):
    data = Opened(str(Tally(tmp_path / "opened").path), 160)
    with opened(data, executor) as engine:
        read(engine, 40)
    assert Tally(tmp_path / "opened").calls <= most


class Opened(Numbers):
    """Counts how often it is unpickled."""

    def __init__(self, path: str, size: int) -> None:
        super().__init__(size)
        self.path = path

    def __reduce__(self) -> Any:
        return reopened, (self.path, self.size)


def reopened(path: str, size: int) -> Opened:
    count(path)
    return Opened(path, size)


def test_closing_leaves_the_client_open_and_the_cluster_empty(dask_client, tmp_path):
    gate = Gate(tmp_path / "gate")
    with (
        opened_on(dask_client, Held(400), transform=gate) as engine,
        ThreadPoolExecutor(1) as thread,
    ):
        waiting = thread.submit(engine.stream(0, 0, False).next)
        wait_until(lambda: gate.arrived.calls)
        with within(10):
            engine.close()
            assert type(waiting.exception()) is ClosedError
    gate.open()
    assert dask_client.submit(abs, -3, pure=False).result() == 3
    wait_until(lambda: not any(dask_client.has_what().values()))


@pytest.mark.parametrize("seconds", [0, 60])
def test_unreachable_workers_send_batches_by_the_scheduler(dask_client, monkeypatch, seconds):
    asked = []

    async def unreachable(*args: Any, **kwargs: Any) -> Any:
        asked.append(args)
        await asyncio.sleep(seconds)
        raise OSError("no route to host")

    monkeypatch.setattr("distributed.worker.get_data_from_worker", unreachable)
    monkeypatch.setattr("adapters.engine.dask._FETCH_SECONDS", 0.1)
    with opened(DATA, "cluster") as engine:
        assert np.concatenate(read(engine, 10)).tolist() == DATA
    assert len(asked) < 10  # Not for each batch.


@forks
def test_fork_is_told_to_make_its_own_client(dask_client):
    with opened(DATA, "cluster") as engine:
        read(engine, 1)
        told, tells = os.pipe()
        pid = os.fork()
        if not pid:
            signal.alarm(20)
            try:
                read(engine, 10)
            except RuntimeError as error:
                os.write(tells, str(error).encode())
            finally:
                os._exit(0)
        os.close(tells)
        os.waitpid(pid, 0)
        with open(told, "rb") as file:
            assert b"make a Client in this process" in file.read()
        assert np.concatenate(read(engine, 10)).tolist() == DATA


def fail_to_open() -> Any:
    raise OSError("not on this machine")


class Refusing(Numbers):
    """Can't be pickled, or can't be unpickled."""

    def __init__(self, pickles: bool) -> None:
        super().__init__()
        self.pickles = pickles

    def __reduce__(self) -> Any:
        if not self.pickles:
            raise TypeError("stays here")
        return fail_to_open, ()


@pytest.mark.parametrize(
    ("pickles", "message", "remedy"),
    [
        (False, "stays here", "must be picklable (by cloudpickle) to be sent to a cluster"),
        (True, "not on this machine", "must be installed there, or be sent by Client.upload_file"),
    ],
)
def test_what_cannot_be_sent_is_told_with_a_remedy(dask_client, pickles, message, remedy):
    with (
        opened(Refusing(pickles), "cluster") as engine,
        pytest.raises((TypeError, OSError), match=message) as caught,
    ):
        read(engine, 1)
    assert remedy in notes_of(caught.value)


def test_machines_without_this_package_are_told_of_once():
    with (
        cluster(1, "bare") as client,
        opened_on(client, Held(40)) as engine,
        pytest.raises((RuntimeError, ImportError)) as caught,
        within(30),
    ):
        read(engine, 10)
    assert notes_of(caught.value).count("its workers need loader-adapters") == 1


# --- deaths ---


def test_killed_worker_costs_no_sample(tmp_path):
    """Though it was the only one that had the plan; another one starts then."""
    transform = Dying(tmp_path / "deaths", 17, times=1)
    with (
        cluster(1, "nannies") as client,
        opened_on(client, Held(40), transform=transform) as engine,
    ):
        assert np.concatenate(read(engine, 10)).tolist() == DATA
    assert transform.deaths.calls == 1


class Held(Numbers):
    """With much that must be sent."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.held = np.ones(6 << 20, np.uint8)


def opened_on(client: Any, data: Any, queue: int = 4, **arguments: Any) -> Any:
    return closing(Engine(plan_of(data, 4, **arguments), settings(client, queue)))


@pytest.mark.full
def test_batch_that_kills_every_worker_is_given_up(tmp_path):
    transform = Dying(tmp_path / "deaths", 17)
    with (
        cluster(1, "nannies") as client,
        opened_on(client, DATA, queue=1, transform=transform) as engine,
    ):
        stream = engine.stream(0, 0, False)
        for _ in range(4):
            stream.next()
        with within(90), pytest.raises(WorkerError, match="batch 4 of epoch 0; tried 4 times"):
            stream.next()
        stream.close()


def test_client_that_was_closed_is_an_error_and_no_hang(tmp_path, dask_client):
    distributed = pytest.importorskip("distributed", reason="needs dask.distributed")
    gate = Gate(tmp_path / "gate", 8)
    with distributed.Client(dask_client.scheduler.address, set_as_default=False) as client:
        engine = Engine(plan_of(DATA, 4, transform=gate), settings(client))
        stream = engine.stream(0, 0, False)
        stream.next()
        wait_until(lambda: gate.arrived.calls)
    with within(20), pytest.raises(WorkerError, match=r"client is closed|has forgotten"):
        [stream.next() for _ in range(9)]
    gate.open()
    stream.close()
    engine.close()


def test_worker_given_up_while_it_sends_holds_nobody_up(monkeypatch):
    distributed = pytest.importorskip("distributed", reason="needs dask.distributed")
    real, asked = distributed.worker.get_data_from_worker, threading.Event()
    with cluster(2) as client, opened_on(client, Numbers(400)) as engine:
        frozen = min(client.nthreads())

        async def fetched(rpc: Any, keys: Any, worker: str) -> Any:
            if worker == frozen:
                asked.set()
                await asyncio.sleep(60)
            return await real(rpc, keys, worker)

        monkeypatch.setattr(distributed.worker, "get_data_from_worker", fetched)
        monkeypatch.setattr("adapters.engine.dask._FETCH_SECONDS", 0.2)
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.extend(read(engine, 50)))
        thread.start()
        assert asked.wait(30)
        with within(30):
            client.run_on_scheduler(forget, address=frozen)
            thread.join()
    assert np.concatenate(found).tolist() == list(range(200))


async def forget(dask_scheduler: Any, address: str) -> None:
    """As its ``worker-ttl`` has it do."""
    await dask_scheduler.remove_worker(address, stimulus_id="test")
