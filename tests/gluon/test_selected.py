"""Parts of sources, and sources put together, in ``gluon_loader``: made the way that wholes are."""

from __future__ import annotations

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset, DataLoader, SimpleDataset
from mxnet.gluon.data.vision.transforms import RandomFlipLeftRight, ToTensor

from adapters import concatenate, gluon_loader, mix, split
from tests.gluon.data_sets import Computed, labels, nd, outline, pixels, triples
from tests.gluon.executors import THREADS, opened
from tests.sources.every_kind import KINDS, X, Y

CHOSEN = [7, 2, 2, 9, 0, 5, 10]


def digits(transform=ToTensor):
    return ArrayDataset(nd(pixels()), labels()).transform_first(transform())


def batches(loader):
    """As values that ``==`` compares to the last bit."""
    return [outline(batch) for batch in loader]


# Of each way that samples are made in.
SOURCES = {
    "arrays": lambda _: concatenate([(X, Y)]),
    "a data set of arrays": lambda _: concatenate([digits()]),
    "what draws": lambda _: concatenate([digits(RandomFlipLeftRight)]),
    "a data set of one's own": lambda _: concatenate([triples()]),
    "images": lambda folder: KINDS["images"](folder),
    "random boxes": lambda folder: KINDS["random boxes"](folder),
    "arrays after arrays": lambda _: concatenate([(X[:5], Y[:5]), (X, Y)]),
    "arrays after samples": lambda _: concatenate([(X, Y), [(X[0], Y[0])] * 5]),
    "data sets": lambda _: concatenate([digits()] * 2),
}


@pytest.fixture
def source(name, tmp_path):
    return SOURCES[name](tmp_path)


@pytest.mark.parametrize("name", sorted({*SOURCES} - {"what draws", "random boxes"}))
def test_part_has_the_batches_of_its_samples(source):
    selected = source.select(CHOSEN)
    expected = list(DataLoader(SimpleDataset([source[number] for number in CHOSEN]), 3))
    with opened(selected, "inline", 3) as loader:
        assert batches(loader) == batches(expected)


@pytest.mark.parametrize(
    ("name", "executor"),
    [
        *((name, THREADS) for name in SOURCES),
        *((name, "processes-1") for name in ("random boxes", "data sets")),
    ],
)
def test_part_is_the_same_for_all_workers_and_after_a_break(source, executor):
    selected = source.select([*CHOSEN, 1, 3])
    arguments = {"shuffle": True, "seed": np.int64(4)}
    with opened(selected, "inline", 2, **arguments) as loader:
        expected = [batches(loader) for _ in range(2)]
    with opened(selected, executor, 2, **arguments) as loader:
        assert [batches(loader) for _ in range(2)] == expected
        loader.load_state_dict({"epoch": 1, "batch": 2})
        assert batches(loader) == expected[1][2:]


def test_bool_names_sample_0_or_1_of_a_part_as_in_mxnet():
    data = SimpleDataset([*range(9)]).take(6)
    with opened(data, "inline", 2, sampler=[True, 2, np.True_, False]) as loader:
        assert batches(loader) == batches(DataLoader(data, 2, sampler=[1, 2, 1, 0]))


def test_part_of_a_data_set_of_arrays_is_gathered(capsys):
    with opened(split(digits(), [0.5])[0], "inline") as loader:
        loader.explain()
    said = capsys.readouterr().out
    assert "ArrayDataset, 6 of its samples: arrays, gathered a batch at a time" in said
    assert "ToTensor: a batch at a time" in said


def test_transform_of_a_part_works_on_its_samples():
    part = SimpleDataset(split((pixels(), labels()), [0.5])[0])
    with opened(part.transform_first(ToTensor()), "inline", 3) as loader:
        images, _ = next(iter(loader))
        assert (images.shape, images.dtype) == ((3, 3, 6, 5), np.float32)
        assert type(images) is mx.nd.NDArray
    doubled = SimpleDataset(concatenate([np.arange(6)])).transform(lambda number: number * 2)
    assert [b.asnumpy().tolist() for b in gluon_loader(doubled, 3)] == [[0, 2, 4], [6, 8, 10]]


def test_part_of_a_mix_has_its_samples():
    """A mix alone can't be selected from, so its samples are asked for one by one."""
    part = SimpleDataset(mix([np.arange(10.0), np.arange(100, 110.0)], [1, 1])).shard(5, 0)
    with opened(part, "inline", 2) as loader:
        found = np.concatenate([batch.asnumpy() for batch in loader])
    np.testing.assert_array_equal(found, [part[number] for number in range(len(part))])


def test_what_fails_in_a_part_is_named_by_its_number_there():
    odd = Computed(lambda number: (number / 2, 1 // (number - 7)))
    for source in (concatenate([odd]), concatenate([odd, odd])):
        selected = source.select([1, 7, 2])
        with opened(selected, "inline", 3) as loader, pytest.raises(ZeroDivisionError) as caught:
            list(loader)
        assert "in sample 1" in str(caught.value.__notes__)
        with opened(selected, "inline", 3, on_error="skip") as loader:
            ((halves, _),) = loader
            assert halves.asnumpy().tolist() == [0.5, 1.0, 1.0]


@pytest.mark.parametrize(
    ("make", "executor"),
    [
        (lambda x, y: (x, y), "processes-1"),
        (lambda x, y: x, "inline"),
        (ArrayDataset, "inline"),
        (lambda x, y: SimpleDataset(x), "inline"),
    ],
)
def test_data_sets_of_h5py_have_the_batches_of_arrays(make, executor, tmp_path, capsys):
    h5py = pytest.importorskip("h5py", reason="h5py isn't installed")
    arguments = {"shuffle": True, "seed": 2}
    with opened(make(pixels(), labels()), "inline", **arguments) as loader:
        expected = batches(loader)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=pixels(), chunks=(2, 6, 5, 3))
        file["y"] = labels()
    with (
        h5py.File(tmp_path / "a.h5", "r") as file,
        opened(make(file["x"], file["y"]), executor, **arguments) as loader,
    ):
        assert batches(loader) == expected
        loader.explain()
    assert "arrays, gathered a batch at a time" in capsys.readouterr().out
