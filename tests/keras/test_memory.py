"""Whatever memory a batch lies in, and whoever writes to it later: it stays what it was.

Random structures of arrays in all ways of `tests.memory`, from a ``PyDataset``, a source of
samples, one with ``__getitems__`` and a ``batch_transform``; then what models get of them.
"""

from __future__ import annotations

import itertools
import threading
from importlib.util import find_spec
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters import SafeSequence, pad
from adapters.transforms import RandomErasing
from tests.fuzzing import examples
from tests.keras.recording import (
    AUTO,
    BACKEND,
    FOUR_THREADS,
    INLINE,
    PROCESSES,
    TWO_THREADS,
    Recorder,
    echo,
    numbers,
    sequence_of,
    to_host,
)
from tests.keras.samples import BATCH_SIZE
from tests.memory import FRAMEWORKS, WAYS, Giver, Kind

pytestmark = pytest.mark.one_keras
ROWS = 4
BATCHES = 7
OF_NUMPY = [way for way in WAYS if way not in FRAMEWORKS]
INSTALLED = [way for way, (library, _) in FRAMEWORKS.items() if find_spec(library)]
Structure = Any


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


@pytest.fixture(scope="module", autouse=True)
def numpy_in_workers() -> Any:
    """Worker processes import Keras without a framework behind it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_BACKEND", "numpy")
        yield


ANY_WORKERS = st.sampled_from([INLINE, FOUR_THREADS, AUTO])


@settings(max_examples=examples(80))
@given(structures(OF_NUMPY + INSTALLED), ANY_WORKERS)
def test_batches_of_a_py_dataset(structure, workers):
    check(Batches(structure), structure, **workers)


@settings(max_examples=examples(60))
@given(structures(OF_NUMPY), ANY_WORKERS, st.lists(st.sampled_from(OF_NUMPY), min_size=1))
def test_batches_of_a_batch_transform(structure, workers, ways):
    transform = None if workers is FOUR_THREADS else Again(ways)
    check(Batches(structure), structure, batch_transform=transform, **workers)


@pytest.mark.one_backend
# Not on threads: buffers that a thread of somebody else's would have to lock aren't tried.
@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        (Samples, INLINE),
        (Together, PROCESSES),
        pytest.param(Samples, PROCESSES, marks=pytest.mark.full),
        pytest.param(Together, INLINE, marks=pytest.mark.full),
    ],
)
@settings(max_examples=examples(50))
@given(structure=structures(OF_NUMPY, rows=None))
def test_samples(kind, workers, structure):
    check(kind(structure), structure, **workers)


@pytest.mark.one_backend
@settings(max_examples=examples(20))
@given(structures(OF_NUMPY), st.lists(st.sampled_from(OF_NUMPY), min_size=1))
def test_batches_of_processes(structure, ways):
    check(Batches(structure), structure, batch_transform=Again(ways), **PROCESSES)


# --- what models get ---


WIDTH = 16
SHAPE = 4, WIDTH
EXPECTED = np.concatenate([Kind("new", "float32", SHAPE).content(n) for n in range(BATCHES)])


class Giving(keras.utils.PyDataset):
    """Batches in memory as ``way`` says, each with its first column as labels."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.giver = Giver(Kind(way, "float32", SHAPE))

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> Any:
        x = self.giver.give(index)
        return x, x[:, :1]


class ForEachThread(Giving):
    """Has a buffer for each of its threads."""

    thread_safe = True

    def __init__(self) -> None:
        super().__init__("new")
        self.own = threading.local()

    def __getitem__(self, index: int) -> Any:
        if not hasattr(self.own, "giver"):
            self.own.giver = Giver(Kind("one buffer", "float32", SHAPE))
        x = self.own.giver.give(index)
        return x, x[:, :1]


def test_predict():
    model, workers_of = echo_of(WIDTH), itertools.cycle([INLINE, FOUR_THREADS, AUTO])
    for way, workers in zip(OF_NUMPY + INSTALLED, workers_of):
        with SafeSequence(Giving(way), **workers) as sequence:
            predicted = model.predict(sequence, verbose=0)
        np.testing.assert_array_equal(predicted, EXPECTED, way)


@pytest.mark.one_backend
def test_buffer_of_each_thread():
    with SafeSequence(ForEachThread(), **FOUR_THREADS) as sequence:
        kept = list(sequence)
        predicted = echo_of(WIDTH).predict(sequence, verbose=0)
    np.testing.assert_array_equal(np.concatenate([x for x, _ in kept]), EXPECTED)
    np.testing.assert_array_equal(predicted, EXPECTED)


def test_batch_written_to_by_the_user():
    source = Giving("one buffer")
    with SafeSequence(source, **INLINE) as sequence:
        for x, _ in sequence:
            x[...] = -1
        assert source.giver.kept["one"].min() >= 0


def echo_of(width: int) -> Any:
    """A model that predicts what it is given."""
    return keras.Sequential([keras.Input((width,)), keras.layers.Identity()])


def refilled(shape: Any) -> Any:
    """A function that fills its one buffer with each sample, and returns it in that shape."""
    buffer = np.empty(2)
    kept = {"array": buffer, "tuple": (buffer, 0), "dict": {"x": buffer[:]}}[shape]

    def fill(number: Any) -> Any:
        buffer[:] = number
        return kept

    return fill


class Refilling:
    """A data set that is such a function."""

    def __init__(self, shape: str) -> None:
        self.fill = refilled(shape)

    def __len__(self) -> int:
        return 6

    def __getitem__(self, number: int) -> Any:
        return self.fill(number)


def leaf_of(batch: Any) -> Any:
    """The array in such a batch, or sample."""
    if isinstance(batch, np.ndarray):
        return batch
    return batch["x"] if isinstance(batch, dict) else batch[0]


def stacked(samples: Any) -> Any:
    return np.stack([leaf_of(sample) for sample in samples])


# Each two of them meet.
REFILLED = [
    ("array", None, "source", INLINE),
    ("array", stacked, "transform", FOUR_THREADS),
    ("array", pad(), "on_error", AUTO),
    ("tuple", None, "transform", AUTO),
    ("tuple", stacked, "on_error", INLINE),
    ("tuple", pad(), "source", FOUR_THREADS),
    ("dict", None, "on_error", FOUR_THREADS),
    ("dict", stacked, "source", AUTO),
    ("dict", pad(), "transform", INLINE),
]


@pytest.mark.one_backend
@pytest.mark.parametrize(("shape", "collate", "made_by", "workers"), REFILLED)
def test_batch_of_refilled_samples(shape, collate, made_by, workers):
    def failing(number: Any) -> Any:
        raise ValueError

    fill, options = refilled(shape), dict(workers, collate=collate)
    source: Any = Refilling(shape) if made_by == "source" else np.arange(6.0)
    if made_by == "transform":
        options["transform"] = fill
    elif made_by == "on_error":
        options |= {"transform": failing, "on_error": lambda error, number: fill(number)}
    with SafeSequence(source, 3, **options) as sequence:
        found = [leaf_of(batch)[:, 0].tolist() for batch in sequence]
    assert found == [[0, 1, 2], [3, 4, 5]]


def test_collate_keeps_its_batch():
    kept = np.zeros(2)

    def refill(samples: list[Any]) -> Any:
        kept[:] = samples
        return kept

    sequence = SafeSequence([1, 2, 3, 4], 2, collate=refill, workers=0)
    assert [batch.tolist() for batch in list(sequence)] == [[1, 2], [3, 4]]


def test_batch_transform_after_collate():
    kept = np.full((2, 8, 8), 9, np.uint8)
    sequence = SafeSequence(
        [1, 2, 3, 4],
        2,
        collate=lambda samples: kept,
        batch_transform=RandomErasing(1.0),
        workers=0,
    )
    assert [(batch == 0).any() for batch in list(sequence)] == [True, True]
    assert (kept == 9).all()


IMAGES = np.random.default_rng(0).integers(0, 256, (30, 16, 16, 3), np.uint8)


def test_batch_kept_by_the_data_set():
    class Kept(keras.utils.PyDataset):
        thread_safe = True

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return IMAGES[index * 8 : index * 8 + 8]

    before = IMAGES.copy()
    for batch in SafeSequence(Kept(), batch_transform=RandomErasing(1.0), workers=0):
        assert (batch != before[:8]).any()
    assert (before == IMAGES).all()


# --- batches that somebody keeps, in blocks of memory that are used again ---


KEPT = 60
WORKERS = [
    pytest.param({**TWO_THREADS, "max_queue_size": 3}, id="threads"),
    pytest.param({**PROCESSES, "max_queue_size": 3}, id="processes"),
]


def wide() -> np.ndarray:
    """Rows of more batches than there are slots of shared memory, aligned and aliased."""
    return np.arange(KEPT * BATCH_SIZE * 64, dtype=np.float32).reshape(-1, 64)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("workers", WORKERS)
def test_kept_batches(workers):
    puts = [keras.ops.convert_to_tensor, lambda batch: batch]
    if BACKEND == "jax":
        import jax

        puts += [jax.numpy.asarray, jax.device_put]
    with SafeSequence(wide(), BATCH_SIZE, **workers) as sequence:
        np.testing.assert_array_equal(echo().predict(sequence, verbose=0), wide())
        kept = [[put(batch) for put in puts] for batch in sequence]
    for batches in zip(*kept):
        np.testing.assert_array_equal(np.concatenate(to_host(list(batches))), wide())


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("workers", WORKERS)
def test_batches_kept_by_the_steps_of_fit(workers):
    recorder = Recorder(on_host=False)
    with SafeSequence((wide(), wide()), BATCH_SIZE, **workers) as sequence:
        recorder.fit(sequence, epochs=2, shuffle=False, verbose=0)
    kept = np.concatenate([to_host(batch)[0] for batch in recorder.lists.trained])
    np.testing.assert_array_equal(kept, np.concatenate([wide(), wide()]))


@pytest.mark.usefixtures("small_blocks")
def test_writing_into_a_batch():
    with sequence_of(4, **PROCESSES) as sequence:
        for features, _ in sequence:
            features[...] = -1
        assert next(numbers(batch) for batch in sequence) == [0, 1, 2, 3]
