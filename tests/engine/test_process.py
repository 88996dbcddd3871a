"""What a worker process is: a fresh interpreter, of this one's family, that needs no helper."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import psutil

from tests.engine.executors import end_idle_workers, opened, read, workers
from tests.engine.scripts import script
from tests.engine.workloads import Numbers


def surroundings(sample: int) -> dict[str, Any]:
    """Where this runs."""
    return {
        "arguments": " ".join(sys.argv),
        "path": " ".join(sys.path),
        "folder": os.getcwd(),
        "key": bytes(multiprocessing.current_process().authkey).hex(),
        "input": sys.stdin.read(),
        "main": hasattr(sys.modules["__main__"], "__file__"),
        "interrupts": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    }


def test_a_worker_is_a_fresh_interpreter_that_finds_what_this_one_finds():
    with opened(Numbers(), "processes-1", 1, transform=surroundings) as engine:
        found = {name: value[0] for name, value in read(engine, 1)[0].items()}
    assert found == surroundings_expected()


def surroundings_expected() -> dict[str, Any]:
    return {
        "arguments": " ".join(sys.argv),
        "path": " ".join(sys.path),
        "folder": os.getcwd(),
        "key": bytes(multiprocessing.current_process().authkey).hex(),
        "input": "",
        "main": False,
        "interrupts": True,
        "blocked": 0,
    }


class Attached(Numbers):
    """Reads its numbers from shared memory that somebody else has made."""

    def __init__(self, name: str, size: int) -> None:
        super().__init__(size)
        self.name = name

    def __getitem__(self, number: int) -> int:
        memory = SharedMemory(self.name)
        try:
            return memory.buf[number]
        finally:
            memory.close()


def helpers(sample: int) -> tuple[int, int]:
    """And how many processes the worker has started."""
    return sample, len(psutil.Process().children())


def test_a_worker_that_opens_shared_memory_needs_no_helper_that_would_remove_it():
    """As Python's resource tracker does with all that it was told of, when its process ends."""
    memory = SharedMemory(create=True, size=26)
    try:
        memory.buf[:] = bytes(range(26))
        end_idle_workers()
        data = Attached(memory.name, 26)
        with opened(data, "processes-1", transform=helpers) as engine:
            numbers, started = zip(*read(engine, 7), strict=True)
        assert np.concatenate(numbers).tolist() == list(range(26))
        assert not np.concatenate(started).any()
    finally:
        memory.close()
        memory.unlink()


def test_there_are_no_processes_but_the_workers():
    text = """
import psutil
with opened(Numbers(400), "processes-2") as engine:
    read(engine, 100)
    print(len(psutil.Process().children(recursive=True)) == len(workers()) > 0)
"""
    with script(text) as running:
        code, output, errors = running.finish(60)
    assert (code, output.split(), errors) == (0, ["True"], "")


def test_a_death_is_noticed_without_descriptors_of_processes(monkeypatch):
    """Linux has them since version 5.3."""

    def missing(pid: int) -> int:
        raise OSError("Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)
    end_idle_workers()
    with opened(Numbers(), "processes-1", queue=1) as engine:
        stream = engine.stream(0, 0, False)
        assert stream.next().tolist() == [0, 1, 2, 3]
        for worker in workers():
            worker.kill()
        assert np.concatenate([stream.next() for _ in range(6)]).tolist() == list(range(4, 26))
        stream.close()
    end_idle_workers()
