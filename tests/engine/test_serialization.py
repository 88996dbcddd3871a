"""Serialized plans: pickled once, arrays beside the pickle."""

from __future__ import annotations

import ctypes
import pickle
import queue
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.engine.serialization import SerializedPlan, load_plan, obstacle_to_sending
from tests.batches import exact


def sent(content: Any) -> Any:
    """The content as a worker has it, while the serialized is open and after."""
    serialized = SerializedPlan(content)
    try:
        return load_plan(serialized.address)
    finally:
        serialized.close()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(5),
        np.arange(24).reshape(2, 3, 4),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(20).reshape(4, 5)[::2, ::-1],
        np.broadcast_to(np.arange(3), (4, 3)),
        np.zeros((0, 3)),
        np.array(5),
        np.array(["a", None, {}], object),
        np.arange(3).astype(">u4"),
        np.array(["2020"], "M8[D]"),
        np.zeros(2, "i4,f8"),
    ],
    ids=[
        "1-D",
        "3-D",
        "Fortran",
        "gaps",
        "broadcast",
        "empty",
        "scalar",
        "objects",
        "big endian",
        "times",
        "records",
    ],
)
def test_an_array_arrives_as_it_was(array):
    assert exact(sent(array)) == exact(np.array(array))


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_lie_beside_the_pickle_and_can_be_written_to(order):
    array = np.zeros((1000, 100), order=order)
    received = sent({"array": array})["array"]
    received[3] = 5
    assert (array.sum(), received.sum(), received.base is not None) == (0, 500, True)


def test_every_receiver_has_a_copy_of_its_own_as_soon_as_it_writes():
    serialized = SerializedPlan(np.zeros(10))
    one, other = load_plan(serialized.address), load_plan(serialized.address)
    serialized.close()
    one += 1
    assert (one.sum(), other.sum()) == (10, 0)


def test_an_array_that_occurs_twice_arrives_as_one():
    array = np.zeros(10)
    one, other = sent((array, array))
    assert one is other


def test_the_address_of_many_arrays_is_short():
    serialized = SerializedPlan([np.zeros(3) for _ in range(5000)])
    assert len(pickle.dumps(serialized.address)) < 1000
    serialized.close()


def test_the_content_may_hold_no_array_at_all():
    assert sent(("text", None, 5)) == ("text", None, 5)


def test_functions_of_functions_and_classes_of_functions_can_be_sent():
    class Local:
        def __init__(self, factor: int) -> None:
            self.factor = factor

    local, function = sent((Local(3), lambda number: number * 3))
    assert (local.factor, function(5)) == (3, 15)


def test_a_memory_mapped_array_is_mapped_anew_from_its_file(tmp_path: Path):
    np.save(tmp_path / "rows.npy", np.arange(1000).reshape(100, 10))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")[5:50][2:]
    received = sent(rows)
    assert type(received) is np.memmap
    assert str(received.filename) == str(rows.filename)
    assert received.tolist() == rows.tolist()


def test_a_mapped_array_in_fortran_order_is_mapped_too(tmp_path: Path):
    np.save(tmp_path / "rows.npy", np.asfortranarray(np.arange(60).reshape(6, 10)))
    received = sent(np.load(tmp_path / "rows.npy", mmap_mode="r")[:, 3:])
    assert type(received) is np.memmap
    assert received.tolist() == np.arange(60).reshape(6, 10)[:, 3:].tolist()


def test_a_receiver_cannot_write_into_the_file_that_is_mapped(tmp_path: Path):
    np.save(tmp_path / "rows.npy", np.zeros(8))
    sent(np.load(tmp_path / "rows.npy", mmap_mode="r+"))[:] = 5
    assert np.load(tmp_path / "rows.npy").sum() == 0


@pytest.mark.parametrize("content", [np.zeros(5), lambda: 5, {"a": None}])
def test_what_can_be_sent_has_no_obstacle(content):
    assert not obstacle_to_sending(content, 60)


def test_what_cannot_be_sent_has_one():
    assert "TypeError: cannot pickle 'frame' object" in str(
        obstacle_to_sending(sys._getframe(), 60)
    )


def test_looking_for_obstacles_copies_no_array():
    array = np.zeros(2**20)
    tracemalloc.start()
    try:
        obstacle_to_sending({"array": array}, 60)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < array.nbytes / 20


class Point(ctypes.Structure):
    _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_int))


@pytest.mark.parametrize("kind", [ctypes.c_char * 3, ctypes.c_float * 2 * 3, Point * 2])
def test_an_array_of_c_arrives(kind):
    """Its type has no name, and cloudpickle's copy of that can't be made anew."""
    array = kind()
    ctypes.memset(ctypes.byref(array), 7, ctypes.sizeof(array))
    found = sent({"memory": array, "view": np.frombuffer(array, np.uint8)})
    assert bytes(found["memory"]) == bytes(array)
    assert type(found["memory"]) is kind
    assert found["view"].tolist() == list(bytes(array))


@pytest.mark.parametrize("kind", [threading.Lock, threading.RLock, threading.Condition])
def test_a_lock_arrives_as_one_that_nobody_holds(kind):
    lock = kind()
    with lock:
        other = sent([lock, lock])
    assert type(other[0]) is type(lock)
    assert other[0] is other[1] is not lock
    with other[0]:
        pass


def test_a_condition_arrives_without_those_who_wait():
    condition, waiting = threading.Condition(), threading.Event()

    def wait() -> None:
        with condition:
            waiting.set()
            condition.wait(20)

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(20)
    with condition:  # Not before the thread waits.
        pass
    other = sent(condition)
    with other:
        other.notify_all()
    with condition:
        condition.notify_all()
    thread.join(20)


def test_what_consists_of_locks_keeps_its_state():
    event, semaphore, line = threading.Event(), threading.Semaphore(2), queue.Queue()
    event.set()
    line.put("first")
    event, semaphore, line = sent((event, semaphore, line))
    assert (event.is_set(), line.get(timeout=20)) == (True, "first")
    assert [semaphore.acquire(blocking=False) for _ in range(3)] == [True, True, False]


def test_what_belongs_to_a_thread_is_not_sent():
    local = threading.local()
    local.file = open
    assert not hasattr(sent(local), "file")
