"""What worker processes are sent: all that can be, once, by reference where that is possible."""

from __future__ import annotations

import importlib.util
import os
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.engine import usable_cpus
from adapters.engine.serialization import SerializedPlan, load_plan
from adapters.errors import FileChangedError
from tests.engine.executors import end_idle_workers, opened, read, streamed, wait_until, workers
from tests.engine.scripts import ended, script
from tests.engine.workloads import Numbers
from tests.test_failure import Keyword


def test_ctrl_c_while_memory_is_freed_keeps_no_worker(monkeypatch):
    own = SerializedPlan.close

    def close(plan: SerializedPlan) -> None:
        monkeypatch.setattr(SerializedPlan, "close", own)
        own(plan)
        raise KeyboardInterrupt

    with opened(Numbers(8), "processes-1") as engine:
        read(engine, 1)
        monkeypatch.setattr(SerializedPlan, "close", close)
        with pytest.raises(KeyboardInterrupt):
            engine.close()
        assert workers() == []


def test_arguments_of_a_class_that_only_the_trainer_finds(tmp_path, monkeypatch, new_processes):
    (tmp_path / "of_arguments.py").write_text("class Argument(str):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    argument = importlib.import_module("of_arguments").Argument
    monkeypatch.setattr(sys, "argv", [sys.argv[0], argument("--epochs")])
    with opened(Numbers(4), "processes-1") as engine:
        assert read(engine, 1)[0].tolist() == [0, 1, 2, 3]


def test_memoryviews_stay_arrays():
    with opened([memoryview(bytes([n, 1])) for n in range(4)], "processes-1") as engine:
        assert read(engine, 1)[0].tolist() == [[0, 1], [1, 1], [2, 1], [3, 1]]


def test_module_loaded_by_its_path(tmp_path, monkeypatch, new_processes):
    (tmp_path / "by_path.py").write_text("OFFSET = 10\ndef add(number): return number + OFFSET\n")
    spec = importlib.util.spec_from_file_location("config_by_path", tmp_path / "by_path.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "config_by_path", module)
    spec.loader.exec_module(module)
    with opened(Numbers(4), "processes-1", transform=module.add) as engine:
        assert read(engine, 1)[0].tolist() == [10, 11, 12, 13]


def test_classes_stay_as_they_are_in_the_trainer(new_processes):
    class Sample:
        __slots__ = ("number",)
        state = "sent"

    class Refused(Exception):
        __slots__ = ("number",)
        state = "sent"

    def transform(number: int) -> Sample:
        made = Sample() if number < 4 else Refused()
        made.number = number
        if number < 4:
            return made
        raise made

    with opened(Numbers(8), "processes-1", transform=transform) as engine:
        read(engine, 1)
        Sample.state = Refused.state = "changed"
        assert [(each.state, each.number) for each in read(engine, 1)[0]][3] == ("changed", 3)
        with pytest.raises(Refused) as caught:
            read(engine, 2)
        assert (caught.value.state, caught.value.number, Sample.state) == ("changed", 4, "changed")


def test_exception_in_a_data_set_arrives():
    """Though its constructor takes something else than ``args``."""
    arrived = sent({"error": Keyword(3, why="three")})["error"]
    assert (type(arrived), str(arrived), arrived.why) == (Keyword, "3: three", "three")


class Unopened(Numbers):
    """Pickle asks the new object for ``__setstate__`` before it has any attribute."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.size, name)


def test_error_of_an_object_that_is_not_opened(new_processes):
    with opened(Unopened(4), "processes-1") as engine, pytest.raises(RecursionError) as caught:
        read(engine, 1)
    assert "a worker process could not open what was pickled" in caught.value.__notes__[0]


class Removing:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 2

    def __getitem__(self, number: int) -> int:
        return int(self.path.read_text())

    def __del__(self) -> None:
        self.path.unlink()


class RemovingList(Removing, list):
    pass


@pytest.mark.parametrize("kind", [Removing, RemovingList])
def test_copies_are_not_finalized(kind, tmp_path: Path, new_processes):
    path = tmp_path / "file"
    path.write_text("7")
    data = kind(path)
    for _ in range(2):  # In the same worker.
        with opened(data, "processes-1", 2) as engine:
            assert read(engine, 1)[0].tolist() == [7, 7]
    end_idle_workers()
    assert path.exists()


SCRIPT = """
from adapters.engine import Engine, Settings
from tests.plans import plan_of

print("main")

class Sample:
    def __init__(self, number):
        self.number = number

class Refused(Exception):
    def __init__(self, number, *, why):
        super().__init__(f"{number}: {why}")

def transform(sample):
    if sample.number == 4:
        raise Refused(sample.number, why="four")
    return sample.number + OFFSET

OFFSET = 10
data = [Sample(number) for number in range(6)]
engine = Engine(plan_of(data, 2, transform=transform), Settings(2, True, 4))
stream = engine.stream(0, 0, False)
print(stream.next(), stream.next())
try:
    stream.next()
except Refused as error:
    print(error)
engine.close()
"""


def test_script_needs_no_guard(tmp_path: Path):
    (tmp_path / "script.py").write_text(SCRIPT)
    finished = ended("-W", "error", "script.py", cwd=tmp_path)
    assert (finished.stdout, finished.stderr) == ("main\n[10 11] [12 13]\n4: four\n", "")


# --- of each kind ---


def sent(content: Any) -> Any:
    """The content as a worker has it, while the serialized is open and after."""
    serialized = SerializedPlan(content)
    try:
        return load_plan(serialized.name)[0]
    finally:
        serialized.close()


def test_receiver_cannot_write_into_the_file_that_is_mapped(tmp_path: Path):
    np.save(tmp_path / "rows.npy", np.zeros(8))
    sent(np.load(tmp_path / "rows.npy", mmap_mode="r+"))[:] = 5
    assert np.load(tmp_path / "rows.npy").sum() == 0


@pytest.mark.parametrize("kind", [threading.Lock, threading.RLock, threading.Condition])
def test_lock_arrives_as_one_that_nobody_holds(kind):
    lock = kind()
    with lock:
        other = sent([lock, lock])
    assert type(other[0]) is type(lock)
    assert other[0] is other[1] is not lock
    with other[0]:
        pass


def test_condition_arrives_without_those_who_wait():
    condition, waiting = threading.Condition(), threading.Event()

    def wait() -> None:
        with condition:
            waiting.set()
            condition.wait(20)

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(20)
    with condition:  # Not before the thread waits.
        other = sent(condition)
        condition.notify_all()
    with other:
        other.notify_all()
    thread.join(20)


def test_what_consists_of_locks_keeps_its_state():
    event, line = threading.Event(), queue.Queue()
    event.set()
    line.put("first")
    event, line, semaphore = sent((event, line, threading.Semaphore(2)))
    assert (event.is_set(), line.get(timeout=20)) == (True, "first")
    assert [semaphore.acquire(blocking=False) for _ in range(3)] == [True, True, False]


def test_trainer_that_hides_its_memory_gets_an_error_with_a_remedy():
    text = """
import ctypes
for call in ((24, 19), (4, 0)):  # Without CAP_SYS_PTRACE, for root; PR_SET_DUMPABLE.
    ctypes.CDLL(None).prctl(*call, 0, 0, 0)
with opened(Numbers(4), "processes-1") as engine:
    read(engine, 1)
"""
    with script(text) as running:
        code, _, errors = running.finish(100)
    assert (code, "prctl(PR_SET_DUMPABLE, 0), or use threads" in errors) == (1, True)


def test_what_belongs_to_a_thread_is_not_sent():
    local = threading.local()
    local.file = open
    assert not hasattr(sent(local), "file")


PROCESSES = "processes-2"
MEGABYTE = 2**20
BIG = 60 * MEGABYTE


def own_megabytes(pid: int) -> float:
    """Memory of a process that is no part of any file: what it has copied, or made."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
    return sizes["Anonymous"] / 1024


def touch(sample: Any) -> int:
    """Read the sample, and say who did."""
    np.asarray(sample).sum()
    return os.getpid()


def workers_megabytes(data: Any, transform: Callable[..., Any]) -> list[float]:
    """What each of two new workers has for itself, after both have read all over ``data``."""
    # One that was kept may have imported a framework for somebody before.
    end_idle_workers()
    with streamed(data, PROCESSES, 16, shuffle=True, transform=transform) as stream:
        pids: set[int] = set()
        wait_until(lambda: pids.update(stream.next().tolist()) or len(pids) == 2)
        return [own_megabytes(pid) for pid in pids]


ROWS = 3200


def columns() -> Any:
    half = np.ones((ROWS, BIG // 2 // ROWS // 8))
    return (half, {"more": half + 1}), lambda sample: touch(sample[0])


def looked_up() -> Any:
    table = np.ones(BIG // 8)
    return Numbers(ROWS), lambda sample: touch(table[sample::1000])


@pytest.mark.skipif(usable_cpus() < 2, reason="one CPU has one process that computes")
@pytest.mark.parametrize("make", [columns, looked_up], ids=["arrays", "a transform's array"])
def test_arrays_are_shared_not_copied(make):
    data, transform = make()
    # A worker takes about 25 MB for Python and NumPy.
    assert max(workers_megabytes(data, transform)) < 25 + BIG / MEGABYTE / 4


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_memory_mapped_file_travels_as_its_name(tmp_path: Path, mode):
    path = tmp_path / "rows.npy"
    np.save(path, np.ones((ROWS, 16)))
    data = np.load(path, mmap_mode=mode)

    def maps_file(sample: Any) -> bool:
        return str(path) in Path("/proc/self/maps").read_text()

    with opened(data, PROCESSES, transform=maps_file) as engine:
        assert read(engine, 2)[1].tolist() == [True] * 4


PIECES: dict[str, Any] = {
    "a slice of a slice": lambda rows: rows[50:][10:60],
    "reshaped": lambda rows: rows.reshape(200, 2, 4),
    "as bytes": lambda rows: rows.view(np.uint8),
    "Fortran order": lambda rows: np.asfortranarray(rows),
    "copy on write": lambda rows: np.load(rows.filename, mmap_mode="c"),
}


@pytest.mark.parametrize("piece", list(PIECES.values()), ids=list(PIECES))
def test_piece_of_a_mapped_file_has_the_same_rows(tmp_path: Path, piece):
    np.save(tmp_path / "rows.npy", np.arange(1600).reshape(200, 8))
    data = piece(np.load(tmp_path / "rows.npy", mmap_mode="r"))
    np.testing.assert_array_equal(sent(data), data, strict=True)


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_mapped_file_larger_than_memory(tmp_path: Path, mode):
    shape = (os.sysconf("SC_PHYS_PAGES") * 3, os.sysconf("SC_PAGE_SIZE"))
    np.memmap(tmp_path / "rows", "u1", "w+", shape=shape)  # Sparse: it takes no space.
    rows = sent(np.memmap(tmp_path / "rows", "u1", mode, shape=shape))
    assert (rows[-1, -1], rows.flags.writeable) == (0, mode == "r+")


def test_file_replaced_after_it_was_mapped_is_not_read(tmp_path: Path):
    """By a worker that starts before, and by one that starts after."""
    for name, fill in (("rows.npy", 1), ("new.npy", 2)):
        np.save(tmp_path / name, np.full(8, fill))
    serialized = SerializedPlan(data := np.load(tmp_path / "rows.npy", mmap_mode="r"))
    assert load_plan(serialized.name)[0].tolist() == [1] * 8
    (tmp_path / "new.npy").replace(tmp_path / "rows.npy")
    for change in (lambda: None, (tmp_path / "rows.npy").unlink):
        change()
        with pytest.raises(OSError, match="rows"):
            load_plan(serialized.name)
        with pytest.raises(FileChangedError, match="has changed since it was opened: open it"):
            SerializedPlan(data)
    serialized.close()


def test_changes_of_a_copy_on_write_map_arrive(tmp_path: Path):
    np.save(tmp_path / "rows.npy", np.zeros(8))
    data = np.load(tmp_path / "rows.npy", mmap_mode="c")
    data[:] = 5
    assert sent(data).tolist() == [5] * 8


def test_task_is_small_however_many_arrays_the_source_has():
    with opened([np.zeros(3)] * 10 + [np.zeros(3) for _ in range(2000)], "processes-1") as engine:
        read(engine, 1)
        (worker,) = workers()
        before = worker.io_counters().read_chars
        read(engine, 20)
        assert (worker.io_counters().read_chars - before) / 24 < 4096
