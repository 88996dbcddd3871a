"""Until the first process is there, a thread makes what is waited for, on a copy of the plan."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from adapters.bytecode import generators_used
from adapters.engine import Engine, Settings, standin
from adapters.errors import ClosedError, WorkerError
from tests.engine.crews import end_idle_workers, opened, read, wait_until
from tests.engine.workloads import Numbers
from tests.plans import epoch_of, plan_of

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("new_processes")]
HERE = os.getpid()


def process(sample: Any) -> int:
    """Who makes the sample; unlike ``os.getpid``, not known to be about processes."""
    return psutil.Process().pid


class SlowToOpen:
    """What a framework's import is for a worker process."""

    def __init__(self, function: Any = process) -> None:
        self.function, self.here = function, HERE

    def __call__(self, sample: Any) -> Any:
        return self.function(sample)

    def __setstate__(self, state: dict[str, Any]) -> None:
        if psutil.Process().pid != state["here"]:
            time.sleep(1)
        vars(self).update(state)


def makers(engine: Engine, batches: int) -> list[int]:
    return np.concatenate(read(engine, batches)).tolist()


@pytest.mark.parametrize("count", [1, 2])
def test_the_first_batches_are_made_here_and_the_others_by_processes(count):
    plan = plan_of(Numbers(4_000_000), 1, transform=SlowToOpen())
    engine = Engine(plan, Settings(count, True, 4))
    stream = engine.stream(0, 0, False)
    assert stream.next().tolist() == [HERE]
    wait_until(lambda: stream.next().tolist() != [HERE])
    for _ in range(20):
        assert stream.next().tolist() != [HERE]
    assert not [each for each in threading.enumerate() if each.name.startswith("adapters-worker")]
    stream.close()
    engine.close()


@pytest.mark.parametrize("seconds", [0.0, 0.1], ids=["short", "long"])
@pytest.mark.parametrize("draws", ["nothing", "rng", "global"])
def test_they_are_the_same_batches(draws, seconds):
    def transform(sample: int, rng: Any) -> Any:
        time.sleep(seconds / 4)
        return sample, rng.random()

    def from_global(sample: int) -> Any:
        time.sleep(seconds / 4)
        return sample, random.random(), np.random.random()

    function: Any = {"nothing": lambda sample: sample, "rng": transform}.get(draws, from_global)
    names = {"draws": frozenset({"random", "numpy"})} if draws == "global" else {}
    plan = plan_of(Numbers(160), 4, transform=function, shuffle=True, **names)
    expected = epoch_of(plan)
    np.random.seed(7)
    random.seed(7)
    engine = Engine(plan, Settings(2, True, 4))
    stream = engine.stream(0, 0, False)
    for batch in expected:
        np.testing.assert_equal(stream.next(), batch)
    drawn = np.random.random(), random.random()
    np.random.seed(7)
    random.seed(7)
    assert drawn == (np.random.random(), random.random())
    stream.close()
    engine.close()


class Lazy:
    """Opens what can't be pickled when it is first used."""

    def __init__(self, path: Path) -> None:
        self.path, self.file, self.calls = path, None, 0

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        self.calls += 1
        self.file: Any = self.file or open(self.path, "rb")  # noqa: SIM115
        self.file.seek(index)
        return self.file.read(1)[0]

    def __del__(self) -> None:
        if self.file:
            self.file.close()


def test_what_it_opens_is_not_the_users(tmp_path):
    from adapters import SafeSequence  # Which no worker process needs.

    (tmp_path / "data").write_bytes(bytes(range(64)))
    source = Lazy(tmp_path / "data")
    for _ in range(3):
        end_idle_workers()
        with SafeSequence(source, 4, workers=2, use_multiprocessing=True) as sequence:
            assert np.concatenate(list(sequence)).tolist() == list(range(64))
    assert (source.file, source.calls) == (None, 0)


class Hangs:
    """Until there is a file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __call__(self, sample: int) -> int:
        while not os.path.exists(self.path):
            time.sleep(0.01)
        return sample


def test_one_that_hangs_is_given_up_in_time(tmp_path):
    plan = plan_of(Numbers(8), 1, transform=Hangs(tmp_path / "end"))
    engine = Engine(plan, Settings(2, True, 2, {}, 0.5))
    try:
        with pytest.raises(multiprocessing.TimeoutError):
            read(engine, 1)
    finally:
        (tmp_path / "end").touch()
        engine.close()


def pid(sample: Any) -> int:
    return os.getpid()


def test_what_belongs_to_a_process_is_left_to_processes():
    for function in (pid, lambda sample: pid(sample), SlowToOpen(pid)):
        used = generators_used(function)
        assert used.process
        engine = Engine(plan_of(Numbers(), 4, transform=function), Settings(2, True, 4))
        engine._settings = Settings(2, True, 4, isolated=used.process)
        assert HERE not in makers(engine, 5)
        engine.close()
        end_idle_workers()


def test_a_face_tells_so():
    from adapters import SafeSequence

    with SafeSequence(
        list(range(64)), 4, transform=pid, workers=2, use_multiprocessing=True
    ) as one:
        assert HERE not in np.concatenate(list(one))


def test_a_batch_that_has_killed_its_process_is_not_made_here():
    trainer = HERE

    def deadly(sample: int) -> int:
        if psutil.Process().pid != trainer:
            psutil.Process().kill()
        return sample

    with (
        opened(Numbers(400_000), "processes-1", transform=SlowToOpen(deadly)) as engine,
        pytest.raises(WorkerError, match="SIGKILL"),
    ):
        read(engine, 100_000)


def test_processes_that_are_kept_are_waited_for():
    for first in (True, False):
        with opened(Numbers(4_000), "processes-1", transform=process) as engine:
            stream = engine.stream(0, 0, False)
            assert (stream.next()[0] == HERE) == first
            wait_until(lambda stream=stream: stream.next()[0] != HERE)
            stream.close()


class OnlyThere:
    def __init__(self) -> None:
        self.here = HERE

    def __call__(self, sample: int) -> int:
        return process(sample)

    def __setstate__(self, state: Any) -> None:
        if psutil.Process().pid == state["here"]:
            raise RuntimeError("not here")


def test_a_plan_that_only_a_process_can_open_is_waited_for():
    with opened(Numbers(), "processes-1", transform=OnlyThere()) as engine:
        assert HERE not in makers(engine, 4)


def test_an_error_is_raised_as_it_was_and_the_next_batch_comes():
    def fails(sample: int) -> int:
        if sample == 5:
            raise KeyError("five")
        return sample

    with opened(Numbers(16), "processes-2", transform=SlowToOpen(fails)) as engine:
        stream = engine.stream(0, 0, False)
        assert stream.next().tolist() == [0, 1, 2, 3]
        with pytest.raises(KeyError, match="five"):
            stream.next()
        stream.close()


def test_no_variable_of_the_processes_is_set_here():
    settings = Settings(1, True, 4, {"ADAPTERS_TEST_OF_PROCESSES": "1"})
    engine = Engine(plan_of(Numbers(), 4, transform=SlowToOpen()), settings)
    assert makers(engine, 1) == [HERE] * 4
    assert "ADAPTERS_TEST_OF_PROCESSES" not in os.environ
    engine.close()


def test_close_while_it_computes_leaves_nothing():
    engine = Engine(
        plan_of(Numbers(), 4, transform=SlowToOpen(lambda sample: time.sleep(0.1) or sample)),
        Settings(1, True, 4),
    )
    problems: list[BaseException] = []

    def reads() -> None:
        try:
            read(engine, 1)
        except BaseException as problem:
            problems.append(problem)

    reader = threading.Thread(target=reads)
    reader.start()
    wait_until(lambda: [t for t in threading.enumerate() if t.name == "adapters-worker_0"])
    engine.close()
    reader.join(10)
    assert not reader.is_alive()
    assert [type(problem) for problem in problems] in ([], [ClosedError])


SCRIPT = """
import collections, sys
import numpy as np
import tests.engine.test_standin as helpers
from adapters.engine import Engine, Settings
from tests.plans import plan_of

SCALE = 1
Pair = collections.namedtuple("Pair", "one other")

class Five(Exception):
    pass

class Source:
    table = {}

    def __len__(self):
        return 400_000

    def __getitem__(self, number):
        if number == 5:
            raise Five(number)
        self.table[number] = True
        return np.float32(number * SCALE)

def first(transform=None, step=0, source=Source()):
    engine = Engine(plan_of(source, 1, batch_transform=transform), Settings(1, True, 2))
    stream = engine.stream(0, step, False)
    try:
        return stream.next()
    finally:
        stream.close()
        engine.close()
        helpers.end_idle_workers()

before = dict(vars(Source))
first()
assert all(vars(Source)[name] is value for name, value in before.items()) and not Source.table
assert type(first(lambda batch: Pair(batch, batch))) is Pair
assert type(first(lambda batch: {"a": [Pair(batch, batch)]})["a"][0]) is Pair
try:
    first(step=5)
except Five:
    SCALE = 10
assert Source()[2] == 20
print("right")
"""


def test_the_classes_of_a_script_stay_as_they_are_and_batches_have_them():
    told = subprocess.check_output([sys.executable, "-c", SCRIPT], text=True, timeout=100)
    assert told == "right\n"


@pytest.mark.parametrize("crew", ["processes-1", "processes-2"])
def test_it_has_the_source_as_it_is_now(crew):
    transform = SlowToOpen(lambda sample: (sample, stage["epoch"]))
    stage = {"epoch": 0}
    with opened(Numbers(40), crew, transform=transform) as engine:
        for epoch in range(4):
            stage["epoch"] = epoch
            engine.refresh()
            assert read(engine, 1)[0][1].tolist() == [epoch] * 4


def test_closing_and_giving_up_dont_wait_for_what_is_slow_to_open():
    class Slow:
        def __getstate__(self) -> Any:
            return {"something": 1}

        def __setstate__(self, state: Any) -> None:
            time.sleep(3)

        def __call__(self, sample: int) -> int:
            return sample

    engine = Engine(plan_of(Numbers(8), 1, transform=Slow()), Settings(1, True, 2))
    stream, told = engine.stream(0, 0, False), []

    def reads() -> None:
        try:
            stream.next()
        except ClosedError:
            told.append(time.monotonic())

    reader = threading.Thread(target=reads)
    reader.start()
    wait_until(lambda: [t for t in threading.enumerate() if t.name == "adapters-worker_0"])
    started = time.monotonic()
    engine.close()
    reader.join(10)
    assert told[0] - started < 2
    wait_until(lambda: not [t for t in threading.enumerate() if t.name == "adapters-worker_0"])


def test_ctrl_c_while_a_batch_is_handed_over_loses_none(monkeypatch):
    submit = standin.StandIn.submit

    def interrupted(*_: Any) -> bool:
        monkeypatch.setattr(standin.StandIn, "submit", submit)
        raise KeyboardInterrupt

    monkeypatch.setattr(standin.StandIn, "submit", interrupted)
    engine = Engine(plan_of(Numbers(16), 4), Settings(1, True, 4))
    stream = engine.stream(0, 0, False)
    with pytest.raises(KeyboardInterrupt):
        stream.next()
    assert not engine._dispatcher._running
    assert np.concatenate([stream.next() for _ in range(4)]).tolist() == list(range(16))
    stream.close()
    engine.close()
