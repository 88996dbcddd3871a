"""What a transform or a batchify is given: exactly the types that ``dataset[i]`` gives."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import SimpleDataset
from mxnet.gluon.data.vision import ImageRecordDataset
from mxnet.gluon.data.vision.transforms import Cast, Compose, RandomLighting, ToTensor

from adapters import ImageDecoder, RecordError, gluon_loader, open_records
from adapters.sources import Source
from tests.gluon.data_sets import (
    IN_MEMORY,
    assert_same,
    numpy_semantics,
    outline,
    theirs,
)
from tests.gluon.executors import THREADS, every_kind, every_quick_executor, opened
from tests.images.pictures import encoded, npy, picture
from tests.sources.record_files import FORMATS, SIZE, damage, write_images

SEMANTICS = pytest.mark.parametrize("semantics", [False, True], ids=["nd", "np"])
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
    pictures = [picture(20, 30 + n)[:, :30] for n in range(SIZE)]
    contents = [npy(each) if raw else encoded(each, "JPEG") for each in pictures]
    return write_images(folder / f"{format}.x", format, contents, map(LABELS[labels], range(SIZE)))


def compare(data: Any, way: str, executor: str) -> None:
    data, batchify = WAYS[way](data)
    arguments = {} if batchify is None else {"batchify_fn": batchify}
    with opened(data, executor, seed=0, **arguments) as loader:
        assert_same(list(loader), theirs(data, batch_size=4, **arguments))


@every_quick_executor
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("decode", DECODES)
@pytest.mark.parametrize("format", FORMATS)
def test_transform_gets_what_the_source_gives(format, decode, labels, way, executor, tmp_path):
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


@SEMANTICS
@pytest.mark.parametrize("way", ["transform", "batchify"])
@pytest.mark.parametrize("name", IN_MEMORY)
def test_transform_gets_samples_in_memory(name, way, semantics):
    with numpy_semantics(semantics):
        data = IN_MEMORY[name]()
        compare(data if hasattr(data, "transform") else SimpleDataset(data), way, THREADS)


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


@every_kind
@pytest.mark.parametrize("decode", ["uint8", "random"])
@pytest.mark.parametrize("widths", NARROW)
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
    loader = opened(source, THREADS, 3, batchify_fn=padded)
    with loader, pytest.raises(RecordError, match="record 7"):
        list(loader)


@pytest.mark.parametrize(("num_workers", "thread_pool"), [(0, True), (2, True), (2, False)])
def test_numpy_arrays_without_numpy_shapes(num_workers, thread_pool):
    workers = {"num_workers": num_workers, "thread_pool": thread_pool}
    for active in (True, False, True):
        with mx.util.np_array(active), gluon_loader(np.ones((8, 2)), 2, **workers) as loader:
            batches = list(loader)
        assert {type(batch) for batch in batches} == {mx.np.ndarray if active else mx.nd.NDArray}
