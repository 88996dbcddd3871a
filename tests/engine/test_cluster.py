"""Workers of a Dask cluster: what is theirs alone; what holds for all crews is in test_contract."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import signal
import threading
import weakref
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from adapters.batch.key import BatchKey
from adapters.batch.plan import Assembled
from adapters.clock import Spent
from adapters.engine import CLUSTER, Engine, Settings
from adapters.engine.shipment import Made, Shipment
from adapters.engine.traffic import Traffic
from adapters.errors import ClosedError, WorkerError
from tests.batches import exact
from tests.clusters import cluster, workers_of
from tests.engine.crews import opened, read, wait_until, within
from tests.engine.workloads import Dying, Gate, Numbers, Slow, SpoiltError, Tally, count
from tests.forking import forks
from tests.plans import epoch_of, notes_of, plan_of

DATA = list(range(40))


@pytest.fixture(scope="module")
def one_worker() -> Any:
    """A cluster of one worker, which is replaced when it dies."""
    with cluster(1, "nannies") as client:
        yield client


def settings(client: Any, queue: int = 4) -> Settings:
    return Settings(1, max_queue_size=queue, kind=CLUSTER, cluster=client)


def test_who_they_are_is_said(dask_client, caplog):
    caplog.set_level(logging.INFO, "adapters")
    engine = Engine(plan_of(Numbers(400), 4), Settings(2, kind=CLUSTER, cluster=dask_client))
    assert engine.description == "2 workers of a Dask cluster"
    read(engine, 40)
    assert "workers: 2 workers of a Dask cluster, 2 threads" in caplog.messages
    begin = "2 workers of a Dask cluster: a batch of "
    assert engine.description.startswith(begin)
    assert engine.description.count("is the limit") == 1
    engine.close()


def spoil(sample: int) -> int:
    if sample == 9:
        raise SpoiltError(sample)
    return sample


def test_an_exception_arrives_as_its_own_type_and_reading_goes_on(dask_client):
    with opened(DATA, "cluster", transform=spoil) as engine:
        stream = engine.stream(0, 0, False)
        assert [stream.next().tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(SpoiltError) as caught:
            stream.next()
        stream.close()
        assert read(engine, 1, step=3)[0].tolist() == [12, 13, 14, 15]
    assert "sample 9" in notes_of(caught.value)
    assert "Traceback in worker process" in notes_of(caught.value)


def test_no_more_is_under_way_than_the_queue_is_long(dask_client, tmp_path):
    tally = Tally(tmp_path / "calls")
    with opened(Numbers(400), "cluster", queue=3, transform=tally) as engine:
        stream = engine.stream(0, 0, False)
        stream.next()
        wait_until(lambda: tally.calls >= 16)
        for _ in range(20):
            stream.next()
            assert tally.calls <= 4 * (21 + 3)
        stream.close()


def test_a_batch_is_never_computed_in_parts(dask_client, tmp_path):
    """However long it takes, and though one was computed here before."""
    with opened(DATA, "cluster", transform=Slow(0.02)) as engine:
        engine.compute(BatchKey(0, 0))
        assert np.concatenate(read(engine, 10)).tolist() == DATA


def test_the_plan_is_sent_once(dask_client, tmp_path):
    data = Opened(str(Tally(tmp_path / "opened").path), 400)
    with opened(data, "cluster") as engine:
        read(engine, 100)
    assert Tally(tmp_path / "opened").calls <= 3  # Of two workers in one process, and on its way.


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


def test_closing_leaves_the_client_open_and_nothing_on_the_cluster(dask_client, tmp_path):
    gate = Gate(tmp_path / "gate")
    engine = Engine(plan_of(Numbers(400), 4, transform=gate), settings(dask_client))
    stream = engine.stream(0, 0, False)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            stream.next()
        except ClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: gate.arrived.calls)
    with within(10):
        engine.close()
        thread.join()
    gate.open()
    assert len(errors) == 1
    assert dask_client.submit(abs, -3, pure=False).result() == 3
    wait_until(lambda: not any(dask_client.has_what().values()))


@forks
def test_a_forked_process_is_told_to_make_a_client_of_its_own(dask_client):
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


def test_an_engine_that_is_let_go_ends_its_thread(dask_client):
    engine = Engine(plan_of(Numbers(40), 4), settings(dask_client))
    stream = engine.stream(0, 0, False)
    stream.next()
    gone = weakref.ref(engine)
    weakref.finalize(stream, engine.close)
    del stream, engine
    gc.collect()
    wait_until(lambda: not any(t.name == "adapters-cluster" for t in threading.enumerate()))
    del gone


class Unpicklable(Numbers):
    def __reduce__(self) -> Any:
        raise TypeError("stays here")


def test_what_cannot_be_pickled_is_told_at_once(dask_client):
    with (
        opened(Unpicklable(), "cluster") as engine,
        pytest.raises(TypeError, match="stays here") as caught,
    ):
        read(engine, 1)
    assert "must be picklable (by cloudpickle) to be sent to a cluster" in notes_of(caught.value)


def fail_to_open() -> Any:
    raise OSError("not on this machine")


class Unopenable(Numbers):
    def __reduce__(self) -> Any:
        return fail_to_open, ()


def test_what_cannot_be_opened_there_is_told(dask_client):
    with (
        opened(Unopenable(), "cluster") as engine,
        pytest.raises(OSError, match="not on this machine") as caught,
    ):
        read(engine, 1)
    assert "must be installed there, or be sent by Client.upload_file" in notes_of(caught.value)


# --- deaths ---


@pytest.mark.parametrize("held", [10, 6 << 20], ids=["small", "scattered"])
def test_a_killed_worker_costs_no_sample(one_worker, tmp_path, held):
    """Though it was the only one that had the plan."""
    data = Held(40, held)
    transform = Dying(tmp_path / "deaths", "kill", 17, times=1)
    with opened_on(one_worker, data, transform=transform) as engine:
        assert np.concatenate(read(engine, 10)).tolist() == DATA
    assert transform.deaths.calls == 1


class Held(Numbers):
    """With much that must be sent."""

    def __init__(self, size: int, held: int) -> None:
        super().__init__(size)
        self.held = np.ones(held, np.uint8)


def opened_on(client: Any, data: Any, queue: int = 4, **arguments: Any) -> Any:
    return closing(Engine(plan_of(data, 4, **arguments), settings(client, queue)))


@pytest.mark.full
def test_a_batch_that_kills_every_worker_is_given_up(tmp_path):
    transform = Dying(tmp_path / "deaths", "kill", 17)
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


@pytest.mark.full
def test_workers_that_are_killed_from_outside_cost_no_sample():
    found: list[int] = []
    with (
        cluster(2, "nannies") as client,
        opened_on(client, Numbers(1600), transform=Slow(0.0005)) as engine,
    ):
        stream = engine.stream(0, 0, False)
        for number in range(400):
            if number in (50, 200):
                workers_of(client)[0].kill()
            found += stream.next().tolist()
        stream.close()
    assert found == list(range(1600))


def test_a_client_that_was_closed_is_an_error_and_no_hang(tmp_path, dask_client):
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


# --- what crosses the wire ---


def test_a_batch_is_sent_as_it_lies_in_memory_and_opened_aligned():
    batch = {"image": np.arange(60, dtype=np.uint8).reshape(3, 20)[:, ::2], "words": ["a", "b"]}
    made = Made.of(Assembled(batch, None, 2), Spent(0.5))
    assert len(made._content) < 300
    assert made.size_bytes == len(made._content) + 30
    again = made.opened(np.empty)
    assert exact(again.batch) == exact(batch)
    assert (again.layout, again.skipped) == (None, 2)
    again.batch["image"][...] = 0
    assert batch["image"].any()


@pytest.mark.parametrize("protocol", [4, 5])
def test_what_crosses_goes_by_the_protocol_that_dask_has_with_whoever_asks(protocol):
    """With the scheduler, that may be the fourth, which holds no arrays apart."""
    data = np.arange(4000)
    made = Made.of(Assembled(data, None, 1), Spent(0.5))
    again = pickle.loads(pickle.dumps(made, protocol)).opened(np.empty)
    assert exact(again.batch) == exact(data)
    shipment = pickle.loads(pickle.dumps(Shipment.of(plan_of(data, 1000)), protocol))
    assert exact(epoch_of(shipment.plan())[1]) == exact(data[1000:2000])


def test_a_shipment_shares_the_arrays_of_its_plan():
    data = np.arange(4000)
    shipment = Shipment.of(plan_of(data, 1000))
    assert shipment.size_bytes > data.nbytes
    assert len(shipment._content) < 3000
    assert [exact(batch) for batch in epoch_of(shipment.plan())] == [
        exact(data[start : start + 1000]) for start in range(0, 4000, 1000)
    ]


@pytest.mark.parametrize(
    ("made", "brought", "limit", "worth"),
    [
        (0.1, 0.01, "the work", True),
        (0.1, 0.04, "the network", True),
        (0.001, 0.01, "the network", False),
    ],
)
def test_the_limit_is_told_and_whether_it_is_worth_it(made, brought, limit, worth, monkeypatch):
    monkeypatch.setattr("loky.cpu_count", lambda: 2)
    traffic = Traffic()
    assert traffic.finding == ""
    traffic.workers, traffic.batches, traffic.bytes = 4, 100, 100 * 9_600_000
    traffic.made_seconds, traffic.brought_seconds = 100 * made, 100 * brought
    assert f": {limit} is the limit" in traffic.finding
    assert ("it isn't worth it: the 2 CPUs here" in traffic.finding) != worth
