"""The same arguments give what MXNet's own DataLoader gives: structure, types, dtypes, values."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import (
    ArrayDataset,
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
)
from mxnet.gluon.data.vision import MNIST
from mxnet.gluon.data.vision.transforms import ToTensor

from adapters import gluon_loader
from tests.gluon.data_sets import (
    IN_MEMORY,
    SIZE,
    Pair,
    Triples,
    assert_same,
    downloaded,
    folder_data_set,
    labels,
    nd,
    numpy_semantics,
    pixels,
    record_data_set,
    theirs,
)
from tests.gluon.executors import THREADS as ON_THREADS
from tests.gluon.executors import opened

INLINE = {"num_workers": 0}
THREADS = {"num_workers": 2, "thread_pool": True}
AUTO = {"num_workers": "auto"}
PROCESSES = {"num_workers": 2, "thread_pool": False}
WORKERS = pytest.mark.parametrize("workers", [INLINE, THREADS], ids=["inline", "threads"])
SEMANTICS = pytest.mark.parametrize("semantics", [False, True], ids=["nd", "np"])


def ours(data: Any, **arguments: Any) -> list[Any]:
    """One epoch of our batches."""
    with gluon_loader(data, **arguments) as loader:
        return list(loader)


# --- data sets ---


@SEMANTICS
@WORKERS
@pytest.mark.parametrize("name", IN_MEMORY)
def test_data_set_gives_the_same_batches(name, workers, semantics):
    with numpy_semantics(semantics):
        expected = theirs(IN_MEMORY[name](), batch_size=4)
        assert_same(ours(IN_MEMORY[name](), batch_size=4, **workers), expected)


@pytest.mark.parametrize("name", ["MNIST", "lists", "SimpleDataset of tuples", "transform"])
def test_workers_chosen_by_measurement_give_the_same_batches(name):
    expected = theirs(IN_MEMORY[name](), batch_size=2)
    assert_same(ours(IN_MEMORY[name](), batch_size=2, **AUTO), expected)


@SEMANTICS
def test_worker_processes_give_the_same_batches(semantics):
    with numpy_semantics(semantics):
        # Members of every kind at once, as processes take their time to begin.
        members = [nd(pixels()), pixels(), list(range(SIZE)), Triples(), [Pair(1, (2.5,))] * SIZE]
        data = ArrayDataset(*members).transform_first(ToTensor())
        assert_same(ours(data, batch_size=4, **PROCESSES), theirs(data, batch_size=4))


@pytest.mark.parametrize("workers", [INLINE, THREADS, PROCESSES])
@pytest.mark.parametrize("make", [record_data_set, folder_data_set])
def test_images_in_files_give_the_same_batches(make, workers, tmp_path):
    data = make(tmp_path)
    assert_same(ours(data, batch_size=4, **workers), theirs(data, batch_size=4))


@WORKERS
@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i4", "i8", "f2", "f4", "f8", ">f4", ">i4"])
def test_numpy_arrays_of_each_dtype_give_the_same_batches(dtype, workers):
    data = ArrayDataset(pixels().astype(dtype), (labels() * 1.6).astype(dtype))
    assert_same(ours(data, batch_size=4, **workers), theirs(data, batch_size=4))


@SEMANTICS
@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i4", "i8", "f2", "f4", "f8"])
def test_ndarrays_of_each_dtype_give_the_same_batches(dtype, semantics):
    with numpy_semantics(semantics):
        data = nd(pixels().astype(dtype))
        assert_same(ours(data, batch_size=4, **INLINE), theirs(data, batch_size=4))
        listed = [nd(row) for row in pixels().astype(dtype)]
        assert_same(ours(listed, batch_size=4, **INLINE), theirs(listed, batch_size=4))


def test_data_set_may_have_a_shape_of_its_own():
    class Volume(list):
        shape = np.array([4, 5])

    assert_same(ours(Volume(range(6)), batch_size=4, **INLINE), theirs(range(6), batch_size=4))


def test_arrays_as_a_tuple_are_an_array_dataset():
    columns = nd(pixels()), labels()
    assert_same(ours(columns, batch_size=4, **INLINE), theirs(ArrayDataset(*columns), batch_size=4))


# --- arguments ---


@WORKERS
@pytest.mark.parametrize("last_batch", [None, "keep", "discard", "rollover"])
@pytest.mark.parametrize("batch_size", [1, 3, 4, 11, 20])
def test_last_batch_is_treated_the_same_in_each_epoch(batch_size, last_batch, workers):
    data = ArrayDataset(labels(), labels())
    expected = DataLoader(data, batch_size, last_batch=last_batch)
    with gluon_loader(data, batch_size, last_batch=last_batch, **workers) as loader:
        for _ in range(4):
            assert len(loader) == len(expected)
            assert_same(list(loader), list(expected))
        assert len(loader) == len(expected)


@WORKERS
@pytest.mark.parametrize("name", ["MNIST", "triples of the user's own"])
@pytest.mark.parametrize("last_batch", ["keep", "discard", "rollover"])
def test_sampler_gives_the_same_batches(name, last_batch, workers):
    arguments = {
        "batch_size": 3,
        "sampler": [3, 1, 4, 1, 5, 9, 2, 6],
        "last_batch": last_batch,
    }
    data = IN_MEMORY[name]()
    expected = DataLoader(data, **arguments)
    with gluon_loader(data, **arguments, **workers) as loader:
        for _ in range(3):
            assert_same(list(loader), list(expected))


@WORKERS
@pytest.mark.parametrize("name", ["MNIST", "triples of the user's own"])
@pytest.mark.parametrize(
    "batch_sampler",
    [
        BatchSampler(SequentialSampler(5, 2), 2),
        [[0, 1], [5], [2, 2, 2]],
        [(0, 1), (5,)],
        [np.array([0, 10]), np.array([3])],
        [range(3), range(8, 2, -2)],
        [[-1, -11], [np.int64(-2)]],
    ],
    ids=["BatchSampler", "lists", "tuples", "arrays", "ranges", "negative"],
)
def test_batch_sampler_gives_the_same_batches(name, batch_sampler, workers):
    data = IN_MEMORY[name]()
    arguments = {"batch_sampler": batch_sampler}
    assert_same(ours(data, **arguments, **workers), theirs(data, **arguments))


def test_batch_sampler_may_give_iterators():
    def batches() -> Any:
        return [iter([1, 2]), map(int, "34")]

    expected = theirs(labels(), batch_sampler=batches())
    assert_same(ours(labels(), batch_sampler=batches(), **INLINE), expected)


@WORKERS
def test_samples_may_have_names(workers):
    class Named(dict):
        def __init__(self) -> None:
            super().__init__(a=1, b=2)

    arguments = {"batch_sampler": [["a", "b"], ["b"]]}
    assert_same(ours(Named(), **arguments, **workers), theirs(Named(), **arguments))


@WORKERS
def test_shuffle_without_a_seed_gives_each_sample_once(workers):
    with gluon_loader(downloaded(MNIST), 4, shuffle=True, **workers) as loader:
        for _ in range(3):
            images, numbers = zip(*(map(mx.nd.NDArray.asnumpy, batch) for batch in loader))
            numbers = np.concatenate(numbers)
            assert sorted(numbers) == sorted(labels())
            # Each image is still beside its label.
            expected = pixels(channels=1)[np.argsort(labels())[np.searchsorted(labels(), numbers)]]
            np.testing.assert_array_equal(np.concatenate(images), expected)


@pytest.mark.parametrize("flag", [1, np.bool_(True), np.int64(4)])
def test_arguments_may_be_numpys_numbers(flag):
    batch_size = np.int64(4)
    with gluon_loader(labels(), batch_size, shuffle=flag, **INLINE) as loader:
        assert [len(batch) for batch in loader] == [4, 4, 3]


# --- memory ---


@WORKERS
@pytest.mark.parametrize("make", [pixels, lambda: nd(pixels()), lambda: [*pixels()]])
def test_batch_changed_in_place_leaves_the_data_set_alone(make, workers):
    data = make()
    with gluon_loader(data, 4, **workers) as loader:
        for batch in loader:
            batch[:] = 0
    assert_same(theirs(data, batch_size=SIZE), theirs(make(), batch_size=SIZE))


def add_one(array: Any) -> None:
    array += 1


def set_ones(array: Any) -> None:
    array[:] = 1


def count_up(numbers: Any) -> None:
    numbers[0] += 1


@WORKERS
@pytest.mark.parametrize(
    ("make", "change"),
    [
        (labels, add_one),
        (lambda: nd(pixels()), set_ones),
        (lambda: nd(pixels()), add_one),
        (lambda: list(range(SIZE)), count_up),
        (lambda: [np.zeros(2) for _ in range(SIZE)], count_up),
    ],
    ids=["NumPy's", "an NDArray set", "an NDArray computed", "a list", "a list of arrays"],
)
def test_what_has_changed_between_epochs_is_seen(make, change, workers):
    data = make()
    with gluon_loader(ArrayDataset(data, data), 4, **workers) as loader:
        for _ in range(3):
            assert_same(list(loader), theirs(ArrayDataset(data, data), batch_size=4))
            change(data)


def test_semantics_are_those_of_the_loaders_making():
    for before, after in [(False, True), (True, False)]:
        with numpy_semantics(before):
            expected = DataLoader(labels(), 4)
            loader = gluon_loader(labels(), 4, **INLINE)
        with numpy_semantics(after), loader:
            assert_same(list(loader), list(expected))


def test_empty_data_set_has_no_batches():
    assert ours([], batch_size=2, **INLINE) == theirs([], batch_size=2) == []


# --- errors ---


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"batch_size": 2, "batch_sampler": [[0]]},
        {"shuffle": True, "batch_sampler": [[0]]},
        {"sampler": [0], "batch_sampler": [[0]]},
        {"last_batch": "keep", "batch_sampler": [[0]]},
        {"batch_size": 2, "shuffle": True, "sampler": RandomSampler(SIZE)},
    ],
    ids=lambda arguments: " and ".join(arguments) or "none",
)
def test_arguments_exclude_each_other_as_in_mxnet(arguments):
    loader = object.__new__(DataLoader)
    loader._worker_pool = None  # Or its __del__ raises, as __init__ doesn't get there.
    with pytest.raises(ValueError, match="must") as expected:
        loader.__init__(labels(), **arguments)
    with pytest.raises(ValueError, match="must") as info:
        gluon_loader(labels(), **arguments)
    assert str(info.value).rstrip(".") == str(expected.value).rstrip(".")


@WORKERS
@pytest.mark.parametrize(
    "samples",
    [
        np.arange(4, dtype=np.uint16),
        np.arange(4, dtype=np.uint32),
        [np.uint32(1)] * 4,
        ["a", "b"],
        [(1, "a")] * 4,
        [None, None],
    ],
    ids=["uint16", "uint32", "numbers", "str", "str in a tuple", "None"],
)
def test_samples_that_mxnet_has_no_type_for_are_type_errors(samples, workers):
    with pytest.raises(TypeError, match="of a dtype that MXNet has"):
        ours(samples, batch_size=2, **workers)


# --- subclasses of arrays ---


class Fives(np.ndarray):
    def __getitem__(self, index: Any) -> Any:
        return np.asarray(self)[index] * 0 + 5


@pytest.mark.filterwarnings("ignore:Warning. converting a masked element")
@pytest.mark.parametrize("executor", ["inline", ON_THREADS])
@pytest.mark.parametrize(
    "make",
    [
        lambda: np.ma.masked_array(np.arange(6.0), np.arange(6) % 2),
        lambda: np.arange(6.0).reshape(3, 2).view(Fives),
    ],
    ids=["masked", "overridden"],
)
def test_subclass_of_an_array_is_asked_for_its_rows(make, executor):
    with opened(make(), executor, 2) as loader:
        assert_same(list(loader), theirs(make(), batch_size=2))
