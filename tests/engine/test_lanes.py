"""Workers of a Dask cluster that are asked directly."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from adapters.alignment import aligned_empty
from adapters.batch.plan import Assembled
from adapters.clock import Spent
from adapters.engine import CLUSTER, Engine, Settings, frames
from adapters.engine import lanes as module
from adapters.engine.lanes import Lane, Lanes
from adapters.engine.shipment import Made
from adapters.engine.submission import Submission
from adapters.failure import Failure
from tests.batches import exact
from tests.clusters import cluster, workers_of
from tests.engine.crews import opened, read, wait_until, within
from tests.engine.workloads import Gate, Numbers, Slow, SpoiltError, rich
from tests.plans import epoch_of, plan_of

DATA = list(range(40))


@pytest.fixture
def no_results(monkeypatch):
    """Results of Dask's tasks would be an error."""

    async def made(self: Submission, keys: list[Any]) -> list[Any]:
        raise SpoiltError(keys)

    monkeypatch.setattr(Submission, "made", made)


def lanes_of(engine: Engine) -> Lanes:
    lanes: Lanes = engine._dispatcher._crew._lanes  # type: ignore[union-attr]
    return lanes


def settings(client: Any, queue: int = 4) -> Settings:
    return Settings(1, max_queue_size=queue, kind=CLUSTER, cluster=client)


def test_batches_are_no_results_of_tasks(dask_client, no_results):
    with opened(DATA, "cluster", transform=rich) as engine:
        found = [exact(batch) for batch in read(engine, 10)]
        assert len(lanes_of(engine)._lanes) >= 1
    assert found == [exact(batch) for batch in epoch_of(plan_of(DATA, 4, transform=rich))]


def test_every_worker_is_asked(dask_client, no_results):
    with opened(Numbers(400), "cluster", transform=Slow(0.002)) as engine:
        stream = engine.stream(0, 0, False)
        stream.next()
        wait_until(lambda: len(lanes_of(engine)._lanes) == 2)
        found = [stream.next() for _ in range(20)]
        assert {lane.address for lane in lanes_of(engine)._lanes} == set(dask_client.ncores())
        stream.close()
    assert np.concatenate(found).tolist() == list(range(4, 84))


def test_where_no_worker_can_be_asked_batches_are_results_of_tasks(
    dask_client, monkeypatch, caplog
):
    caplog.set_level(logging.INFO, "adapters")
    monkeypatch.setattr(frames, "can_be_taken_over", lambda comm: False)
    with opened(DATA, "cluster") as engine:
        assert np.concatenate(read(engine, 10)).tolist() == DATA
        assert not lanes_of(engine)._lanes
    told = "batches come as results of Dask's tasks: no worker could be asked directly"
    assert caplog.messages.count(told) == 1


def test_a_plan_that_has_changed_reaches_the_workers(dask_client, no_results):
    data = list(DATA)
    with opened(data, "cluster") as engine:
        assert read(engine, 1)[0].tolist() == [0, 1, 2, 3]
        data[:] = [-number for number in data]
        engine.refresh()
        assert np.concatenate(read(engine, 10)).tolist() == data
        wait_until(lambda: not lanes_of(engine)._retired)


def test_workers_are_at_work_for_dask_as_long_as_the_engine_is_open(dask_client):
    """Else an adaptive cluster removes them, and a cluster with a time limit for idleness ends."""
    with opened(DATA, "cluster") as engine:
        read(engine, 1)
        wait_until(lambda: len(lanes_of(engine)._lanes) == 2)
        wait_until(lambda: all(dask_client.processing().values()))
        assert dask_client.submit(abs, -3, pure=False).result(10) == 3  # Its thread is free.
    wait_until(lambda: not any(dask_client.processing().values()))


def test_nothing_of_an_engine_stays_on_the_workers(dask_client, tmp_path):
    gate = Gate(tmp_path / "gate", 8)
    with opened(Numbers(400), "cluster", transform=gate) as engine:
        read(engine, 2)
        wait_until(lambda: gate.arrived.calls)
    gate.open()
    wait_until(lambda: not any(dask_client.run(outposts).values()))
    wait_until(lambda: not any(dask_client.has_what().values()))


def outposts() -> list[str]:
    names = [thread.name for thread in threading.enumerate() if "outpost" in thread.name]
    return [*names, *__import__("adapters.engine.outpost").engine.outpost._posts]


# --- workers that come, leave, and can't be reached ---


def test_the_lane_of_a_worker_that_the_scheduler_gave_up_is_closed_while_somebody_waits(
    dask_client, monkeypatch, tmp_path
):
    """Such a worker is frozen: its connection never ends."""
    gate, found = Gate(tmp_path / "gate", 4), []
    with opened(Numbers(400), "cluster", transform=gate) as engine:
        stream = engine.stream(0, 0, False)
        lanes = lanes_of_both(engine, stream, found)
        stays = lanes._lanes[1].address
        wait_until(lambda: gate.arrived.calls >= 2)  # One each.

        async def ncores() -> dict[str, int]:
            return {stays: 1}

        monkeypatch.setattr(dask_client.scheduler, "ncores", ncores, raising=False)
        thread = threading.Thread(target=lambda: found.append(stream.next()))
        thread.start()
        wait_until(lambda: [lane.address for lane in lanes._lanes] == [stays])
        gate.open()
        thread.join()
        found += [stream.next() for _ in range(10)]
        stream.close()
    assert np.concatenate(found).tolist() == list(range(4 * len(found)))


def lanes_of_both(engine: Engine, stream: Any, found: list[Any]) -> Lanes:
    found.append(stream.next())
    lanes = lanes_of(engine)
    wait_until(lambda: len(lanes._lanes) == 2)
    return lanes


def test_what_lanes_have_no_room_for_has_an_adaptive_cluster_grow(dask_client, tmp_path):
    gate = Gate(tmp_path / "gate", 8)
    with opened(Numbers(4000), "cluster", queue=80, transform=gate) as engine:
        stream = engine.stream(0, 0, False)
        for _ in range(2):
            stream.next()
        thread = threading.Thread(target=stream.next)
        thread.start()
        # Half a second each, and five seconds are worth a worker.
        wait_until(lambda: dask_client.run_on_scheduler(target) >= 7)
        gate.open()
        thread.join()
        for _ in range(40):
            stream.next()
        stream.close()
    wait_until(lambda: dask_client.run_on_scheduler(target) <= 2)


def target(dask_scheduler: Any) -> int:
    return int(dask_scheduler.adaptive_target(target_duration="5s"))


def test_a_plan_that_changes_while_lanes_open_costs_no_lane(dask_client, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "adapters")
    real, slow = Lanes._connected, threading.Event()

    async def connected(self: Lanes, lane: Lane) -> bool:
        opened = await real(self, lane)
        while not slow.is_set():
            await asyncio.sleep(0.01)
        return opened

    monkeypatch.setattr(Lanes, "_connected", connected)
    with opened(DATA, "cluster") as engine:
        thread = threading.Thread(target=read, args=(engine, 10))
        thread.start()
        wait_until(lambda: engine._dispatcher._crew and len(lanes_of(engine)._opening) == 2)
        for _ in range(3):
            engine.refresh()
        slow.set()
        thread.join()
        wait_until(lambda: len(lanes_of(engine)._lanes) == 2)
    assert not any("asked directly" in message for message in caplog.messages)


def test_workers_that_cannot_be_reached_are_waited_for_once(dask_client, monkeypatch, caplog):
    """And not after each epoch in which the source has changed."""
    caplog.set_level(logging.INFO, "adapters")

    async def never(self: Lanes, lane: Lane) -> bool:
        await asyncio.sleep(60)
        return False

    monkeypatch.setattr(Lanes, "_connected", never)
    monkeypatch.setattr(module, "_OPEN_SECONDS", 1.0)
    with opened(DATA, "cluster") as engine:
        read(engine, 10)
        with within(3):
            for _ in range(4):
                engine.refresh()
                read(engine, 10)
    assert sum("no worker could be asked directly" in message for message in caplog.messages) == 1


def test_a_transform_finds_the_worker_that_it_runs_on(dask_client, no_results):
    with opened(DATA, "cluster", transform=on_a_worker) as engine:
        assert np.concatenate(read(engine, 10)).tolist() == DATA


def on_a_worker(sample: int) -> int:
    import distributed

    assert distributed.get_worker().address
    return sample


@pytest.mark.full
def test_a_worker_that_freezes_costs_seconds(caplog):
    found: list[Any] = []
    with (
        cluster(2, "nannies") as client,
        closing(
            Engine(plan_of(Numbers(4000), 4, transform=Slow(0.01)), settings(client))
        ) as engine,
    ):
        stream = engine.stream(0, 0, False)
        lanes = lanes_of_both(engine, stream, found)
        process = workers_of(client)[0]
        addresses = {pid: address for address, pid in client.run(os.getpid).items()}
        frozen = addresses[process.pid]
        process.send_signal(signal.SIGSTOP)
        try:
            client.run_on_scheduler(forget, address=frozen)
            with within(30):
                found += [stream.next() for _ in range(50)]
            assert frozen not in [lane.address for lane in lanes._lanes]
        finally:
            process.kill()
        stream.close()
    assert np.concatenate(found).tolist() == list(range(4 * len(found)))
    assert sum("lost jobs again" in message for message in caplog.messages) == 1


async def forget(dask_scheduler: Any, address: str) -> None:
    """As its ``worker-ttl`` has it do."""
    await dask_scheduler.remove_worker(address, stimulus_id="test")


@pytest.mark.full
def test_a_worker_that_is_killed_costs_seconds_and_the_next_one_is_asked(caplog):
    found: list[int] = []
    with (
        cluster(2, "nannies") as client,
        closing(
            Engine(plan_of(Numbers(4000), 4, transform=Slow(0.001)), settings(client))
        ) as engine,
    ):
        stream = engine.stream(0, 0, False)
        found += stream.next().tolist()
        wait_until(lambda: len(lanes_of(engine)._lanes) == 2, 60)
        workers_of(client)[0].kill()
        with within(30):
            for _ in range(100):
                found += stream.next().tolist()
        deadline = time.monotonic() + 60
        while len(lanes_of(engine)._lanes) < 2 and time.monotonic() < deadline:
            found += stream.next().tolist()
        assert len(lanes_of(engine)._lanes) == 2
        stream.close()
    assert found == [number % 4000 for number in range(len(found))]
    assert sum("lost jobs again" in message for message in caplog.messages) == 1


@pytest.mark.alone  # Batches come by way of Dask as long as nobody has answered directly.
@pytest.mark.full
def test_a_cluster_with_tls_is_asked_directly_too(no_results):
    distributed = pytest.importorskip("distributed", reason="needs dask.distributed")
    pytest.importorskip("cryptography", reason="Dask makes its keys by cryptography")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "host": "127.0.0.1"}
    options |= {"dashboard_address": None, "worker_dashboard_address": None}
    security = distributed.Security.temporary()
    with (
        distributed.LocalCluster(**options, protocol="tls://", security=security) as made,
        distributed.Client(made, set_as_default=False) as client,
        closing(Engine(plan_of(np.ones((64, 300_000)), 4), settings(client))) as engine,
    ):
        assert sum(batch.sum() for batch in read(engine, 16)) == 64 * 300_000


# --- frames ---


def answers() -> list[Any]:
    batch = {"image": np.arange(90_000, dtype=np.uint8), "words": ["a", "b"], "few": np.ones(3)}
    empty = np.zeros((0, 2))
    return [
        Made.of(Assembled(batch, None, 2), Spent(0.5)),
        Failure.of(SpoiltError(3)),
        Made.of(Assembled(empty, None, 0), Spent(0.1)),
    ]


def test_what_is_sent_is_received_and_lies_aligned_in_memory_of_its_own():
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=frames.send, args=(theirs, 7, answers()))
    with ours, theirs:
        thread.start()
        number, (first, second, third) = frames.receive(ours, aligned_empty, bool)
        thread.join()
    assert number == 7
    opened = first.opened(np.empty)
    assert exact(opened.batch) == exact(answers()[0].opened(np.empty).batch)
    assert opened.skipped == 2
    assert opened.batch["image"].ctypes.data % 64 == 0
    opened.batch["image"][...] = 0
    assert isinstance(second.restore(), SpoiltError)
    assert exact(third.opened(np.empty).batch) == exact(np.zeros((0, 2)))


def test_what_is_cut_off_anywhere_is_an_error():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frames.send(theirs, 1, answers()[2:])
        theirs.shutdown(socket.SHUT_WR)
        sent = b"".join(iter(lambda: ours.recv(1 << 16), b""))
    for length in range(len(sent)):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(sent[:length])
            frames.hang_up(theirs)
            with pytest.raises(EOFError, match="hung up"):
                frames.receive(ours, aligned_empty, bool)
