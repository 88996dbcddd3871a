"""What MXNet's own DataLoader gives: batches, and what transforms and batchifies are given."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
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
    SimpleDataset,
)
from mxnet.gluon.data.vision import MNIST, ImageRecordDataset
from mxnet.gluon.data.vision.transforms import Cast, Compose, RandomLighting, ToTensor

from adapters import ImageDecoder, RecordError, gluon_loader, open_records
from adapters.sources import Source
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
    outline,
    pixels,
    record_data_set,
    theirs,
)
from tests.gluon.executors import THREADS as ON_THREADS
from tests.gluon.executors import every_quick_executor, opened
from tests.images.pictures import encoded, npy, picture
from tests.sources.record_files import FORMATS, damage, write_images
from tests.sources.record_files import SIZE as RECORDS

INLINE = {"num_workers": 0}
THREADS = {"num_workers": 2, "thread_pool": True}
AUTO = {"num_workers": "auto"}
PROCESSES = {"num_workers": 1, "thread_pool": False}
WORKERS = pytest.mark.parametrize("workers", [INLINE, THREADS], ids=["inline", "threads"])
SEMANTICS = pytest.mark.parametrize("semantics", [False, True], ids=["nd", "np"])


def ours(data: Any, **arguments: Any) -> list[Any]:
    """One epoch of our batches."""
    with gluon_loader(data, **arguments) as loader:
        return list(loader)


# --- data sets ---


@pytest.mark.parametrize(
    ("semantics", "workers"), [(False, INLINE), (True, THREADS)], ids=["nd", "np"]
)
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
@pytest.mark.parametrize("batch_size", [1, 4, 11, 20])
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


# --- what a transform or a batchify is given ---


DECODES: dict[str, Any] = {
    "image": "image",
    "uint8": ImageDecoder(8),
    "float32": ImageDecoder(8, dtype="float32", layout="NCHW", mean=100, std=50),
    "any size": ImageDecoder(),
    "random": ImageDecoder(8, crop="random_resized", flip=True),
    "function": len,
    "bytes": lambda payload: np.frombuffer(payload, np.uint8)[:4].astype(np.int32),
}
LABELS: dict[str, Callable[[int], Any]] = {
    "numbers": lambda n: n,
    "two": lambda n: np.array([n, n / 2], np.float32),
}


@pytest.fixture(autouse=True)
def drawn_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """MXNet's loader draws what ours does in epoch 0 under seed 0, to be compared."""
    monkeypatch.setattr(Source, "_drawn", lambda self, number: self.sample(number))


def told(sample: Any) -> int:
    """A number that depends on the types, dtypes, shapes and bits of all of it."""
    return zlib.crc32(repr(outline(sample)).encode())


def tell(*sample: Any) -> Any:
    return told(sample), 1.5


def tell_first(image: Any) -> Any:
    return told(image)


def tell_all(samples: list[Any]) -> Any:
    return mx.nd.array([told(sample) % 2**20 for sample in samples])


WAYS: dict[str, Any] = {
    "transform": lambda data: (data.transform(tell), None),
    "transform_first": lambda data: (data.transform_first(tell_first), None),
    "transform twice": lambda data: (data.transform(lambda *x: x).transform(tell), None),
    "batchify": lambda data: (data, tell_all),
    "transform of a part": lambda data: (data.take(7).transform(tell), None),
    "nothing": lambda data: (data, None),
}


def images(folder: Path, format: str, labels: str, raw: bool = False) -> Path:
    pictures = [picture(20, 30 + n)[:, :30] for n in range(RECORDS)]
    contents = [npy(each) if raw else encoded(each, "JPEG") for each in pictures]
    return write_images(
        folder / f"{format}.x", format, contents, map(LABELS[labels], range(RECORDS))
    )


def compare(data: Any, way: str, executor: str) -> None:
    data, batchify = WAYS[way](data)
    arguments = {} if batchify is None else {"batchify_fn": batchify}
    with opened(data, executor, seed=0, **arguments) as loader:
        assert_same(list(loader), theirs(data, batch_size=4, **arguments))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("decode", DECODES)
@pytest.mark.parametrize(
    ("format", "executor", "labels"),
    [(FORMATS[0], "inline", "numbers"), (FORMATS[1], ON_THREADS, "two")],
)
def test_transform_gets_what_the_source_gives(format, executor, labels, decode, way, tmp_path):
    source = open_records(images(tmp_path, format, labels), decode=DECODES[decode])
    compare(SimpleDataset(source), way, executor)


@pytest.mark.parametrize("way", ["transform", "batchify"])
def test_transform_in_a_process_gets_what_the_source_gives(way, tmp_path):
    source = open_records(images(tmp_path, "recordio", "two"), decode=DECODES["uint8"])
    compare(SimpleDataset(source), way, "processes-1")


@SEMANTICS
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("labels", LABELS)
def test_transform_gets_what_mxnets_data_set_gives(labels, way, semantics, tmp_path):
    path = images(tmp_path, "recordio", labels)
    path.rename(tmp_path / "a.rec")
    Path(f"{path}.idx").rename(tmp_path / "a.idx")
    with numpy_semantics(semantics):
        compare(ImageRecordDataset(str(tmp_path / "a.rec")), way, "inline")


@pytest.mark.parametrize(
    ("semantics", "way"), [(False, "transform"), (True, "batchify")], ids=["nd", "np"]
)
@pytest.mark.parametrize("name", IN_MEMORY)
def test_transform_gets_samples_in_memory(name, way, semantics):
    with numpy_semantics(semantics):
        data = IN_MEMORY[name]()
        compare(data if hasattr(data, "transform") else SimpleDataset(data), way, ON_THREADS)


def test_function_after_a_stage_gets_its_arrays(tmp_path):
    source = open_records(images(tmp_path, "tfrecord", "numbers"), decode=ImageDecoder(8))
    seen: list[Any] = []
    data = SimpleDataset(source).transform_first(ToTensor())
    with opened(data.transform(lambda *pair: seen.append(pair) or 0), "inline") as loader:
        list(loader)
    assert {(type(image), image.dtype, type(label)) for image, label in seen} == {
        (mx.nd.NDArray, np.float32, int)
    }


@pytest.mark.parametrize("block", [RandomLighting(0.0), Compose([RandomLighting(0.0)])])
def test_block_that_takes_nothing_else_is_given_ndarrays(block, tmp_path):
    """With MXNet's own loader, such a data set can't be used at all."""
    source = open_records(images(tmp_path, "tfrecord", "numbers"), decode=ImageDecoder(8))
    data = SimpleDataset(source).transform_first(Compose([Cast("float32"), block]))
    with opened(SimpleDataset(source).transform_first(block), "inline") as loader:
        assert next(iter(loader))[0].shape == (4, 8, 8, 3)
    with opened(data, "inline") as loader:
        np.testing.assert_array_equal(next(iter(loader))[0][0].asnumpy(), source[0][0])


# --- records of unequal labels ---


WIDTHS = [9, 14, 19, 9, 4, 14, 24, 9]
NARROW = {
    "many": WIDTHS,
    "one": [1, 14, 1, 1, 1, 1, 24, 1],
    "none": [0, 14, 0, 0, 0, 0, 24, 0],
    "both": [24, 0, 1, 0, 1, 4, 1, 0],
}


def padded(samples: list[Any]) -> Any:
    """As detection data sets are batched, and which labels were no plain numbers."""
    images, labels = zip(*samples)
    dimensions, labels = [np.ndim(label) for label in labels], [*map(np.atleast_1d, labels)]
    width = max(map(len, labels))
    rows = [np.pad(label, (0, width - len(label)), constant_values=-1) for label in labels]
    return tuple(map(mx.nd.array, (np.stack(images), np.stack(rows), dimensions)))


def detection(folder: Path, format: str, widths: list[int] = WIDTHS) -> Path:
    contents = [encoded(picture(20, 30 + n), "JPEG") for n in range(len(widths))]
    labels = [np.arange(width, dtype=np.float32) + n + 1 for n, width in enumerate(widths)]
    return write_images(folder / "boxes.rec", format, contents, labels)


@pytest.mark.parametrize(
    ("widths", "decode", "executor"),
    [
        ("many", "random", ON_THREADS),
        ("one", "uint8", "processes-1"),
        ("none", "random", "inline"),
        ("both", "uint8", ON_THREADS),
    ],
)
def test_unequal_labels_are_padded_by_a_batchify(widths, decode, executor, tmp_path):
    """One that has no number is read as the number 0, as by MXNet."""
    path = detection(tmp_path, "recordio", NARROW[widths])
    source = open_records(path, decode=DECODES[decode])
    mxnets = list(ImageRecordDataset(str(path)).transform_first(lambda image: 0))
    with opened(source, executor, 3, seed=0, batchify_fn=padded) as loader:
        batches = list(loader)
    assert_same(batches, theirs(source, batch_size=3, batchify_fn=padded))
    expected = [padded(mxnets[first : first + 3])[1:] for first in range(0, 8, 3)]
    assert_same([batch[1:] for batch in batches], expected)


@every_quick_executor
@pytest.mark.parametrize("format", FORMATS)
def test_unequal_labels_are_made_equal_by_a_transform(format, executor, tmp_path):
    source = open_records(detection(tmp_path, format), decode=ImageDecoder(8))
    data = SimpleDataset(source).transform(lambda image, label: (image, label[:4]))
    with opened(data, executor, 3) as loader:
        assert_same(list(loader), theirs(data, batch_size=3))


def test_damaged_record_among_unequal_ones_is_named(tmp_path):
    path = detection(tmp_path, "tfrecord")
    damage(path, path.stat().st_size - 100)
    source = open_records(path, decode=ImageDecoder(8))
    loader = opened(source, ON_THREADS, 3, batchify_fn=padded)
    with loader, pytest.raises(RecordError, match="record 7"):
        list(loader)


@pytest.mark.parametrize(("num_workers", "thread_pool"), [(0, True), (2, True), (1, False)])
def test_numpy_arrays_without_numpy_shapes(num_workers, thread_pool):
    workers = {"num_workers": num_workers, "thread_pool": thread_pool}
    for active in (True, False, True):
        with mx.util.np_array(active), gluon_loader(np.ones((8, 2)), 2, **workers) as loader:
            batches = list(loader)
        assert {type(batch) for batch in batches} == {mx.np.ndarray if active else mx.nd.NDArray}
