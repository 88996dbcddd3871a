"""What somebody else can reach is copied when it is taken, and what is handed over isn't."""

from __future__ import annotations

import functools
import mmap
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from adapters.alignment import aligned_empty
from adapters.ownership import detached, taken
from adapters.structure import flatten
from tests.batches import exact

KEPT: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    KEPT.clear()


def keep(thing: Any) -> Any:
    """Have somebody else refer to it."""
    KEPT.append(thing)
    return thing


def fresh(size: int = 24) -> Any:
    return np.arange(size, dtype=np.float32)


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def addresses_of(batch: Any) -> list[int]:
    return [address(leaf) for leaf in flatten(batch)[0]]


def held_generator() -> Any:
    def generate() -> Iterator[Any]:
        buffer = fresh()
        while True:
            yield buffer

    return next(keep(generate()))


def cached() -> Any:
    return keep(functools.lru_cache(fresh))()


def through_mmap() -> Any:
    return np.frombuffer(mmap.mmap(-1, 64), np.float32)


def weakly_kept() -> Any:
    array = fresh()
    KEPT.append(weakref.ref(array))
    return array


def buffer_of_a_closure() -> Any:
    buffer = fresh()

    def fill() -> Any:
        return buffer

    return keep(fill)()


class Masked:
    """An array with more to it."""


HANDED_OVER: dict[str, Callable[[], Any]] = {
    "an array": fresh,
    "a pair": lambda: (fresh(), fresh()),
    "a dict in a tuple": lambda: ({"x": fresh()}, fresh()),
    "a list": lambda: [fresh(), fresh()],
    "a view of a forgotten array": lambda: fresh().reshape(4, 6)[::2, 1:],
    "two views of one array": lambda: (lambda both: (both[:, :3], both[:, 3]))(
        fresh().reshape(4, 6)
    ),
    "one array twice": lambda: (lambda x: (x, x))(fresh()),
    "an array and a view of it": lambda: (lambda x: (x, x[::2]))(fresh()),
    "a view of a view": lambda: fresh()[4:][::2].reshape(2, -1),
    "bytes": lambda: np.frombuffer(keep(fresh().tobytes()), np.float32),
    "a view of bytes": lambda: np.frombuffer(keep(fresh().tobytes()), np.float32).reshape(4, 6),
    "a part of bytes": lambda: np.frombuffer(memoryview(keep(fresh().tobytes()))[16:], np.float32),
    "what was unpickled": lambda: pickle.loads(pickle.dumps(fresh())),
    "Fortran's order": lambda: np.asfortranarray(fresh().reshape(4, 6)),
    "read-only, forgotten": lambda: (lambda x: (x.setflags(write=False), x)[1])(fresh()),
}
KEPT_BY_SOMEBODY: dict[str, Callable[[], Any]] = {
    "an attribute": lambda: keep(fresh()),
    "a view of what is kept": lambda: keep(fresh())[3:],
    "a view beside a view that is kept": lambda: (lambda x: (keep(x[:2]), x[2:])[1])(fresh()),
    "in a tuple that is kept": lambda: keep((fresh(), fresh())),
    "in a dict that is kept": lambda: keep({"x": fresh()}),
    "read-only view": lambda: np.broadcast_to(keep(fresh()), (3, 24)),
    "a generator's own": held_generator,
    "a cache": cached,
    "a closure": buffer_of_a_closure,
    "a memoryview": lambda: (lambda x: (keep(memoryview(x)), x)[1])(fresh()),
    "a bytearray": lambda: np.frombuffer(bytearray(96), np.float32),
    "mmap": through_mmap,
    "a weak reference": weakly_kept,
    "a constant structure of lists": lambda: keep([fresh(), [fresh()]]),
    "a masked array": lambda: np.ma.masked_less(fresh(), 3),
}


@pytest.mark.parametrize("made", HANDED_OVER.values(), ids=HANDED_OVER)
def test_handed_over_is_not_copied(made):
    seen: list[int] = []

    def call() -> Any:
        batch = made()
        seen.extend(addresses_of(batch))
        return batch

    batch = taken(call, aligned_empty)
    assert addresses_of(batch) == seen


@pytest.mark.parametrize("made", KEPT_BY_SOMEBODY.values(), ids=KEPT_BY_SOMEBODY)
def test_kept_by_somebody_is_copied(made):
    seen: list[int] = []

    def call() -> Any:
        batch = made()
        seen.extend(addresses_of(batch))
        return batch

    batch = taken(call, aligned_empty)
    assert not set(addresses_of(batch)) & set(seen)


def test_numbers_of_numpy_become_arrays():
    assert isinstance(taken(lambda: (fresh(), np.float32(3)), aligned_empty)[1], np.ndarray)


def test_handed_over_by_a_sequence_is_not_copied():
    from adapters.sources import SequenceSource

    seen: list[int] = []

    class Fresh:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, number: int) -> Any:
            batch = np.zeros((10 << 20,), np.uint8), np.zeros(4)
            seen.extend(map(address, batch))
            return batch

    batch = SequenceSource(Fresh(), False).batch(0)
    assert addresses_of(batch) == seen


def test_copies_lie_in_given_memory_unless_small():
    given: list[Any] = []

    def allocate(shape: Any, dtype: Any) -> Any:
        given.append(np.empty(shape, dtype))
        return given[-1]

    large = np.zeros(1 << 14)
    batch = taken(lambda: (keep(large), keep(fresh()), fresh()), allocate)
    assert [each is batch[0] for each in given] == [True]


@pytest.mark.parametrize(
    "dtype", [">f4", "?", "f2", "f8", "c16", "M8[s]", "g", "U2", [("a", "i4")]]
)
def test_copies_may_be_written_to(dtype):
    for shape in [(), (1,), (0, 3), (2, 3)]:
        original = keep(np.ones(shape, "i8").astype(np.dtype(dtype)))
        original.flags.writeable = False
        copy, _ = taken(lambda made=original: (made, 1), aligned_empty)
        assert exact(copy) == exact(original)
        assert copy.flags.writeable
        assert not np.shares_memory(copy, original)


def test_copy_of_one_array_in_two_places_is_one():
    x = keep(fresh())
    first, second = taken(lambda: (x, x), aligned_empty)
    assert first is second


def test_copy_of_objects_in_an_array():
    item = np.zeros(2)
    array = np.empty(2, object)
    array[:] = [item, "text"]
    batch = taken(lambda: array, aligned_empty)
    item += 1
    assert exact(batch[0]) == exact(np.zeros(2))


@pytest.mark.parametrize("item", [bytearray(b"a"), {1}, [np.zeros(1)], {"a": np.zeros(1)}])
def test_detached_is_what_can_change(item):
    assert detached(item) is not item


@pytest.mark.parametrize("item", ["a", b"a", 1, 1.5, None, np.float32(1), Masked()])
def test_detached_keeps_what_cannot_change(item):
    assert detached(item) is item


@pytest.mark.full  # To import PyTorch takes seconds.
def test_copy_of_a_tensor():
    torch = pytest.importorskip("torch", reason="PyTorch is an optional framework")
    tensor = torch.zeros(4)
    batch, view = (taken(each, aligned_empty) for each in (lambda: tensor, lambda: tensor[:2]))
    tensor += 1
    assert (batch.tolist(), view.tolist()) == ([0, 0, 0, 0], [0, 0])
