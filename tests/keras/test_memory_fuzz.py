"""Whatever memory a batch lies in, and whoever writes to it later: it stays what it was.

Random structures of arrays in all ways of `tests.memory`, from a ``PyDataset``, a source of
samples, one with ``__getitems__`` and a ``batch_transform``.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters import SafeSequence
from tests.fuzzing import examples
from tests.keras.recording import AUTO, FOUR_THREADS, INLINE, PROCESSES
from tests.memory import FRAMEWORKS, WAYS, Giver, Kind

pytestmark = pytest.mark.one_keras  # What becomes of the batches in fit is tested elsewhere.
ROWS = 4
BATCHES = 7
OF_NUMPY = [way for way in WAYS if way not in FRAMEWORKS]
INSTALLED = [way for way, (library, _) in FRAMEWORKS.items() if find_spec(library)]
Structure = Any
"""Of `Kind`, in tuples and dicts."""


def kinds(ways: list[str], rows: int | None = ROWS) -> st.SearchStrategy[Kind]:
    inner = st.lists(st.integers(1, 40), min_size=1, max_size=2)
    shapes = inner.map(lambda sizes: (*([] if rows is None else [rows]), *sizes))
    return st.builds(
        Kind, st.sampled_from(ways), st.sampled_from(["float32", "int64", "uint8"]), shapes
    )


def structures(ways: list[str], rows: int | None = ROWS) -> st.SearchStrategy[Structure]:
    kind = kinds(ways, rows)
    named = st.fixed_dictionaries({"one": kind, "other": kind})
    return st.one_of(
        kind,
        st.tuples(kind, kind),
        st.tuples(st.tuples(kind, kind), kind),
        st.tuples(named, kind, kind),
        named,
    )


def mapped(function: Any, structure: Structure) -> Any:
    """The same structure of what the function makes of its leaves."""
    if isinstance(structure, tuple):
        return tuple(mapped(function, each) for each in structure)
    if isinstance(structure, dict):
        return {name: mapped(function, each) for name, each in structure.items()}
    return function(structure)


def leaves(structure: Structure) -> list[Any]:
    found: list[Any] = []
    mapped(found.append, structure)
    return found


class Batches(keras.utils.PyDataset):
    """Whole batches; at the end of an epoch their author writes over all memory."""

    def __init__(self, structure: Structure) -> None:
        super().__init__()
        self.givers = mapped(Giver, structure)

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> Any:
        return mapped(lambda giver: giver.give(index), self.givers)

    def on_epoch_end(self) -> None:
        for giver in leaves(self.givers):
            giver.spoil()


class Samples:
    """One sample at a time; thread-safe it is not."""

    def __init__(self, structure: Structure) -> None:
        self.givers = mapped(Giver, structure)

    def __len__(self) -> int:
        return ROWS * BATCHES

    def __getitem__(self, index: int) -> Any:
        return mapped(lambda giver: giver.give(index), self.givers)


class Together(Samples):
    """Asked for many samples at once, it gives the same list with the same samples in it."""

    def __init__(self, structure: Structure) -> None:
        super().__init__(structure)
        self.listed: list[Any] = []

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        # As many givers as a batch has samples: within a batch no memory is used again.
        self.listed[:] = [self.each(place)(number) for place, number in enumerate(numbers)]
        return self.listed

    def each(self, place: int) -> Any:
        places = self.__dict__.setdefault("places", {})
        if place not in places:
            places[place] = mapped(lambda giver: Giver(giver.kind), self.givers)
        return lambda number: mapped(lambda giver: giver.give(number), places[place])


class Again:
    """A ``batch_transform`` that gives what it gets in memory of its own."""

    def __init__(self, ways: list[str]) -> None:
        self.ways = ways
        self.givers: list[Giver] = []

    def __call__(self, batch: Any) -> Any:
        place = iter(range(100))

        def again(leaf: Any) -> Any:
            number, array = next(place), np.asarray(leaf)
            if number == len(self.givers):
                way = self.ways[number % len(self.ways)]
                self.givers.append(Giver(Kind(way, array.dtype.name, array.shape)))
            giver = self.givers[number]
            giver.calls += 1
            return WAYS[giver.kind.way](giver, array.copy())

        return mapped(again, batch)


def same(found: Any, structure: Structure, number: int, message: str) -> None:
    for kind, array in zip(leaves(structure), leaves(found), strict=True):
        if len(kind.shape) and hasattr(array, "shape") and array.shape == kind.shape:
            expected = kind.content(number)
        else:
            first = number * ROWS
            expected = np.stack([kind.content(first + row) for row in range(ROWS)])
        np.testing.assert_array_equal(np.asarray(array), expected, f"{message} {kind}")


def check(source: Any, structure: Structure, **options: Any) -> None:
    """Two passes, whose batches are kept, and batches that are asked for."""
    with SafeSequence(source, ROWS, **options) as sequence:
        passes = [list(sequence), list(sequence), [sequence[number] for number in range(BATCHES)]]
    for number, batches in enumerate(passes):
        assert len(batches) == BATCHES
        for place, batch in enumerate(batches):
            same(batch, structure, place, f"pass {number}, batch {place},")


IN_THIS_PROCESS = st.sampled_from([INLINE, FOUR_THREADS, AUTO])
# Of one call: buffers that a thread of somebody else's would have to lock aren't tried on several.
ONE_AT_A_TIME = st.just(INLINE)


@settings(max_examples=examples(150))
@given(structures(OF_NUMPY + INSTALLED), IN_THIS_PROCESS)
def test_batches_of_a_py_dataset(structure, workers):
    check(Batches(structure), structure, **workers)


@settings(max_examples=examples(60))
@given(structures(OF_NUMPY), IN_THIS_PROCESS, st.lists(st.sampled_from(OF_NUMPY), min_size=1))
def test_what_a_batch_transform_gives(structure, workers, ways):
    transform = None if workers is FOUR_THREADS else Again(ways)
    check(Batches(structure), structure, batch_transform=transform, **workers)


@settings(max_examples=examples(60))
@given(structures(OF_NUMPY, rows=None), ONE_AT_A_TIME)
def test_samples(structure, workers):
    check(Samples(structure), structure, **workers)


@pytest.mark.one_backend
@settings(max_examples=examples(60))
@given(structures(OF_NUMPY, rows=None), ONE_AT_A_TIME)
def test_samples_that_are_given_together(structure, workers):
    check(Together(structure), structure, **workers)


@pytest.mark.full
@pytest.mark.one_backend
@pytest.mark.usefixtures("numpy_in_workers")
@settings(max_examples=examples(40))
@given(structures(OF_NUMPY), st.lists(st.sampled_from(OF_NUMPY), min_size=1))
def test_batches_from_processes(structure, ways):
    check(Batches(structure), structure, batch_transform=Again(ways), **PROCESSES)


@pytest.mark.one_backend
@pytest.mark.usefixtures("numpy_in_workers")
@settings(max_examples=examples(30))
@given(structures(OF_NUMPY, rows=None), st.sampled_from([Samples, Together]))
def test_samples_from_processes(structure, kind):
    check(kind(structure), structure, **PROCESSES)


@pytest.fixture(scope="module")
def numpy_in_workers() -> Any:
    """Worker processes import Keras without a framework behind it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_BACKEND", "numpy")
        yield
