"""Batches that the consumer keeps stay as they are, and their memory is used again."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.alignment import aligned_empty
from adapters.engine import memory
from adapters.engine.memory import SharedFile, grow, map_private
from tests.batches import exact
from tests.engine.executors import (
    PROCESSES,
    end_idle_workers,
    opened,
    read,
    wait_until,
)
from tests.engine.workloads import Numbers
from tests.leftovers import Leftovers

pytestmark = pytest.mark.usefixtures("small_blocks")
every_pool = pytest.mark.parametrize("executor", ["threads-2", *PROCESSES])
every_process_pool = pytest.mark.parametrize("executor", PROCESSES)


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
    with opened(Numbers(400), executor, transform=image) as engine:
        stream = engine.stream(0, 0, False)
        held = part(stream.next())
        before = exact(held)
        for _ in range(60):
            stream.next()
        stream.close()
        assert exact(held) == before


@every_pool
def test_held_batches_outlive_their_stream_and_their_engine(executor):
    with opened(Numbers(400), executor, transform=image) as engine:
        held = read(engine, 40)
        before = [exact(batch) for batch in held]
    gc.collect()
    assert [exact(batch) for batch in held] == before
    for batch in held:
        batch[0][...] = 0
    assert {int(batch[0].sum()) for batch in held} == {0}


@every_process_pool
def test_memory_is_used_again(executor):
    """Not a new memory file for every batch."""
    before = descriptors()
    with opened(Numbers(2000), executor, queue=3, transform=image) as engine:
        stream = engine.stream(0, 0, False)
        for _ in range(350):
            stream.next()
        # Slots of 5 batches under way and one that is held, and the pool's pipes.
        assert descriptors() - before < 60
        stream.close()


@every_process_pool
def test_keeping_every_batch_spares_descriptors(executor):
    queue = 3
    before = descriptors()
    with opened(Numbers(2400), executor, queue=queue, transform=image) as engine:
        held = []
        stream = engine.stream(0, 0, False)
        most = 0
        for _ in range(600):
            held.append(stream.next())
            most = max(most, descriptors() - before)
        stream.close()
    # Slots that are held or under way, two descriptors each (Python's mmap has one of its own),
    # and the pool's pipes.
    assert most < 2 * ((2 * queue + 8) + (2 * queue + 4)) + 40
    assert [int(batch[0][0, 0, 0]) for batch in held] == list(range(0, 2400, 4))


@every_process_pool
def test_last_reference_gives_the_memory_back(executor):
    before = Leftovers.now()
    with opened(Numbers(400), executor, transform=image) as engine:
        held = read(engine, 2)[1][0][1:2]
    end_idle_workers()
    assert Leftovers.now().beyond(before) != []
    del held
    gc.collect()
    wait_until(lambda: not Leftovers.now().beyond(before))


# --- large batches on threads ---


_LEAST_BYTES = 1 << 20
_LARGE = (_LEAST_BYTES,)
_BYTES = np.dtype(np.uint8)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_arena_keeps_a_few_free_blocks():
    arena = memory.Arena()
    arrays = [arena.empty((_LEAST_BYTES,), _BYTES) for _ in range(20)]
    assert len(set(map(address, arrays))) == 20
    del arrays
    assert len(arena._free) == memory._MOST_FREE


def megabytes(sample: int) -> Any:
    return np.full((1 << 18,), sample, np.float32), sample


@pytest.mark.parametrize(("executor", "batch_size"), [("inline", 3), ("threads-2", 1)])
def test_large_batches_share_memory_unless_kept(executor, batch_size, monkeypatch):
    monkeypatch.setattr(memory, "_LEAST_BYTES", _LEAST_BYTES)
    blocks = []

    def new_block(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        blocks.extend([shape] if dtype == _BYTES else [])
        return aligned_empty(shape, dtype)

    monkeypatch.setattr(memory, "aligned_empty", new_block)
    with opened(Numbers(60), executor, batch_size, transform=megabytes) as engine:
        stream = engine.stream(0, 0, False)
        held = [stream.next() for _ in range(2)]
        before = [exact(batch) for batch in held]
        places = set()
        for step in range(2, 60 // batch_size):
            images, numbers = stream.next()
            assert numbers.tolist() == list(range(step * batch_size, (step + 1) * batch_size))
            assert (images == numbers[:, None]).all()
            places.add(address(images))
        stream.close()
        assert [exact(batch) for batch in held] == before
        assert not places & {address(batch[0]) for batch in held}
    assert len(places) < 60 // batch_size - 2
    assert 0 < len(blocks) < 60 // batch_size - 2


# --- shared memory of processes ---


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


def test_no_descriptor_is_an_error_and_nothing_else(monkeypatch):
    def refused(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    monkeypatch.setattr(memory.os, "memfd_create", refused)
    with pytest.raises(OSError, match="Too many open files"):
        SharedFile()
    assert not unraisable


def test_file_is_seen_by_its_name(file):
    file.grow(100)
    with file.map() as written:
        written[:5] = b"hello"
    with map_private(file.name) as seen:
        assert seen[:5] == b"hello"


def test_closing_twice_does_no_harm(file):
    file.close()
    descriptor = os.open(os.devnull, os.O_RDONLY)
    file.close()
    os.close(descriptor)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_no_room_is_a_memory_error(file):
    expected = r"shared memory for 1,073,741,824 bytes could not be had \(.*\): use a smaller batch"
    with file_size_limit(mmap.PAGESIZE), pytest.raises(MemoryError, match=expected):
        file.grow(2**30)


def test_room_is_taken_when_a_file_grows(file):
    """Not when it is written to, as that would kill the process."""
    file.grow(2**20)
    descriptor = os.open(file.name.path, os.O_RDWR)
    try:
        assert os.fstat(descriptor).st_blocks * 512 >= 2**20
        grow(descriptor, 2**21)
        assert os.fstat(descriptor).st_blocks * 512 >= 2**21
    finally:
        os.close(descriptor)
