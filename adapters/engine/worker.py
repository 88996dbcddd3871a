"""What runs inside a worker process.

Imports no framework. A call computes one job and returns a small message; the batches themselves
go through slots. Plans and slot mappings are kept between calls.
"""

from __future__ import annotations

import collections
import os
import pickle
import signal
import threading
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from adapters.assemble import Plan
from adapters.collate import Layout, LayoutChanged
from adapters.engine.failure import Failure
from adapters.engine.memory import FileName
from adapters.engine.parcel import Address, open_parcel
from adapters.engine.slots import SlotWriter, places_of
from adapters.errors import note
from adapters.structure import flatten, unflatten

# A parent that was killed can't say goodbye; this is how often a worker looks.
_PARENT_POLL_SECONDS = 1.0
# A pipe takes PIPE_BUF at once, whatever happens to the writer: 4096 bytes on Linux. Some of it is
# loky's.
_MESSAGE_BYTES = 3072
# Slots that stay mapped: more than any window holds, few enough to be forgotten some day.
_KEPT_SLOTS = 128


@dataclass(frozen=True)
class WholeTask:
    """Compute whole batches, each into its slot: ``(epoch, index, slot)``."""

    batches: list[tuple[int, int, FileName]]


@dataclass(frozen=True)
class PartTask:
    """Compute rows ``start`` to ``stop`` of a batch of ``samples`` into its slot."""

    epoch: int
    index: int
    slot: FileName
    start: int
    stop: int
    number: int
    samples: int
    layout: Layout


@dataclass(frozen=True)
class FinishTask:
    """Apply ``batch_transform`` to the collated batch in ``slot``, and put it into ``result``."""

    epoch: int
    index: int
    slot: FileName
    samples: int
    layout: Layout
    result: FileName


Task = WholeTask | PartTask | FinishTask


class Time(NamedTuple):
    """What a batch, or its part, has taken."""

    seconds: float = 0.0
    busy_seconds: float = 0.0
    """On a CPU; the rest of the time went by waiting."""

    @classmethod
    def now(cls) -> Time:
        """The clocks."""
        return cls(time.perf_counter(), time.process_time())

    def until_now(self) -> Time:
        """What has gone by since."""
        now = Time.now()
        return Time(now.seconds - self.seconds, now.busy_seconds - self.busy_seconds)


@dataclass(frozen=True)
class Written:
    """A batch that lies in a slot."""

    skeleton: Any
    leaves: list[Any]
    """A ``Place`` in the slot, or a value that can't be shared, such as strings."""
    layout: Layout | None
    skipped: int
    time: Time


@dataclass(frozen=True)
class PartWritten:
    """Rows that lie in a slot; ``skipped`` is None where the samples didn't fit the layout."""

    skipped: int | None
    time: Time


Answer = Written | PartWritten | Failure


def prepare(parent: int) -> None:
    """Set up a fresh worker process of the process ``parent``."""
    # Ctrl-C reaches the whole process group; it is the trainer's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, args=(parent,), daemon=True).start()
    # Shared data sets and slots count as this process's memory; loky would take them for a leak
    # and restart the worker over and over.
    import loky.process_executor

    loky.process_executor._USE_PSUTIL = False


def _leave_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_SECONDS)
    os._exit(1)


def work(address: Address, task: Task) -> bytes:
    """Do one task.

    Returns:
        The pickled answers, one per batch; or, where those are long, the pickled ``Place`` of them
        in the slot of the task's first batch.
    """
    answers: list[Answer] = []
    if isinstance(task, WholeTask):
        for epoch, index, name in task.batches:
            answers.append(_guarded(_whole, address, epoch, index, name))
            if len(answers) < len(task.batches):
                _slot(name).end(0)
    elif isinstance(task, PartTask):
        answers.append(_guarded(_part, address, task))
    else:
        answers.append(_guarded(_finish, address, task))
    data = _pickled(answers)
    # Only now, as pickling an answer may be what kills a worker.
    _slot(task.batches[-1][2] if isinstance(task, WholeTask) else task.slot).end(
        task.number if isinstance(task, PartTask) else 0
    )
    if len(data) <= _MESSAGE_BYTES:
        return data
    if isinstance(task, PartTask):
        # The slot is full of other parts. Computed whole, the batch will fail the same way.
        return pickle.dumps([PartWritten(None, Time())])
    slot = _slot(task.result if isinstance(task, FinishTask) else task.batches[0][2])
    memory = slot.allocate((len(data),), np.dtype(np.uint8))
    memory[:] = np.frombuffer(data, np.uint8)
    return pickle.dumps(slot.place(memory))


def _pickled(answers: list[Answer]) -> bytes:
    for dumps in (pickle.dumps, cloudpickle.dumps):
        try:
            return dumps(answers, protocol=5)
        except Exception as error:
            obstacle = error
    note(obstacle, "the batch holds something that can't be sent from a worker process")
    return pickle.dumps([Failure.of(obstacle)] * len(answers))


def _guarded(function: Any, *arguments: Any) -> Answer:
    try:
        return function(*arguments)  # type: ignore[no-any-return]
    except BaseException as error:  # Belongs to whoever asks for the batch.
        return Failure.of(error)


def _whole(address: Address, epoch: int, index: int, name: FileName) -> Written:
    started = Time.now()
    slot = _slot(name)
    slot.begin(0)
    assembled = _plan(address).batch(epoch, index, slot.allocate)
    return _written(slot, assembled.batch, assembled.layout, assembled.skipped, started)


def _part(address: Address, task: PartTask) -> PartWritten:
    started = Time.now()
    slot = _slot(task.slot)
    slot.begin(task.number)
    columns = [slot.array(place) for place in places_of(task.samples, task.layout.leaves)]
    skipped: int | None
    try:
        skipped = _plan(address).part(
            task.epoch,
            task.index,
            task.start,
            [column[task.start : task.stop] for column in columns],
            task.layout,
        )
    except LayoutChanged:
        skipped = None
    return PartWritten(skipped, started.until_now())


def _finish(address: Address, task: FinishTask) -> Written:
    started = Time.now()
    slot, result = _slot(task.slot), _slot(task.result)
    slot.begin(0)
    result.begin(0)
    columns = [slot.array(place) for place in places_of(task.samples, task.layout.leaves)]
    batch = _plan(address).finish(task.epoch, task.index, unflatten(task.layout.skeleton, columns))
    return _written(result, batch, task.layout, 0, started)


def _written(
    slot: SlotWriter, batch: Any, layout: Layout | None, skipped: int, started: Time
) -> Written:
    leaves, skeleton = flatten(batch)
    placed: list[Any] = []
    for leaf in leaves:
        shared = isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject
        placed.append(slot.place(leaf) if shared else leaf)
    return Written(skeleton, placed, layout, skipped, started.until_now())


_plans: collections.OrderedDict[int, Plan] = collections.OrderedDict()
_slots: collections.OrderedDict[int, SlotWriter] = collections.OrderedDict()


def _plan(address: Address) -> Plan:
    plan = _plans.get(address.name.serial)
    if plan is None:
        _plans.clear()
        plan = _plans[address.name.serial] = open_parcel(address)
    return plan


def _slot(name: FileName) -> SlotWriter:
    slot = _slots.get(name.serial)
    if slot is None:
        slot = _slots[name.serial] = SlotWriter(name)
        if len(_slots) > _KEPT_SLOTS:
            _slots.popitem(last=False)[1].close()
    else:
        _slots.move_to_end(name.serial)
    return slot
