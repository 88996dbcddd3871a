"""Worker processes that are kept: started once, lent in turn, gone when nobody wants them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from adapters.engine import Engine, Settings, pool, processes
from adapters.errors import ClosedError
from tests.engine.executors import end_idle_workers, opened, read, wait_until
from tests.engine.workloads import Numbers
from tests.plans import epoch_of, plan_of

pytestmark = pytest.mark.timeout(120)


def pid(sample: Any) -> int:
    return os.getpid()


def pids_of(engine: Engine, count: int = 5) -> set[int]:
    return set(np.concatenate(read(engine, count)).tolist())


# --- kept ---


def test_the_next_engine_gets_the_same_processes():
    end_idle_workers()
    with opened(Numbers(400), "processes-1", transform=pid) as engine:
        first = pids_of(engine)
    with opened(Numbers(400), "processes-1", transform=pid) as engine:
        assert pids_of(engine) == first


def test_an_engine_at_rest_lends_its_processes_and_goes_on():
    end_idle_workers()
    with (
        opened(Numbers(400), "processes-1", transform=pid) as one,
        opened(Numbers(400), "processes-1", transform=pid) as other,
    ):
        first = pids_of(one)
        one.pause()
        wait_until(lambda: pool.shared_pool().idle)
        assert pids_of(other) == first
        other.pause()
        wait_until(lambda: pool.shared_pool().idle)
        assert pids_of(one) == first


def test_idle_processes_end_by_themselves(monkeypatch):
    monkeypatch.setattr(pool, "_LINGER_SECONDS", 0.05)
    with opened(Numbers(), "processes-2") as engine:
        read(engine, 2)
    wait_until(lambda: pool.shared_pool()._thread is None, 10)


def test_a_process_of_another_environment_is_not_used_again(monkeypatch):
    with opened(Numbers(), "processes-1", transform=pid) as engine:
        first = pids_of(engine)
    monkeypatch.setenv("ADAPTERS_TEST_ENVIRONMENT", "changed")
    with opened(Numbers(), "processes-1", transform=pid) as engine:
        assert pids_of(engine).isdisjoint(first)


def test_a_module_that_was_edited_is_imported_anew(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "edited_between_two_fits.py"
    seen = []
    for text in ("first", "second edition"):
        module.write_text(f"def text(sample):\n    return {len(text)}\n")
        sys.modules.pop(module.stem, None)
        transform = __import__(module.stem).text
        with opened(Numbers(), "processes-1", transform=transform) as engine:
            seen.append(int(read(engine, 1)[0][0]))
    sys.modules.pop(module.stem, None)
    assert seen == [len("first"), len("second edition")]


def test_a_process_looks_for_files_where_the_trainer_does_now(tmp_path, monkeypatch):
    with opened(Numbers(), "processes-1") as engine:
        read(engine, 1)
    monkeypatch.chdir(tmp_path)
    Path("here").write_text("x")
    with opened(Numbers(), "processes-1", transform=lambda _: os.path.exists("here")) as engine:
        assert read(engine, 1)[0].all()


def test_a_process_that_two_engines_have_looks_where_each_of_them_did(tmp_path, monkeypatch):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    where = {"transform": lambda _: os.path.basename(os.getcwd())}
    monkeypatch.chdir(tmp_path / "one")
    with opened(Numbers(400), "processes-1", **where) as engine:
        assert set(np.concatenate(read(engine, 2))) == {"one"}
        engine.pause()
        wait_until(lambda: pool.shared_pool().idle)
        monkeypatch.chdir(tmp_path / "other")
        with opened(Numbers(400), "processes-1", **where) as other:
            assert set(np.concatenate(read(other, 2))) == {"other"}
        assert set(np.concatenate(read(engine, 2))) == {"one"}


def test_an_idle_process_that_is_killed_is_not_lent():
    with opened(Numbers(), "processes-1", transform=pid) as engine:
        (victim,) = pids_of(engine)
    os.kill(victim, signal.SIGKILL)
    with opened(Numbers(400), "processes-1", transform=pid) as engine:
        assert victim not in pids_of(engine)


def test_a_death_that_is_noticed_late_costs_no_batch(monkeypatch):
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


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_batch_that_a_forked_process_holds_stays_what_it_was():
    with opened(Numbers(4000), "processes-1") as engine:
        stream = engine.stream(0, 0, False)
        batch, (reading, writing) = stream.next(), os.pipe()
        expected = batch.tolist()
        if not (child := os.fork()):
            os.read(reading, 1)
            os._exit(0 if batch.tolist() == expected else 1)
        del batch
        for _ in range(40):
            stream.next()
        os.write(writing, b".")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        stream.close()
    os.close(reading)
    os.close(writing)


# --- windows of any depth ---


class Mixed:
    """Samples of sizes from nothing to 40 kB, each told by its number."""

    def __len__(self) -> int:
        return 6000

    def __getitem__(self, number: int) -> Any:
        return np.full(number * 7919 % 50 * (100 if number % 97 == 0 else 1), number)


# Other windows, and other numbers of workers, are those of test_deep_windows.
@pytest.mark.parametrize(("executor", "window"), [("processes-1", 130), ("processes-2", 2000)])
def test_no_batch_is_another_one_however_deep_the_window_is(executor, window):
    with opened(Mixed(), executor, 1, queue=window) as engine:
        stream = engine.stream(0, 0, False)
        for number in range(6000):
            np.testing.assert_array_equal(stream.next()[0], Mixed()[number])
        stream.close()


SCARCE = """
import logging, resource, sys, time
import numpy as np
logging.basicConfig(stream=sys.stdout, format="%(message)s")
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
from tests.engine.executors import opened
from tests.engine.workloads import Numbers
depth, batches = map(int, sys.argv[1:])
with opened(Numbers(4 * batches), "processes-2", 4, queue=depth) as engine:
    for epoch in range(2):
        stream = engine.stream(epoch, 0, False)
        held = [stream.next()]
        time.sleep(0 if epoch else 0.5)  # Whatever was asked for is ready by then.
        held += [stream.next() for _ in range(batches - 1)]
        stream.close()
        assert np.concatenate(held).tolist() == list(range(4 * batches))
print("right")
"""


@pytest.mark.parametrize(
    ("depth", "batches", "times"), [(2, 100, 0), (64, 500, 1), (1000, 2500, 1), (20000, 2500, 1)]
)
def test_a_window_is_as_deep_as_the_descriptors_allow_and_that_is_said_once(depth, batches, times):
    finished = subprocess.run(
        [sys.executable, "-c", SCARCE, str(depth), str(batches)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    *said, last = finished.stdout.splitlines()
    assert (last, finished.returncode) == ("right", 0), finished.stderr
    assert len(said) == times
    assert all(f", not {depth}: " in each for each in said)
    assert all("raise the limit by `ulimit -n`" in each for each in said)


# --- deaths, closes, clocks ---


class Heavy:
    """A batch of it is made in parts; the first parts wait until they have been killed."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __call__(self, sample: int) -> int:
        if sample >= 16 and not os.path.exists(self.path):
            Path(f"{self.path}.{os.getpid()}").touch()
            time.sleep(60)
        time.sleep(0.01)
        return sample


def test_workers_killed_at_once_over_parts_of_one_batch_count_as_one_try_each(tmp_path):
    heavy = Heavy(tmp_path / "gate")
    plan = plan_of(Numbers(64), 16, transform=heavy)
    engine = Engine(plan, Settings(4, True, 1))
    monkey = pytest.MonkeyPatch()
    monkey.setattr(processes, "usable_cpus", lambda: 4)
    try:
        stream = engine.stream(0, 0, False)
        assert stream.next().tolist() == list(range(16))
        wait_until(lambda: engine._dispatcher._executor.ready == 4)

        def kill() -> None:
            wait_until(lambda: len(list(tmp_path.iterdir())) >= 4)
            victims = [int(path.suffix[1:]) for path in tmp_path.iterdir()]
            Path(heavy.path).touch()
            for victim in victims:
                os.kill(victim, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        rest = [stream.next() for _ in range(3)]
        killer.join()
        assert np.concatenate(rest).tolist() == list(range(16, 64))
        stream.close()
    finally:
        monkey.undo()
        engine.close()


def read_for_ever(stream: Any) -> None:
    while True:
        stream.next()


def test_one_that_closes_while_another_reads_gives_it_a_closed_error():
    for _ in range(30):
        engine = Engine(plan_of(Numbers(100_000), 1), Settings(2, True, 4))
        stream = engine.stream(0, 0, False)
        stream.next()
        closer = threading.Thread(target=lambda engine=engine: engine.close())
        closer.start()
        with pytest.raises(ClosedError):
            read_for_ever(stream)
        closer.join()


class SlowToOpen:
    """Takes its time in one of the worker processes that open it: the one that comes second."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __call__(self, sample: int) -> int:
        time.sleep(0.02)
        return sample

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            time.sleep(3)


def test_no_batch_is_late_because_one_process_is_slow_to_start(tmp_path):
    plan = plan_of(Numbers(200), 2, transform=SlowToOpen(tmp_path / "first"))
    engine = Engine(plan, Settings(2, True, 4, timeout_seconds=1.5))
    stream = engine.stream(0, 0, False)
    assert np.concatenate([stream.next() for _ in range(100)]).tolist() == list(range(200))
    stream.close()
    engine.close()


def test_jobs_under_way_have_the_source_as_it_was_when_they_were_asked_for():
    with opened(Numbers(4000), "processes-2", queue=20) as engine:
        one, other = engine.stream(0, 0, False), engine.stream(0, 0, False)
        for step in range(300):
            first, second = one.next(), other.next()
            assert first.tolist() == second.tolist() == [4 * step + i for i in range(4)]
            if step % 10 == 0:
                engine.refresh()
        one.close()
        other.close()


# --- not started ---


def test_auto_starts_no_processes_that_cannot_pay_for_their_start():
    end_idle_workers()
    plan = plan_of(Numbers(56), 8, transform=spin)
    engine = Engine(plan, Settings("auto"))
    for epoch in range(3):
        stream = engine.stream(epoch, 0, False)
        batches = [stream.next() for _ in range(7)]
        assert len(batches) == len(epoch_of(plan))
        stream.close()
    assert not pool.shared_pool()._workers
    engine.close()


def spin(sample: int) -> int:
    started = time.thread_time()
    while time.thread_time() - started < 0.0006:
        pass
    return sample
