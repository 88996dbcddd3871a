"""Slots: lent, held, and free again, and what a worker writes into one."""

from __future__ import annotations

import gc
import os
from typing import Any

import numpy as np
import pytest

from adapters.alignment import ALIGNMENT_BYTES
from adapters.engine.memory import HEADER_BYTES, ArrayInSlot, Slot, Slots, SlotWriter
from tests.leftovers import Leftovers


def delivered(slots: Slots, *arrays: Any) -> tuple[Slot, list[np.ndarray]]:
    """A slot into which a worker has put arrays, and the trainer's arrays."""
    slot = slots.take()
    writer = SlotWriter(slot.name)
    writer.begin()
    places = [writer.put(array) for array in arrays]
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
    assert slot.signer_pid == os.getpid()
    slots.give_back(slot)
    assert slots.take().signer_pid == 0


def test_a_worker_signs_the_batch_that_it_works_on_until_it_is_done(slots):
    slot = slots.take()
    writer = SlotWriter(slot.name)
    writer.begin()
    assert slot.signer_pid == os.getpid()
    writer.end()
    assert slot.signer_pid == 0


def test_a_slot_grows_with_what_is_written_and_early_arrays_stay_in_place(slots):
    slot = slots.take()
    writer = SlotWriter(slot.name)
    writer.begin()
    small = writer.allocate((4,), np.dtype(int))
    small[:] = 7
    large = writer.allocate((2**20,), np.dtype(np.uint8))
    large[:] = 8
    small += 1
    arrays = slots.deliver(slot, [writer.put(small), writer.put(large)])
    assert (arrays[0].tolist(), int(arrays[1].sum())) == ([8] * 4, 8 * 2**20)


def test_an_array_that_lies_in_the_slot_is_not_copied(slots):
    slot = slots.take()
    writer = SlotWriter(slot.name)
    writer.begin()
    array = writer.allocate((4, 3), np.dtype(float))
    assert writer.put(array).offset == HEADER_BYTES
    assert writer.put(array[1:]).offset == HEADER_BYTES + 3 * 8
    assert writer.put(array[:, 1:]).offset > HEADER_BYTES + 4 * 3 * 8


def test_python_objects_get_memory_of_their_own(slots):
    slot = slots.take()
    writer = SlotWriter(slot.name)
    assert writer.allocate((2,), np.dtype(object)).tolist() == [None, None]


def test_a_place_knows_its_size():
    assert ArrayInSlot(0, (3, 0, 2), np.dtype(int)).nbytes == 0
    assert ArrayInSlot(0, (), np.dtype("f4")).nbytes == 4
    assert ArrayInSlot(0, (2**20, 2**20), np.dtype("f8")).nbytes == 2**43
