"""Batches that the consumer keeps stay as they are, and their memory is used again."""

from __future__ import annotations

import gc
import os
import re
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from adapters.engine import memory
from adapters.engine.memory import SharedFile, grow
from tests.batches import exact
from tests.engine.executors import end_idle_workers, opened, read, streamed, wait_until
from tests.engine.workloads import Numbers
from tests.leftovers import Leftovers

pytestmark = pytest.mark.usefixtures("small_blocks")
every_pool = pytest.mark.parametrize("executor", ["threads-2", "processes-2"])


def image(sample: int) -> Any:
    return np.full((16, 16), sample, np.int32), sample


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


PARTS: dict[str, Any] = {
    "a member": lambda batch: batch[1],
    "a view": lambda batch: batch[0][1:3],
    "a view of views": lambda batch: batch[0][1:3].T[::2].reshape(-1, 2)[1],
    "a buffer": lambda batch: np.asarray(memoryview(batch[0])),
    "other bytes": lambda batch: batch[0].view(np.uint8),
}


@every_pool
@pytest.mark.parametrize("part", list(PARTS.values()), ids=list(PARTS))
def test_piece_of_a_batch_holds_its_memory(executor, part):
    with streamed(Numbers(400), executor, transform=image) as stream:
        held = part(stream.next())
        before = exact(held)
        for _ in range(60):
            stream.next()
        stream.close()
        assert exact(held) == before


def test_ctrl_c_gives_memory_back_once(monkeypatch):
    with opened(Numbers(400), "processes-2", transform=image) as engine:
        plain, delivered = memory.Slots.deliver, []

        def interrupted(*arguments: Any) -> Any:
            monkeypatch.setattr(memory.Slots, "deliver", plain)
            delivered.extend(plain(*arguments))
            raise KeyboardInterrupt

        stream = engine.stream(0, 0, False)
        stream.next()
        monkeypatch.setattr(memory.Slots, "deliver", interrupted)
        with pytest.raises(KeyboardInterrupt):
            stream.next()
        stream.close()
        delivered.clear()
        kept = read(engine, 12)
        with opened(Numbers(400), "inline", transform=image) as expected:
            assert list(map(exact, kept)) == list(map(exact, read(expected, 12)))


@pytest.mark.parametrize(("kept", "limit"), [(0, 60), (300, 88)], ids=["used again", "all kept"])
def test_memory_takes_few_descriptors(kept, limit):
    """Not a new memory file for every batch; two each, as Python's mmap has one of its own."""
    before, held, most = descriptors(), [], 0
    with streamed(Numbers(1200), "processes-2", queue=3, transform=image) as stream:
        for _ in range(300):
            held = [*held, stream.next()][-kept - 1 :]
            most = max(most, descriptors() - before)
    # Slots that are held or under way, and the workers' sockets.
    assert most < limit
    assert [int(batch[0][0, 0, 0]) for batch in held] == list(range(1200))[::4][-kept - 1 :]


def test_last_reference_gives_the_memory_back():
    before = Leftovers.now()
    with opened(Numbers(400), "processes-2", transform=image) as engine:
        held = read(engine, 2)[1][0][1:2]
    end_idle_workers()
    assert Leftovers.now().beyond(before) != []
    del held
    gc.collect()
    wait_until(lambda: not Leftovers.now().beyond(before))


# --- shared memory of processes ---


def test_closing_twice_closes_no_other_file():
    file = SharedFile()
    file.close()
    descriptor = os.open(os.devnull, os.O_RDONLY)
    file.close()
    os.close(descriptor)


def test_no_room_for_a_plan_is_said(monkeypatch, caplog):
    """With no other remedies than these."""
    monkeypatch.setattr(os, "posix_fallocate", Mock(side_effect=OSError(0, "full")))
    expected = r"shared memory for [\d,]+ bytes could not be had \(full\): use a smaller .* threads"
    with streamed(Numbers(), "processes-2") as stream:
        stream.next()
    assert re.search(expected + r" \(use_multiprocessing=False\)$", caplog.messages[-1])


def test_room_is_taken_when_a_file_grows():
    """Not when it is written to, as that would kill the process."""
    file = SharedFile()
    file.grow(2**20)
    descriptor = os.open(file.name.path, os.O_RDWR)
    try:
        assert os.fstat(descriptor).st_blocks * 512 >= 2**20
        grow(descriptor, 2**21)
        assert os.fstat(descriptor).st_blocks * 512 >= 2**21
    finally:
        os.close(descriptor)
        file.close()
