"""What MXNet's own DataLoader gives: batches, and what transforms and batchifies are given."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset, DataLoader, SimpleDataset
from mxnet.gluon.data.vision import ImageRecordDataset
from mxnet.gluon.data.vision.transforms import Cast, Compose, RandomLighting, ToTensor

from adapters import ImageDecoder, gluon_loader, open_records
from adapters.sources import Source
from tests.gluon import data_sets
from tests.gluon.data_sets import assert_same, labels, nd, numpy_semantics, pixels, theirs
from tests.gluon.executors import THREADS as ON_THREADS
from tests.gluon.executors import opened
from tests.images.pictures import encoded, picture
from tests.sources.record_files import SIZE as RECORDS
from tests.sources.record_files import write_images

INLINE = {"num_workers": 0}
THREADS = {"num_workers": 2, "thread_pool": True}
PROCESSES = {"num_workers": 1, "thread_pool": False}
WORKERS = pytest.mark.parametrize("workers", [INLINE, THREADS], ids=["inline", "threads"])
ND_INLINE_AND_NP_ON_THREADS = pytest.mark.parametrize(
    ("semantics", "workers"), [(False, INLINE), (True, THREADS)], ids=["nd", "np"]
)
SEMANTICS = pytest.mark.parametrize("semantics", [False, True], ids=["nd", "np"])


def ours(data: Any, **arguments: Any) -> list[Any]:
    """One epoch of our batches."""
    with gluon_loader(data, **arguments) as loader:
        return list(loader)


# --- data sets ---


@ND_INLINE_AND_NP_ON_THREADS
@pytest.mark.parametrize("name", data_sets.IN_MEMORY)
def test_data_set_gives_the_same_batches(name, workers, semantics):
    with numpy_semantics(semantics):
        expected = theirs(data_sets.IN_MEMORY[name](), batch_size=4)
        assert_same(ours(data_sets.IN_MEMORY[name](), batch_size=4, **workers), expected)


@SEMANTICS
def test_worker_processes_give_the_same_batches(semantics):
    with numpy_semantics(semantics):
        # Members of every kind at once, as processes take their time to begin.
        size = data_sets.SIZE
        pairs = [data_sets.Pair(1, (2.5,))] * size
        members = [nd(pixels()), pixels(), list(range(size)), data_sets.triples(), pairs]
        data = ArrayDataset(*members).transform_first(ToTensor())
        assert_same(ours(data, batch_size=4, **PROCESSES), theirs(data, batch_size=4))


@pytest.mark.parametrize(
    ("make", "workers"),
    [
        (data_sets.record_data_set, INLINE),
        (data_sets.record_data_set, PROCESSES),
        (data_sets.folder_data_set, THREADS),
    ],
)
def test_images_in_files_give_the_same_batches(make, workers, tmp_path):
    data = make(tmp_path)
    assert_same(ours(data, batch_size=4, **workers), theirs(data, batch_size=4))


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i4", "i8", "f2", "f4", "f8", ">f4", ">i4"])
def test_arrays_of_each_dtype_give_the_same_batches(dtype):
    images = pixels().astype(dtype)
    data = ArrayDataset(images, (labels() * 1.6).astype(dtype))
    assert_same(ours(data, batch_size=4, **THREADS), theirs(data, batch_size=4))
    if not dtype.startswith(">"):
        with numpy_semantics(dtype != "f2"):
            for data in (nd(images), [nd(row) for row in images]):
                assert_same(ours(data, batch_size=4, **INLINE), theirs(data, batch_size=4))


def test_data_set_may_have_a_shape_of_its_own():
    class Volume(list):
        shape = np.array([4, 5])

    assert_same(ours(Volume(range(6)), batch_size=4, **INLINE), theirs(range(6), batch_size=4))


@pytest.mark.parametrize("last_batch", [None, "keep", "discard", "rollover"])
@pytest.mark.parametrize("batch_size", [1, 4, 11, 20])
@pytest.mark.parametrize("sampler", [None, [3, 1, 4, 1, 5, 9, 2, 6]], ids=["all", "a sampler"])
def test_last_batch_is_treated_the_same_in_each_epoch(sampler, batch_size, last_batch):
    data = ArrayDataset(labels(), labels())
    arguments = {"batch_size": batch_size, "sampler": sampler, "last_batch": last_batch}
    expected = DataLoader(data, **arguments)
    with gluon_loader(data, **arguments, **THREADS) as loader:
        for _ in range(4):
            length, batches = len(expected), []
            for batch in loader:
                batches.append(batch)
                assert sampler or len(loader) == length
            assert_same(batches, list(expected))
            assert sampler or len(loader) == len(expected)


@pytest.mark.parametrize(
    ("name", "workers"), [("MNIST", INLINE), ("triples of the user's own", THREADS)]
)
@pytest.mark.parametrize(
    "batch_sampler",
    [
        mx.gluon.data.BatchSampler(mx.gluon.data.SequentialSampler(5, 2), 2),
        [[0, 1], [5], [2, 2, 2]],
        [(0, 1), (5,)],
        [np.array([0, 10]), np.array([3])],
        [range(3), range(8, 2, -2)],
        [[-1, -11], [np.int64(-2)]],
    ],
    ids=["BatchSampler", "lists", "tuples", "arrays", "ranges", "negative"],
)
def test_batch_sampler_gives_the_same_batches(name, batch_sampler, workers):
    data = data_sets.IN_MEMORY[name]()
    arguments = {"batch_sampler": batch_sampler}
    assert_same(ours(data, **arguments, **workers), theirs(data, **arguments))


def test_batch_sampler_may_give_iterators():
    def batches() -> Any:
        return [iter([1, 2]), map(int, "34")]

    expected = theirs(labels(), batch_sampler=batches())
    assert_same(ours(labels(), batch_sampler=batches(), **INLINE), expected)


# --- memory ---


@pytest.mark.parametrize("make", [pixels, lambda: nd(pixels()), lambda: [*pixels()]])
def test_batch_changed_in_place_leaves_the_data_set_alone(make):
    data = make()
    with gluon_loader(data, 4, **INLINE) as loader:
        for batch in loader:
            batch[:] = 0
    assert_same(theirs(data, batch_size=data_sets.SIZE), theirs(make(), batch_size=data_sets.SIZE))


def set_ones(array: Any) -> None:
    array[:] = 1


def count_up(numbers: Any) -> None:
    numbers[0] += 1


@WORKERS
@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: nd(pixels()), set_ones),
        (lambda: list(range(data_sets.SIZE)), count_up),
        (lambda: [np.zeros(2) for _ in range(data_sets.SIZE)], count_up),
    ],
    ids=["an NDArray", "a list", "a list of arrays"],
)
def test_what_has_changed_between_epochs_is_seen(make, change, workers):
    data = make()
    with gluon_loader(ArrayDataset(data, data), 4, **workers) as loader:
        for _ in range(3):
            assert_same(list(loader), theirs(ArrayDataset(data, data), batch_size=4))
            change(data)


@WORKERS
def test_what_is_replaced_between_epochs_is_seen(workers):
    arrays, simple = ArrayDataset(nd(pixels()), labels()), SimpleDataset(labels())
    part, block = arrays.take(6), Compose([ToTensor()])
    data = part.transform_first(block)
    changes = [
        lambda: (arrays._data.__setitem__(1, labels() * 2), setattr(simple, "_data", labels() * 2)),
        lambda: (block.add(Cast("float16")), setattr(part, "_indices", [3, 3, 1, 0, 4, 5])),
        lambda: setattr(data, "_fn", lambda image, label: (label, image)),
    ]
    with gluon_loader(data, 4, **workers) as loader, gluon_loader(simple, 4, **workers) as other:
        for change in [lambda: None, *changes]:
            change()
            assert_same(list(loader), theirs(data, batch_size=4))
            assert_same(list(other), theirs(simple, batch_size=4))


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
        {"batch_size": 2, "shuffle": True, "sampler": mx.gluon.data.RandomSampler(data_sets.SIZE)},
    ],
    ids=lambda arguments: " and ".join(arguments) or "none",
)
def test_arguments_exclude_each_other_as_in_mxnet(arguments):
    with pytest.raises(ValueError, match=r"must( not)? be specified"):
        gluon_loader(labels(), **arguments)


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
def test_samples_that_mxnet_has_no_type_for_are_type_errors(samples):
    with pytest.raises(TypeError, match="of a dtype that MXNet has"):
        ours(samples, batch_size=2, **INLINE)


class Fives(np.ndarray):
    def __getitem__(self, index: Any) -> Any:
        return np.asarray(self)[index] * 0 + 5


MASKED = np.ma.masked_array(np.arange(6.0), np.arange(6) % 2)
OVERRIDDEN = np.arange(6.0).reshape(3, 2).view(Fives)


@pytest.mark.filterwarnings("ignore:Warning. converting a masked element")
@pytest.mark.parametrize("data", [MASKED, OVERRIDDEN], ids=["masked", "overridden"])
def test_subclass_of_an_array_is_asked_for_its_rows(data):
    with opened(data, "inline", 2) as loader:
        assert_same(list(loader), theirs(data, batch_size=2))


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
    return zlib.crc32(repr(data_sets.outline(sample)).encode())


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


def images(folder: Path, format: str, labels: str) -> Path:
    contents = [encoded(picture(20, 30 + n)[:, :30], "JPEG") for n in range(RECORDS)]
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
def test_transform_gets_what_the_source_gives(decode, way, tmp_path):
    source = open_records(images(tmp_path, "tfrecord", "numbers"), decode=DECODES[decode])
    compare(SimpleDataset(source), way, ON_THREADS)


@pytest.mark.parametrize("way", ["transform", "batchify"])
def test_transform_in_a_process_gets_what_the_source_gives(way, tmp_path):
    source = open_records(images(tmp_path, "recordio", "two"), decode=DECODES["uint8"])
    compare(SimpleDataset(source), way, "processes-1")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("labels", "semantics"), [("numbers", True), ("two", False)])
def test_transform_gets_what_mxnets_data_set_gives(labels, semantics, way, tmp_path):
    path = images(tmp_path, "recordio", labels)
    path.rename(tmp_path / "a.rec")
    Path(f"{path}.idx").rename(tmp_path / "a.idx")
    with numpy_semantics(semantics):
        compare(ImageRecordDataset(str(tmp_path / "a.rec")), way, "inline")


@pytest.mark.parametrize("name", data_sets.IN_MEMORY)
def test_transform_gets_samples_in_memory(name):
    for way, semantics in (("transform", False), ("batchify", True)):
        with numpy_semantics(semantics):
            data = data_sets.IN_MEMORY[name]()
            data = data if hasattr(data, "transform") else SimpleDataset(data)
            compare(data, way, ON_THREADS)


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
    for each in (block, Compose([Cast("float32"), block])):
        with opened(SimpleDataset(source).transform_first(each), "inline") as loader:
            np.testing.assert_array_equal(next(iter(loader))[0][0].asnumpy(), source[0][0])


@pytest.mark.parametrize("workers", [INLINE, THREADS, PROCESSES])
def test_numpy_arrays_without_numpy_shapes(workers):
    for active in (True, False, True):
        with mx.util.np_array(active), gluon_loader(np.ones((8, 2)), 2, **workers) as loader:
            batches = list(loader)
        assert {type(batch) for batch in batches} == {mx.np.ndarray if active else mx.nd.NDArray}
