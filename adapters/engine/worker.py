"""Computation in a worker process.

Imports no framework. A task computes one job, and its answers are small; the batches themselves are
written to slots. Plans, and mappings of slots, are kept between tasks, until their executor closes.
"""

from __future__ import annotations

import collections
import pickle
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np

from adapters.batch.key import BatchKey
from adapters.batch.plan import Plan
from adapters.clock import Spent
from adapters.engine.memory import FileName
from adapters.engine.serialization import Address, load_plan
from adapters.engine.slots import Place, SlotWriter
from adapters.errors import note
from adapters.failure import Failure
from adapters.structure import flatten

# Descriptors left to user code; each mapped slot takes one.
_SPARE_DESCRIPTORS = 64


@dataclass(frozen=True)
class Written:
    """A batch in a slot."""

    skeleton: Any
    leaves: list[Any]
    """Each a ``Place`` in the slot, or a value that can't be shared, such as a string."""
    skipped: int
    spent: Spent


Answer = Written | Failure
Task = list[tuple[BatchKey, FileName]]
"""Batches to compute, each into its slot."""


def work(address: Address, task: Task) -> bytes:
    """Compute some batches.

    Returns:
        The pickled answers, one per batch; some are pickled separately, as a list of one.
    """
    slots = _slots_of(address)
    answers: list[Answer | bytes] = []
    for key, name in task:
        answer = _guarded(_compute, address, key, name)
        if len(answers) + 1 == len(task):
            answers.append(answer)
            break
        answers.append(_pickled([answer]) if _may_change(answer) else answer)
        slots.get(name).end()
    data = _pickled(answers)
    # Only now, because pickling an answer may kill the worker.
    slots.get(task[-1][1]).end()
    return data


def _may_change(answer: Answer) -> bool:
    """True if the next batch may change what this one has outside of its slot."""
    return isinstance(answer, Written) and not all(
        isinstance(leaf, (Place, str, bytes, int, float, type(None)))
        or getattr(leaf, "never_changes", False)
        for leaf in answer.leaves
    )


def _pickled(answers: Sequence[Answer | bytes]) -> bytes:
    for dumps in (pickle.dumps, cloudpickle.dumps):
        try:
            return dumps(answers, protocol=5)
        except Exception as error:
            obstacle = error
    note(obstacle, "the batch holds something that can't be sent from a worker process")
    return pickle.dumps([Failure.of(obstacle)] * len(answers))


def opened_answers(data: bytes) -> list[Answer]:
    """Unpickle the answers of ``work``, in the trainer's process."""
    answers: list[Answer] = []
    for answer in pickle.loads(data):
        answers += pickle.loads(answer) if isinstance(answer, bytes) else [answer]
    return answers


def _guarded(function: Any, *arguments: Any) -> Answer:
    try:
        return function(*arguments)  # type: ignore[no-any-return]
    except BaseException as error:  # Raised where the batch is read.
        return Failure.of(error)


def _compute(address: Address, key: BatchKey, name: FileName) -> Written:
    started = Spent.now()
    slot = _slots_of(address).get(name)
    slot.begin()
    assembled = open_plan(address).batch(key, slot.allocate)
    leaves, skeleton = flatten(assembled.batch)
    placed: list[Any] = []
    for leaf in leaves:
        # Other array classes hold more than numbers, such as a mask.
        shared = type(leaf) in (np.ndarray, np.memmap) and not leaf.dtype.hasobject
        placed.append(slot.place(leaf) if shared else leaf)
    return Written(skeleton, placed, assembled.skipped, started.until_now())


class _Slots:
    """Slots of one executor's batches; those used last stay mapped.

    Unmapping a slot loses nothing: its data is in the shared file.
    """

    def __init__(self) -> None:
        self._mapped: collections.OrderedDict[int, SlotWriter] = collections.OrderedDict()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = max(2, min(limit, 65536) - _SPARE_DESCRIPTORS)

    def get(self, name: FileName) -> SlotWriter:
        """Return the slot with this name, mapped."""
        slot = self._mapped.get(name.serial)
        if slot is None:
            while len(self._mapped) >= self._most:
                self._mapped.popitem(last=False)
            slot = self._mapped[name.serial] = SlotWriter(name)
        else:
            self._mapped.move_to_end(name.serial)
        return slot


_plans: dict[int, Plan] = {}
_slots: dict[int, _Slots] = {}


def open_plan(address: Address) -> Plan:
    """Return the plan; it is opened only once."""
    plan = _plans.get(address.name.serial)
    if plan is None:
        plan = _plans[address.name.serial] = load_plan(address)
    return plan


def forget(serial: int) -> None:
    """Drop the plan and the slots of an executor that has closed."""
    _plans.pop(serial, None)
    _slots.pop(serial, None)


def _slots_of(address: Address) -> _Slots:
    slots = _slots.get(address.name.serial)
    if slots is None:
        slots = _slots[address.name.serial] = _Slots()
    return slots
