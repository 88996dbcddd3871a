"""A collection at the wrong moment, Ctrl-C long ago, words in an error, and closing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import closing
from typing import Any, ClassVar

import numpy as np
import pytest

from adapters.engine import Engine, Settings, pool
from adapters.engine.jobs import InterpreterEndsError
from adapters.engine.supply import WorkerState
from adapters.engine.tuning import Choice
from tests.engine.executors import end_idle_workers, opened, read, wait_until
from tests.engine.workloads import Numbers
from tests.plans import plan_of


def test_workers_that_a_collection_gives_back_while_others_are_chosen_are_kept():
    """``Pool.lease`` sorted the list that ``SafeSequence.__del__`` appends to."""
    end_idle_workers()
    with (
        opened(Numbers(4000), "processes-2", transform=abs) as one,
        opened(Numbers(4000), "processes-2", transform=abs) as other,
    ):
        streams = [engine.stream(0, 0, False) for engine in (one, other)]
        for stream in streams:  # Until both processes of each are there.
            stream.next()
        for engine in (one, other):
            wait_until(
                lambda engine=engine: engine.at_full_speed and not engine._dispatcher._running
            )

        one.close()  # Two idle workers; the others are given back in the midst of the choice.
        asked: list[object] = []

        class Serials(set):  # type: ignore[type-arg]
            def __contains__(self, serial: object) -> bool:
                asked.append(serial)
                other.close(wait=False)
                return super().__contains__(serial)

        for worker in pool.shared_pool()._idle:
            worker.opened_plans = Serials(worker.opened_plans)
        with opened(Numbers(40), "processes-2", transform=abs) as third:
            assert len(read(third, 4)) == 4
        assert asked
        for worker in pool.shared_pool()._idle:
            worker.opened_plans = set(worker.opened_plans)
    end_idle_workers()


def test_ctrl_c_in_an_earlier_cell_of_a_notebook_takes_no_patience_away(monkeypatch):
    def slow(sample: int) -> int:
        time.sleep(0.4)
        return sample

    monkeypatch.setattr(sys, "last_type", KeyboardInterrupt, raising=False)
    monkeypatch.setattr("adapters.engine.threads._INTERRUPTED_PATIENCE_SECONDS", 0.0)
    engine = Engine(plan_of(Numbers(8), 4, transform=slow), Settings(1))
    stream = engine.stream(0, 0, False)
    stream.read_ahead()
    time.sleep(0.05)
    engine.close()
    assert not any(each.name.startswith("adapters-worker") for each in threading.enumerate())


def test_closing_without_waiting_returns_at_once():
    going, ends = threading.Event(), threading.Event()

    def held(sample: int) -> int:
        going.set()
        ends.wait(20)
        return sample

    engine = Engine(plan_of(Numbers(8), 4, transform=held), Settings(1))
    stream = engine.stream(0, 0, False)
    stream.read_ahead()
    assert going.wait(20)
    started = time.monotonic()
    engine.close(wait=False)
    assert time.monotonic() - started < 1
    ends.set()
    threads = (each for each in threading.enumerate() if each.name.startswith("adapters-worker"))
    for thread in threads:
        thread.join(20)


def test_a_users_own_error_that_speaks_of_shutdown_is_raised():
    """``"shutdown" in str(error)`` took it for the end of the interpreter."""

    class Refuses(Numbers):
        def __reduce__(self) -> object:
            raise RuntimeError("the shutdown valve is open")

    engine = Engine(plan_of(Refuses(40), 4, transform=abs), Settings(2, True))
    with closing(engine):
        stream = engine.stream(0, 0, False)
        assert stream.next().tolist() == [0, 1, 2, 3]  # Inline, as it can't be sent.
    assert not issubclass(RuntimeError, InterpreterEndsError)


class Watched(Numbers):
    """Notes whether the dispatcher's lock is held while it is pickled."""

    engine: Any = None
    held: ClassVar[list[bool]] = []

    def __reduce__(self) -> Any:
        self.held.append(self.engine is not None and self.engine._dispatcher._lock._is_owned())
        return Watched, (len(self),)


def test_a_plan_that_is_sent_again_is_pickled_without_the_lock_that_answers_need():
    engine = Engine(plan_of(Watched(400), 4, transform=abs), Settings(2, True))
    with closing(engine):
        stream = engine.stream(0, 0, False)
        stream.next()
        Watched.engine = engine
        Watched.held.clear()
        engine.refresh()
        assert Watched.held == [False]
        assert stream.next().tolist() == [4, 5, 6, 7]
    Watched.engine = None


PROGRAM = """
import sys
import numpy as np
{setting}
from adapters.ownership import taken

buffer = np.zeros(5000)
batch = taken(lambda: (buffer,), np.empty)
assert not np.shares_memory(batch[0], buffer)
new = taken(lambda: (np.ones(5000),), np.empty)
assert new[0].sum() == 5000
view = taken(lambda: {{"x": buffer[1:], "y": [np.ones(3)]}}, np.empty)
assert not np.shares_memory(view["x"], buffer)
print("right")
"""


@pytest.mark.parametrize(
    "setting",
    [
        "",
        "import collections, cloudpickle, random; sys.version_info = (3, 14, 0)",
        "sys._is_gil_enabled = lambda: False",
    ],
    ids=["here", "Python 3.14", "without the interpreter lock"],
)
def test_memory_that_is_used_again_is_copied_whatever_counts_references(setting):
    program = PROGRAM.format(setting=setting)
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (found.stdout, found.stderr[-500:]) == ("right\n", "")


# --- workers that can't start ---


def waiting(sample: int) -> Any:
    time.sleep(0.002)
    return sample


def auto_in_processes(batches: int = 4000) -> Engine:
    """An engine whose measurement has just come to an end, in favour of two processes."""
    engine = Engine(plan_of(Numbers(4 * batches), 4, transform=waiting), Settings("auto"))
    engine._choice = Choice("processes", 2, 2)
    engine._losses.seconds = 100.0
    return engine


@pytest.mark.parametrize("executable", ["/nowhere/python", None], ids=["missing", "unknown"])
def test_processes_that_cannot_be_started_leave_the_batches_to_the_trainer(
    executable, monkeypatch, caplog
):
    end_idle_workers()
    monkeypatch.setattr(sys, "executable", executable)
    with closing(auto_in_processes()) as engine:
        stream = engine.stream(0, 0, False)
        found = np.concatenate([stream.next() for _ in range(20)])
        assert found.tolist() == list(range(80))
        assert engine.state is WorkerState.INLINE
    assert sum("processes can't be used" in line for line in caplog.messages) == 1


def test_processes_that_end_at_once_leave_the_batches_to_the_trainer(tmp_path, monkeypatch, caplog):
    end_idle_workers()
    ends = tmp_path / "python"
    ends.write_text("#!/bin/sh\nexit 3\n")
    ends.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(ends))
    with closing(auto_in_processes()) as engine:
        stream, found = engine.stream(0, 0, False), []
        while engine.state is not WorkerState.INLINE and len(found) < 2000:
            found.append(stream.next())
        found += [stream.next() for _ in range(5)]
        assert np.concatenate(found).tolist() == list(range(4 * len(found)))
        assert engine.state is WorkerState.INLINE
    assert sum("processes can't be used" in line for line in caplog.messages) == 1


def test_threads_that_cannot_all_be_started_leave_none_behind(monkeypatch):
    start, started = threading.Thread.start, []

    def some(self: threading.Thread) -> None:
        if self.name.startswith("adapters-worker") and len(started) == 3:
            raise RuntimeError("can't start new thread")
        started.append(self)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", some)
    engine = Engine(plan_of(Numbers(400), 4, transform=abs, thread_safe=True), Settings(8))
    with closing(engine), pytest.raises(RuntimeError, match="can't start new thread"):
        engine.stream(0, 0, False).next()
    for thread in started:
        thread.join(20)
        assert not thread.is_alive()


def test_without_descriptors_of_processes_workers_start_all_the_same(monkeypatch):
    end_idle_workers()
    monkeypatch.delattr(os, "pidfd_open")
    with opened(Numbers(40), "processes-1", transform=abs) as engine:
        assert len(read(engine, 10)) == 10
    end_idle_workers()


# --- what workers take over ---

SHARED = """
import numpy as np
from multiprocessing import shared_memory
from adapters.engine import Engine, Settings
from tests.engine.workloads import Numbers
from tests.plans import plan_of

with_memory = Engine(plan_of(Numbers(40), 4, transform=abs), Settings(1, True))
stream = with_memory.stream(0, 0, False)
stream.next()
stream.close()
with_memory.close()  # Its worker is idle, and knows no resource tracker.
memory = shared_memory.SharedMemory(create=True, size=4096)

class Attached(Numbers):
    def __getitem__(self, number):
        block = shared_memory.SharedMemory(name=self.name)
        block.close()
        return number

data = Attached(40)
data.name = memory.name
engine = Engine(plan_of(data, 4), Settings(1, True))
stream = engine.stream(0, 0, False)
stream.next()
stream.close()
engine.close()
from adapters.engine import pool
pool.shared_pool().close()
again = shared_memory.SharedMemory(name=memory.name)
again.close()
memory.close()
memory.unlink()
print("still there")
"""


def test_shared_memory_of_the_users_outlives_workers_that_attach_to_it():
    found = subprocess.run([sys.executable, "-c", SHARED], capture_output=True, text=True)
    assert found.stdout == "still there\n", found.stderr[-2000:]


FLAGS = """
import numpy as np
from adapters.engine import Engine, Settings
from tests.engine.workloads import Numbers
from tests.plans import plan_of

def debugs(sample):
    return sample + 100 * __debug__

for settings in (Settings(0), Settings(1, True)):
    engine = Engine(plan_of(Numbers(8), 4, transform=debugs), settings)
    print(engine.stream(0, 0, False).next().tolist())
    engine.close()
"""


@pytest.mark.parametrize("flags", [[], ["-O"]], ids=["none", "-O"])
def test_workers_have_the_interpreters_flags(flags):
    program = [sys.executable, *flags, "-c", FLAGS]
    found = subprocess.run(program, capture_output=True, text=True)
    first, second = found.stdout.splitlines()
    assert first == second, found.stderr[-2000:]


ENDING = """
import threading, time
import numpy as np
from adapters import SafeSequence

def trains():
    with SafeSequence(np.arange(4000.0), 4, workers=1, use_multiprocessing=True) as sequence:
        count = 0
        for batch in sequence:
            time.sleep(0.002)
            count += 1
    print(count)

threading.Thread(target=trains).start()
time.sleep(1.0)
"""


def test_a_thread_that_trains_on_after_the_main_thread_gets_all_batches():
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    program = [sys.executable, "-c", ENDING]
    found = subprocess.run(program, capture_output=True, text=True, env=environment)
    assert found.stdout == "1000\n", found.stderr[-2000:]


# --- how many are ahead ---


def test_as_many_are_ahead_as_workers_are_active_and_not_as_may_become_active():
    engine = Engine(plan_of(Numbers(400), 4, transform=abs, thread_safe=True), Settings("auto"))
    engine._choice = Choice("threads", 4, 64)
    with closing(engine):
        stream = engine.stream(0, 0, False)
        stream.next()
        assert engine.window == engine._settings.window(4) == 10
        engine._tuner.active = 12
        assert engine.window == 22


class Slow:
    """A sample takes 2 ms, and a batch of four therefore 8."""

    def __call__(self, sample: Any) -> Any:
        time.sleep(0.002)
        return sample


@pytest.mark.parametrize("workers", [0, 2])
def test_a_smaller_last_batch_is_not_taken_for_a_fast_one(workers):
    """Else several threads that halve the time of JPEGs look slower than none."""
    plan = plan_of(Numbers(9), 4, transform=Slow(), thread_safe=True)
    with closing(Engine(plan, Settings(workers))) as engine:
        stream = engine.stream(0, 0, False)
        for _ in range(9):
            stream.next()
        assert 0.008 <= engine._alone_seconds < 1


def test_a_slow_first_batch_makes_no_batches_long():
    """Long batches are read ahead while the trainer's pace is measured, others computed inline."""
    threads: list[int] = []

    def transform(sample: int) -> int:
        if not threads:
            time.sleep(0.02)
        threads.append(threading.get_ident())
        return sample

    plan = plan_of(Numbers(4000), 4, transform=transform, thread_safe=True)
    with closing(Engine(plan, Settings("auto"))) as engine:
        stream = engine.stream(0, 0, False)
        while engine.undecided:
            stream.next()
        threads.clear()
        threads.append(threading.get_ident())
        for _ in range(30):
            stream.next()
    assert set(threads) == {threading.get_ident()}


def test_processes_start_in_a_folder_that_was_deleted(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with opened(Numbers(40), "processes-2", transform=abs) as engine:
        assert len(read(engine, 4)) == 4


def test_workers_are_given_back_if_the_plan_cannot_be_sent_to_them(monkeypatch):
    end_idle_workers()

    def fail(*_: Any) -> None:
        raise OSError("no")

    monkeypatch.setattr("adapters.engine.process.Worker.send", fail)
    with opened(Numbers(40), "processes-2", transform=abs) as engine, pytest.raises(OSError):
        read(engine, 4)
    monkeypatch.undo()
    end_idle_workers()
