"""Worker processes: fresh interpreters that are started once, lent in turn, and end unused."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import threading
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import psutil
import pytest

from adapters.engine import Engine, pool
from tests.engine.executors import end_idle_workers, opened, read, streamed, wait_until
from tests.engine.scripts import ended
from tests.engine.workloads import Numbers, Slow
from tests.plans import batch_of, plan_of


def pid(sample: Any) -> int:
    return os.getpid()


def pids_of(engine: Engine, count: int = 5) -> set[int]:
    return set(np.concatenate(read(engine, count)).tolist())


def test_engine_at_rest_lends_its_processes_and_goes_on():
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
    wait_until(lambda: not pool.shared_pool()._workers, 10)


def test_module_that_was_edited_is_imported_anew(tmp_path, monkeypatch):
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


def test_processes_have_the_surroundings_of_their_engine(tmp_path, monkeypatch):
    def surroundings(_: Any) -> str:
        return os.path.basename(os.getcwd()) + os.environ.get("ADAPTERS_TEST", "")

    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    with opened(Numbers(400), "processes-1", transform=surroundings) as engine:
        assert set(np.concatenate(read(engine, 2))) == {"one"}
        engine.pause()
        wait_until(lambda: pool.shared_pool().idle)
        monkeypatch.chdir(tmp_path / "other")
        with opened(Numbers(400), "processes-1", transform=surroundings) as other:
            assert set(np.concatenate(read(other, 2))) == {"other"}
        assert set(np.concatenate(read(engine, 2))) == {"one"}
    monkeypatch.setenv("ADAPTERS_TEST", " changed")
    with opened(Numbers(400), "processes-1", transform=surroundings) as engine:
        assert set(np.concatenate(read(engine, 2))) == {"other changed"}


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_batch_held_by_a_fork_stays_what_it_was():
    with streamed(Numbers(4000), "processes-1") as stream:
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
    os.close(reading)
    os.close(writing)


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


def test_workers_have_the_interpreters_flags():
    found = ended("-O", "-c", FLAGS)
    first, second = found.stdout.splitlines()
    assert first == second, found.stderr[-2000:]


def test_processes_start_in_a_folder_that_was_deleted(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with opened(Numbers(40), "processes-2", transform=abs) as engine:
        assert len(read(engine, 4)) == 4


def test_workers_are_given_back_if_the_plan_is_not_sent(monkeypatch):
    end_idle_workers()

    def fail(*_: Any) -> None:
        raise OSError("no")

    monkeypatch.setattr("adapters.engine.pool.Worker.send", fail)
    with opened(Numbers(40), "processes-2", transform=abs) as engine, pytest.raises(OSError):
        read(engine, 4)
    monkeypatch.undo()
    end_idle_workers()


# --- what a worker process is ---


def taken_over() -> dict[str, Any]:
    """What a worker has from its trainer."""
    return {
        "arguments": " ".join(sys.argv),
        "path": " ".join(sys.path),
        "folder": os.getcwd(),
        "key": bytes(multiprocessing.current_process().authkey).hex(),
    }


def surroundings(sample: int) -> dict[str, Any]:
    """Where this runs."""
    return {
        **taken_over(),
        "input": sys.stdin.read(),
        "main": hasattr(sys.modules["__main__"], "__file__"),
        "interrupts": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    }


def test_worker_finds_what_this_interpreter_finds():
    with opened(Numbers(), "processes-1", 1, transform=surroundings) as engine:
        found = {name: value[0] for name, value in read(engine, 1)[0].items()}
    own = {"input": "", "main": False, "interrupts": True, "blocked": 0}
    assert found == {**taken_over(), **own}


def test_worker_that_opens_shared_memory_leaves_it():
    """As Python's resource tracker does with all that it was told of, when its process ends."""
    memory = SharedMemory(create=True, size=26)
    name = memory.name

    def attached(number: int) -> tuple[int, int]:
        """A number, and how many processes the worker has started."""
        there = SharedMemory(name)
        try:
            return there.buf[number], len(psutil.Process().children())
        finally:
            there.close()

    try:
        memory.buf[:] = bytes(range(26))
        end_idle_workers()
        with opened(Numbers(), "processes-1", transform=attached) as engine:
            numbers, started = zip(*read(engine, 7), strict=True)
        assert np.concatenate(numbers).tolist() == list(range(26))
        assert not np.concatenate(started).any()
    finally:
        memory.close()
        memory.unlink()


# --- their sockets ---


def test_default_timeout_of_the_programs_sockets(new_processes):
    socket.setdefaulttimeout(0.01)
    try:
        with opened(Numbers(), "processes-1", transform=Slow(0.02)) as engine:
            assert np.concatenate(read(engine, 7)).tolist() == list(range(26))
    finally:
        socket.setdefaulttimeout(None)


class Keys:
    """Samples are known by long names, and are as long."""

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, key: str) -> str:
        return key + " words"


def test_long_tasks_and_answers_pass_each_other():
    gluon = pytest.importorskip("adapters.gluon", exc_type=ImportError)
    keys = ["d" * 150 + f"{number:06d}" for number in range(16_000)]
    batches = [keys[start : start + 4_000] for start in range(0, len(keys), 4_000)]
    options = {"batchify_fn": list, "num_workers": 1, "thread_pool": False, "prefetch": 4}
    with gluon.gluon_loader(Keys(), batch_sampler=batches, timeout=30, **options) as loader:
        assert [list(batch) for batch in loader] == [[k + " words" for k in b] for b in batches]


@pytest.mark.parametrize("sent", [False, True])
def test_ctrl_c_while_a_task_is_sent_loses_nothing(sent, monkeypatch):
    """Twice, where one worker has two tasks at most; before the sending, or after it."""
    own, calls, main = pool.Worker.send, [], threading.main_thread()

    def send(worker: Any, call: Any, *message: Any) -> bool:
        if call is not None and call.task and threading.current_thread() is main:
            calls.append(call)
            if len(calls) in (2, 3):
                if sent:
                    own(worker, call, *message)
                raise KeyboardInterrupt
        return own(worker, call, *message)

    with opened(Numbers(200), "processes-1", 4, queue=6) as engine:
        read(engine, 3)
        monkeypatch.setattr(pool.Worker, "send", send)
        interrupted = 0
        while interrupted < 2:  # The pool's threads may have sent all of a pass.
            try:
                read(engine, 40)
            except KeyboardInterrupt:
                interrupted += 1
        expected = batch_of(plan_of(Numbers(200), 4), 0, 49)
        np.testing.assert_array_equal(read(engine, 50)[49], expected)
    # CPython 3.11 may crash when a method is put back while a thread is in it.
    end_idle_workers()
