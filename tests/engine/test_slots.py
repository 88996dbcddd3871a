"""Slots: lent, held, and free again, and what a worker writes into one."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import resource
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.alignment import ALIGNMENT_BYTES
from adapters.engine import Engine, Settings, memory
from adapters.engine import slots as slots_module
from adapters.engine.memory import SharedFile, grow, map_private
from adapters.engine.slots import HEADER_BYTES, Place, Slot, Slots, SlotWriter
from tests.engine.workloads import Numbers, Slow
from tests.leftovers import Leftovers
from tests.plans import plan_of


def delivered(slots: Slots, *arrays: Any) -> tuple[Slot, list[np.ndarray]]:
    """A slot into which a worker has put arrays, and the trainer's arrays."""
    slot = slots.take()
    writer = SlotWriter(slot.name)
    writer.begin()
    places = [writer.place(array) for array in arrays]
    return slot, slots.deliver(slot, places)


def root(array: Any) -> Any:
    """What owns the memory in the end."""
    while getattr(array, "base", None) is not None:
        array = array.base
    return array


@pytest.fixture
def slots() -> Any:
    slots = Slots(held=2)
    yield slots
    slots.close()


def test_what_a_worker_writes_the_trainer_reads(slots):
    written = [np.arange(6).reshape(2, 3), np.array([1.5], ">f4"), np.zeros((0, 2), "u1")]
    _, read = delivered(slots, *written)
    assert [(a.tolist(), a.dtype, a.shape) for a in read] == [
        (a.tolist(), a.dtype, a.shape) for a in written
    ]


def test_arrays_are_aligned(slots):
    _, read = delivered(slots, np.ones(3, np.uint8), np.ones(5, np.uint8), np.ones(70, np.uint8))
    assert {array.ctypes.data % ALIGNMENT_BYTES for array in read} == {0}


def test_a_slot_is_taken_again_only_when_no_array_is_left(slots):
    slot, (one, other) = delivered(slots, np.ones(3), np.ones(3))
    view = other[1:2]
    del one, other
    gc.collect()
    assert slots.take() is not slot
    del view
    gc.collect()
    assert slots.take() is slot


def test_a_slot_that_was_given_back_is_taken_again(slots):
    slot = slots.take()
    slots.give_back(slot)
    assert slots.take() is slot


def test_beyond_the_most_held_a_batch_is_a_copy_in_ordinary_memory(slots):
    held = [delivered(slots, np.full(700, n))[1][0] for n in range(5)]
    assert [array.tolist() for array in held] == [[n] * 700 for n in range(5)]
    in_slots = [not isinstance(root(array), np.ndarray) for array in held]
    assert in_slots == [True, True, False, False, False]
    assert {array.ctypes.data % ALIGNMENT_BYTES for array in held} == {0}


def test_a_held_array_outlives_the_slots():
    before = Leftovers.now()
    slots = Slots(held=2)
    array = delivered(slots, np.arange(5))[1][0]
    slots.close()
    gc.collect()
    array += 1
    assert array.tolist() == [1, 2, 3, 4, 5]
    del array
    gc.collect()
    assert Leftovers.now().beyond(before) == []


def test_a_taken_slot_knows_nothing_of_the_workers_before(slots):
    slot = slots.take()
    writer = SlotWriter(slot.name)
    writer.begin()
    assert slot.worker == os.getpid()
    slots.give_back(slot)
    assert slots.take().worker == 0


def test_a_worker_signs_the_batch_that_it_works_on_until_it_is_done(slots):
    slot = slots.take()
    writer = SlotWriter(slot.name)
    writer.begin()
    assert slot.worker == os.getpid()
    writer.end()
    assert slot.worker == 0


def test_a_slot_grows_with_what_is_written_and_early_arrays_stay_in_place(slots):
    slot = slots.take()
    writer = SlotWriter(slot.name)
    writer.begin()
    small = writer.allocate((4,), np.dtype(int))
    small[:] = 7
    large = writer.allocate((2**20,), np.dtype(np.uint8))
    large[:] = 8
    small += 1
    arrays = slots.deliver(slot, [writer.place(small), writer.place(large)])
    assert (arrays[0].tolist(), int(arrays[1].sum())) == ([8] * 4, 8 * 2**20)


def test_an_array_that_lies_in_the_slot_is_not_copied(slots):
    slot = slots.take()
    writer = SlotWriter(slot.name)
    writer.begin()
    array = writer.allocate((4, 3), np.dtype(float))
    assert writer.place(array).offset == HEADER_BYTES
    assert writer.place(array[1:]).offset == HEADER_BYTES + 3 * 8
    assert writer.place(array[:, 1:]).offset > HEADER_BYTES + 4 * 3 * 8


def test_python_objects_get_memory_of_their_own(slots):
    slot = slots.take()
    writer = SlotWriter(slot.name)
    assert writer.allocate((2,), np.dtype(object)).tolist() == [None, None]


def test_a_place_knows_its_size():
    assert Place(0, (3, 0, 2), np.dtype(int)).nbytes == 0
    assert Place(0, (), np.dtype("f4")).nbytes == 4
    assert Place(0, (2**20, 2**20), np.dtype("f8")).nbytes == 2**43


# --- memory files ---


@pytest.fixture(params=["memory file", "temporary file"])
def file(request, monkeypatch, tmp_path: Path) -> Iterator[SharedFile]:
    """Of Linux, and of a system that has no memory files."""
    if request.param == "temporary file":
        monkeypatch.delattr(os, "memfd_create")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    file = SharedFile()
    yield file
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_is_seen_by_all_who_have_the_name(file):
    file.grow(100)
    with file.map() as written:
        written[:5] = b"hello"
    with map_private(file.name) as seen:
        assert seen[:5] == b"hello"


def test_who_maps_privately_changes_his_own_copy(file):
    file.grow(100)
    with map_private(file.name) as mine, file.map() as shared:
        mine[:5] = b"hello"
        assert shared[:5] == bytes(5)


def test_a_mapping_outlives_its_file(file):
    file.grow(100)
    with file.map() as mapped:
        mapped[:5] = b"hello"
        file.close()
        assert mapped[:5] == b"hello"


def test_a_file_only_grows(file):
    sizes = []
    for size in (100, 50, 5000):
        file.grow(size)
        sizes.append(file.size)
    assert sizes == sorted(sizes)
    assert (sizes[0] >= 100, sizes[2] >= 5000) == (True, True)


def test_closing_twice_does_no_harm(file):
    file.close()
    descriptor = os.open(os.devnull, os.O_RDONLY)
    file.close()
    os.close(descriptor)


def test_names_differ_though_paths_come_again():
    first = SharedFile()
    path = first.name.path
    first.close()
    second = SharedFile()
    second.close()
    assert (second.name.path, second.name != first.name) == (path, True)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_no_room_is_an_error_that_says_what_to_do_and_not_a_killed_process(file):
    expected = r"shared memory for 1,073,741,824 bytes could not be had \(.*\): use a smaller batch"
    with file_size_limit(mmap.PAGESIZE), pytest.raises(MemoryError, match=expected):
        file.grow(2**30)


def test_the_room_is_there_as_soon_as_a_file_has_grown(file):
    """Not when it is written to, as that would kill the process."""
    file.grow(2**20)
    descriptor = os.open(file.name.path, os.O_RDWR)
    try:
        assert os.fstat(descriptor).st_blocks * 512 >= 2**20
        grow(descriptor, 2**21)
        assert os.fstat(descriptor).st_blocks * 512 >= 2**21
    finally:
        os.close(descriptor)


def test_there_are_memory_files_here():
    """Otherwise half of these tests test the same thing twice."""
    assert hasattr(memory.os, "memfd_create")


# --- descriptors that run out ---


BATCHES = 8
_TIMEOUT_SECONDS = 20.0


def refused(*_: Any) -> Any:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


class Refusing:
    """Makes slots, but for one of those that are asked for in another thread than the reader's.

    Args:
        number: Of that one.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.reader = threading.current_thread()
        self.asked = 0
        self._make = slots_module.Slot

    def __call__(self) -> slots_module.Slot:
        if threading.current_thread() is not self.reader:
            self.asked += 1
            if self.asked == self.number + 1:
                refused()
        return self._make()


def negated(batch: Any) -> Any:
    return -batch


def told_while_reading(transform: Any, queue: int) -> list[int | None]:
    """The errors that a reader gets who asks on until all batches are there, in their order."""
    plan = plan_of(Numbers(400), transform=transform, batch_transform=negated)
    batches, told = [], []
    with closing(Engine(plan, Settings(2, True, queue, {}, _TIMEOUT_SECONDS))) as engine:
        stream = engine.stream(0, 0, False)
        while len(batches) < BATCHES:
            try:
                batches.append(stream.next())
            except OSError as error:
                told.append(error.errno)
    assert np.concatenate(batches).tolist() == [-number for number in range(4 * BATCHES)]
    return told


@pytest.mark.parametrize(
    ("transform", "queue", "number"),
    [(None, 1, 0), (None, 4, 1), (Slow(0.02), 1, 1)],
    ids=["the one that is waited for", "one behind it", "one behind a slow one"],
)
def test_a_batch_that_there_is_no_slot_for_can_be_read_later(transform, queue, number, monkeypatch):
    """Whoever reports a job done, or a worker ready, starts the next one while the reader waits."""
    monkeypatch.setattr(slots_module, "Slot", Refusing(number))
    assert told_while_reading(transform, queue) == [errno.EMFILE]


@pytest.mark.parametrize("number", [0, 1, 5])
@pytest.mark.parametrize("transform", [None, Slow(0.02)], ids=["quick", "slow"])
def test_a_batch_whose_slot_cannot_be_mapped_can_be_read_later(transform, number, monkeypatch):
    view, seen = slots_module.Slot.view, []

    def sometimes(slot: slots_module.Slot) -> Any:
        seen.append(slot)
        return refused() if len(seen) == number + 1 else view(slot)

    monkeypatch.setattr(slots_module.Slot, "view", sometimes)
    assert told_while_reading(transform, 2) == [errno.EMFILE]


def test_memory_that_there_is_no_descriptor_for_is_an_error_and_nothing_else(monkeypatch):
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    monkeypatch.setattr(memory.os, "memfd_create", refused)
    with pytest.raises(OSError, match="Too many open files"):
        memory.SharedFile()
    assert not unraisable
