"""The look around after every test sees what it is there to see."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import pytest

from adapters.engine.memory import SharedFile
from tests.leftovers import Leftovers


@contextmanager
def a_thread() -> Iterator[str]:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    yield thread.name
    done.set()
    thread.join()


@contextmanager
def a_process() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    yield f"pid={process.pid},"
    process.communicate()


@contextmanager
def a_segment() -> Iterator[str]:
    memory = SharedMemory(create=True, size=64)
    yield memory.name
    memory.close()
    memory.unlink()


@contextmanager
def a_descriptor() -> Iterator[str]:
    file = SharedFile()
    yield "descriptors: "
    file.close()


@contextmanager
def a_mapping() -> Iterator[str]:
    file = SharedFile()
    file.grow(64)
    memory = file.map()
    file.close()
    array = np.frombuffer(memory, np.uint8)
    del memory
    yield "descriptors: "
    del array


@pytest.mark.parametrize("leave", [a_thread, a_process, a_segment, a_descriptor, a_mapping])
def test_what_is_left_is_seen(leave):
    before = Leftovers.now()
    with leave() as name:
        assert [name in each for each in Leftovers.now().beyond(before)].count(True) == 1
    assert not any(name in each for each in Leftovers.now().beyond(before))


@pytest.mark.parametrize(
    "made", ["SharedMemory(create=True, size=64)", "get_context('spawn').Lock()"]
)
def test_shared_memory_of_another_process_does_not_count_but_that_of_a_child_does(made):
    """Another's: of a process whose parent has ended."""
    before = Leftovers.now()
    with a_holder(made, orphaned=True):
        assert Leftovers.now().beyond(before) == []
    with a_holder(made, orphaned=False):
        kinds = {left.split(":")[0] for left in Leftovers.now().beyond(before)}
        assert "segments" in kinds


HOLDER = """
import os, sys
from multiprocessing import get_context
from multiprocessing.shared_memory import SharedMemory
if sys.argv[2] == "True" and os.fork():
    os._exit(0)
made = eval(sys.argv[1])
print("ready", flush=True)
input()
if isinstance(made, SharedMemory):
    made.close()
    made.unlink()
del made
print("gone", flush=True)
"""


@contextmanager
def a_holder(made: str, orphaned: bool) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, made, str(orphaned)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    if orphaned:
        process.wait()
    yield
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "gone\n"
    process.communicate()
