"""What somebody else can reach is copied when it is taken, and what is handed over isn't."""

from __future__ import annotations

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


def weakly_kept() -> Any:
    array = fresh()
    KEPT.append(weakref.ref(array))
    return array


def seen_in_a_call(made: Callable[[], Any]) -> tuple[list[int], list[int]]:
    """Where the arrays lie that are taken, and where those were that the call returned."""
    seen: list[int] = []

    def call() -> Any:
        batch = made()
        seen.extend(addresses_of(batch))
        return batch

    return addresses_of(taken(call, aligned_empty)), seen


HANDED_OVER: dict[str, Callable[[], Any]] = {
    "a dict in a tuple": lambda: ({"x": fresh()}, fresh()),
    "a list": lambda: [fresh(), fresh()],
    "an array twice": lambda: (lambda x: (x, x))(fresh()),
    "a view of a view": lambda: fresh()[4:][::2].reshape(2, -1),
    "a part of bytes": lambda: np.frombuffer(keep(fresh().tobytes()), np.float32)[4:],
    "what was unpickled": lambda: pickle.loads(pickle.dumps(fresh())),
    "read-only, forgotten": lambda: (lambda x: (x.setflags(write=False), x)[1])(fresh()),
}
KEPT_BY_SOMEBODY: dict[str, Callable[[], Any]] = {
    "a view beside a view that is kept": lambda: (lambda x: (keep(x[:2]), x[2:])[1])(fresh()),
    "in a tuple that is kept": lambda: keep((fresh(), fresh())),
    "read-only view": lambda: np.broadcast_to(keep(fresh()), (3, 24)),
    "a memoryview": lambda: (lambda x: (keep(memoryview(x)), x)[1])(fresh()),
    "a bytearray": lambda: np.frombuffer(bytearray(96), np.float32),
    "mmap": lambda: np.frombuffer(mmap.mmap(-1, 64), np.float32),
    "a weak reference": weakly_kept,
    "a constant structure of lists": lambda: keep([fresh(), [fresh()]]),
    "a masked array": lambda: np.ma.masked_less(fresh(), 3),
}


@pytest.mark.parametrize("made", HANDED_OVER.values(), ids=HANDED_OVER)
def test_handed_over_is_not_copied(made):
    found, seen = seen_in_a_call(made)
    assert found == seen


@pytest.mark.parametrize("made", KEPT_BY_SOMEBODY.values(), ids=KEPT_BY_SOMEBODY)
def test_kept_by_somebody_is_copied(made):
    found, seen = seen_in_a_call(made)
    assert not set(found) & set(seen)


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


@pytest.mark.parametrize("item", ["a", b"a", 1, 1.5, None, np.float32(1), fresh])
def test_detached_keeps_what_cannot_change(item):
    assert detached(item) is item
