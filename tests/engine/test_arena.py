"""Memory of large batches: used again, and never while an array refers to it."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from adapters.alignment import ALIGNMENT_BYTES, aligned_empty
from adapters.engine import memory as module
from adapters.engine.memory import _MOST_FREE, Arena
from tests.batches import exact
from tests.engine.executors import THREADS, opened
from tests.engine.workloads import Numbers

_LEAST_BYTES = 1 << 20
_LARGE = (_LEAST_BYTES,)
_BYTES = np.dtype(np.uint8)


@pytest.fixture(autouse=True)
def large_is_a_mebibyte(monkeypatch):
    monkeypatch.setattr(module, "_LEAST_BYTES", _LEAST_BYTES)


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize(
    "dtype", ["u1", "?", "f2", ">f4", "f8", "c16", "M8[s]", "U3", "S5", [("a", "u1"), ("b", "f4")]]
)
def test_an_array_is_as_asked_for_aligned_and_writable(dtype):
    dtype = np.dtype(dtype)
    count = _LEAST_BYTES // dtype.itemsize + 1
    array = Arena().empty((count, 3), dtype)
    assert (array.shape, array.dtype, array.strides) == (
        (count, 3),
        dtype,
        (3 * dtype.itemsize, dtype.itemsize),
    )
    assert array.flags.c_contiguous
    assert array.flags.aligned
    assert address(array) % ALIGNMENT_BYTES == 0
    array[...] = np.zeros((), dtype)
    assert not (array != np.zeros((), dtype)).any()


def test_memory_that_nobody_refers_to_is_used_again():
    arena = Arena()
    array = arena.empty(_LARGE, _BYTES)
    where = address(array)
    del array
    assert address(arena.empty(_LARGE, _BYTES)) == where


@pytest.mark.parametrize(
    "part",
    [
        lambda array: array,
        lambda array: array[5:9],
        lambda array: array[::-1].reshape(2, -1)[:, 3].T,
        lambda array: array.view(np.uint32),
        memoryview,
        lambda array: np.asarray(memoryview(array)[3:]),
        iter,
    ],
    ids=[
        "itself",
        "a view",
        "a view of views",
        "other bytes",
        "a buffer",
        "of a buffer",
        "iterator",
    ],
)
def test_whoever_refers_to_a_part_has_the_memory_for_itself(part):
    arena = Arena()
    array = arena.empty(_LARGE, _BYTES)
    where = address(array)
    held = part(array)
    del array
    gc.collect()
    others = [arena.empty(_LARGE, _BYTES) for _ in range(3)]
    assert where not in map(address, others)
    del others, held
    gc.collect()
    assert where in {address(other) for other in [arena.empty(_LARGE, _BYTES) for _ in range(4)]}


def test_small_arrays_and_python_objects_are_their_own():
    arena = Arena()
    for shape, dtype in (((_LEAST_BYTES - 1,), "u1"), (_LARGE, "O"), ((0, 7), "f8"), ((), "f8")):
        array = arena.empty(shape, np.dtype(dtype))
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        del array
    assert not arena._free


def test_a_little_array_does_not_take_a_large_block():
    arena = Arena()
    sizes = [_LEAST_BYTES, 2 * _LEAST_BYTES, 5 * _LEAST_BYTES]
    arrays = [arena.empty((size,), _BYTES) for size in sizes]
    where = {size: address(array) for size, array in zip(sizes, arrays)}
    del arrays
    again = {size: arena.empty((size,), _BYTES) for size in reversed(sizes)}
    assert {size: address(array) for size, array in again.items()} == where
    del again
    array = arena.empty((2 * _LEAST_BYTES + 1,), _BYTES)
    assert address(array) not in where.values()


def test_of_many_that_are_let_go_only_some_are_kept():
    arena = Arena()
    arrays = [arena.empty(_LARGE, _BYTES) for _ in range(20)]
    assert len(set(map(address, arrays))) == 20
    del arrays
    assert len(arena._free) == _MOST_FREE


def test_closing_keeps_nothing_and_harms_nobody():
    arena = Arena()
    held = arena.empty(_LARGE, _BYTES)
    held[...] = 7
    arena.empty(_LARGE, _BYTES)
    assert len(arena._free) == 1
    arena.close()
    assert not arena._free
    other = arena.empty(_LARGE, _BYTES)
    other[...] = 1
    assert set(held.tolist()) == {7}
    del held, other
    assert not arena._free


def test_arrays_outlive_the_arena():
    arena = Arena()
    held = arena.empty(_LARGE, _BYTES)
    held[...] = 7
    del arena
    gc.collect()
    other = np.full(_LARGE, 1, _BYTES)
    assert set(held.tolist()) == {7}
    assert other[0] == 1


def test_threads_never_share_a_block():
    arena = Arena()

    def work(number: int) -> bool:
        for step in range(200):
            array = arena.empty(_LARGE, _BYTES)
            array[:: 1 << 12] = number
            other = arena.empty((_LEAST_BYTES + step,), _BYTES)
            other[:: 1 << 12] = number
            if not (array[:: 1 << 12] == number).all():
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def megabytes(sample: int) -> Any:
    return np.full((1 << 18,), sample, np.float32), sample


@pytest.mark.parametrize("executor", ["inline", *THREADS])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_large_batches_that_are_kept_stay_and_others_share_their_memory(
    executor, batch_size, monkeypatch
):
    """Those of the reader's thread, whole ones of threads, and what several write parts of."""
    blocks = []

    def new_block(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        blocks.extend([shape] if dtype == _BYTES else [])
        return aligned_empty(shape, dtype)

    monkeypatch.setattr(module, "aligned_empty", new_block)
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
