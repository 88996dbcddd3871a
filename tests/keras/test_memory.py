"""Whatever memory a batch lies in, and whoever writes to it later: it stays what it was."""

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
from adapters.structure import flatten, map_leaves
from adapters.transforms import RandomErasing
from tests.fuzzing import examples
from tests.keras import recording
from tests.keras.recording import AUTO, BACKEND, FOUR_THREADS, INLINE, PROCESSES, echo, to_host
from tests.keras.samples import BATCH_SIZE
from tests.memory import FRAMEWORKS, WAYS, Giver, Kind

pytestmark = pytest.mark.one_keras
ROWS = 4
BATCHES = 7
OF_NUMPY = [way for way in WAYS if way not in FRAMEWORKS]
INSTALLED = [way for way, (library, _) in FRAMEWORKS.items() if find_spec(library)]
Structure = Any


def structures(ways: list[str]) -> st.SearchStrategy[Structure]:
    shapes = st.lists(st.integers(1, 40), min_size=1, max_size=2).map(lambda sizes: (ROWS, *sizes))
    dtypes = st.sampled_from(["float32", "int64", "uint8"])
    kind = st.builds(Kind, st.sampled_from(ways), dtypes, shapes)
    named = st.fixed_dictionaries({"one": kind, "other": kind})
    return st.one_of(
        kind,
        st.tuples(kind, kind),
        st.tuples(st.tuples(kind, kind), kind),
        st.tuples(named, kind, kind),
        named,
    )


class Batches(keras.utils.PyDataset):
    """Whole batches; at the end of an epoch their author writes over all memory."""

    def __init__(self, structure: Structure) -> None:
        super().__init__()
        self.givers = map_leaves(Giver, structure)

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> Any:
        return map_leaves(lambda giver: giver.give(index), self.givers)

    def on_epoch_end(self) -> None:
        for giver in flatten(self.givers)[0]:
            giver.spoil()


def check(source: Any, structure: Structure, **options: Any) -> None:
    with SafeSequence(source, ROWS, **options) as sequence:
        passes = [list(sequence), list(sequence), [sequence[number] for number in range(BATCHES)]]
    for number, batches in enumerate(passes):
        assert len(batches) == BATCHES
        for place, batch in enumerate(batches):
            for kind, array in zip(flatten(structure)[0], flatten(batch)[0], strict=True):
                said = f"pass {number}, batch {place}, {kind}"
                np.testing.assert_array_equal(np.asarray(array), kind.content(place), said)


@pytest.fixture(scope="module", autouse=True)
def numpy_in_workers() -> Any:
    """As ``light_workers``, for all examples of a fuzz."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_BACKEND", "numpy")
        yield


@settings(max_examples=examples(60))
@given(structures(OF_NUMPY + INSTALLED), st.sampled_from([INLINE, FOUR_THREADS, AUTO]))
def test_batches_of_a_py_dataset(structure, workers):
    check(Batches(structure), structure, **workers)


@pytest.mark.one_backend
@settings(max_examples=examples(20))
@given(structures(OF_NUMPY))
def test_batches_of_processes(structure):
    check(Batches(structure), structure, **PROCESSES)


# --- what models get ---


WIDTH = 16
SHAPE = 4, WIDTH
EXPECTED = np.concatenate([Kind("new", "float32", SHAPE).content(n) for n in range(BATCHES)])


class Giving(keras.utils.PyDataset):
    """Batches in memory as ``way`` says, each with its first column as labels.

    If it is thread-safe, each thread has memory of its own.
    """

    def __init__(self, way: str, thread_safe: bool = False) -> None:
        super().__init__()
        self.way, self.thread_safe = way, thread_safe
        self.givers: dict[int, Giver] = {}

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> Any:
        thread = threading.get_ident() if self.thread_safe else 0
        x = self.givers.setdefault(thread, Giver(Kind(self.way, "float32", SHAPE))).give(index)
        return x, x[:, :1]


def test_predict():
    model, workers_of = echo(), itertools.cycle([INLINE, FOUR_THREADS, AUTO])
    for way, workers in zip(["one buffer", "Fortran", "read-only", *INSTALLED], workers_of):
        with SafeSequence(Giving(way), **workers) as sequence:
            predicted = model.predict(sequence, verbose=0)
        np.testing.assert_array_equal(predicted, EXPECTED, way)


def stacked(samples: Any) -> Any:
    return np.stack([flatten(sample)[0][0] for sample in samples])


class Samples:
    def __init__(self, function: Any) -> None:
        self.function = function

    def __len__(self) -> int:
        return 6

    def __getitem__(self, number: int) -> Any:
        return self.function(number)


# Each part of the user's code that may fill one buffer, each way to keep it, and each workers.
@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("made_by", "kept", "collate", "workers"),
    [
        ("source", "array", stacked, INLINE),
        ("source", "tuple", pad(), FOUR_THREADS),
        ("source", "dict", stacked, AUTO),
        ("transform", "array", stacked, AUTO),
        ("transform", "tuple", None, FOUR_THREADS),
        ("transform", "dict", pad(), PROCESSES),
        ("on_error", "array", pad(), FOUR_THREADS),
        ("on_error", "tuple", stacked, INLINE),
        ("on_error", "dict", None, PROCESSES),
        ("collate", "array", None, INLINE),
        ("collate", "tuple", None, PROCESSES),
        ("batch_transform", "array", None, PROCESSES),
        ("batch_transform", "dict", None, FOUR_THREADS),
    ],
)
def test_one_buffer(made_by, kept, collate, workers):
    buffer = np.empty(3 if made_by in ("collate", "batch_transform") else 2)
    returned = {"array": buffer, "tuple": (buffer, 0), "dict": {"x": buffer[:]}}[kept]

    def fill(numbers: Any, number: Any = None) -> Any:
        buffer[:] = numbers if number is None else number
        return returned

    def failing(number: Any) -> Any:
        raise ValueError

    source = Samples(fill) if made_by == "source" else np.arange(6.0)
    options = {"collate": collate} | ({} if made_by == "source" else {made_by: fill})
    if made_by == "on_error":
        options["transform"] = failing
    with SafeSequence(source, 3, **options, **workers) as sequence:
        firsts = [flatten(batch)[0][0].reshape(3, -1)[:, 0] for batch in list(sequence)]
    assert np.array(firsts).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.one_backend
def test_buffer_of_each_thread():
    with SafeSequence(Giving("one buffer", thread_safe=True), **FOUR_THREADS) as sequence:
        kept = list(sequence)
    np.testing.assert_array_equal(np.concatenate([x for x, _ in kept]), EXPECTED)


def test_batch_written_to_by_the_user():
    source = Giving("one buffer")
    with SafeSequence(source, **INLINE) as sequence:
        for x, _ in sequence:
            x[...] = -1
    assert source.givers[0].kept["one"].min() >= 0


def test_batch_transform_writes_into_no_kept_batch():
    kept = np.full((2, 8, 8), 9, np.uint8)
    options = {"collate": lambda samples: kept, "batch_transform": RandomErasing(1.0)}
    with SafeSequence([1, 2, 3, 4], 2, workers=0, **options) as sequence:
        assert [(batch == 0).any() for batch in list(sequence)] == [True, True]
    assert (kept == 9).all()


# --- batches that somebody keeps, in blocks of memory that are used again ---


KEPT = 60
WORKERS = [
    pytest.param({**recording.TWO_THREADS, "max_queue_size": 3}, id="threads"),
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
    recorder = recording.Recorder(on_host=False)
    with SafeSequence((wide(), wide()), BATCH_SIZE, **workers) as sequence:
        recorder.fit(sequence, epochs=2, shuffle=False, verbose=0)
    kept = np.concatenate([to_host(batch)[0] for batch in recorder.lists.trained])
    np.testing.assert_array_equal(kept, np.concatenate([wide(), wide()]))
