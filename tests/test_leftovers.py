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
