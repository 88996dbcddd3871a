"""A collection at the wrong moment, Ctrl-C long ago, words in an error, and closing."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import closing
from typing import Any, ClassVar

import pytest

from adapters.engine import Engine, Settings, pool
from adapters.engine.jobs import InterpreterEndsError
from tests.engine.crews import end_idle_workers, opened, read, wait_until
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
            wait_until(lambda engine=engine: engine.settled and not engine._dispatcher._running)

        one.close()  # Two idle workers; the others are given back in the midst of the choice.
        asked: list[object] = []

        class Serials(set):  # type: ignore[type-arg]
            def __contains__(self, serial: object) -> bool:
                asked.append(serial)
                other.close(wait=False)
                return super().__contains__(serial)

        for worker in pool.kept()._idle:
            worker.serials = Serials(worker.serials)
        with opened(Numbers(40), "processes-2", transform=abs) as third:
            assert len(read(third, 4)) == 4
        assert asked
        for worker in pool.kept()._idle:
            worker.serials = set(worker.serials)
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
batch, _ = taken(lambda: (buffer,), np.empty)
assert not np.shares_memory(batch[0], buffer)
new, _ = taken(lambda: (np.ones(5000),), np.empty)
assert new[0].sum() == 5000
view, _ = taken(lambda: {{"x": buffer[1:], "y": [np.ones(3)]}}, np.empty)
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
