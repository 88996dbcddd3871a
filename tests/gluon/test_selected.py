"""Parts of sources, and sources put together, in ``gluon_loader``: made the way that wholes are."""

from __future__ import annotations

import itertools

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset, DataLoader, SimpleDataset
from mxnet.gluon.data.vision.transforms import RandomFlipLeftRight, ToTensor

from adapters import Feature, RecordWriter, concatenate, gluon_loader, mix, open_records, split
from adapters.records import example
from tests.gluon.data_sets import Triples, labels, nd, outline, pixels
from tests.gluon.executors import THREADS, opened
from tests.sources.every_kind import KINDS, SIZE, X, Y

CHOSEN = [7, 2, 2, 9, 0, 5, 10]


def digits(transform=ToTensor):
    return ArrayDataset(nd(pixels()), labels()).transform_first(transform())


def features(folder):
    path = folder / "features.tfrecord"
    with RecordWriter(path, format="tfrecord") as writer:
        for n in range(SIZE):
            writer.write(example.encode({"ids": [n, n + 1], "label": [n]}))
    decode = {"ids": Feature("int64", (2,)), "label": Feature("int64")}
    return open_records(path, decode=decode, outputs=("ids", "label"))


def batches(loader):
    """As values that ``==`` compares to the last bit."""
    return [outline(batch) for batch in loader]


# Of each way that samples are made in.
SOURCES = {
    "arrays": lambda _: concatenate([(X, Y)]),
    "an array": lambda _: concatenate([X]),
    "a data set of arrays": lambda _: concatenate([digits()]),
    "what draws": lambda _: concatenate([digits(RandomFlipLeftRight)]),
    "a data set of one's own": lambda _: concatenate([Triples()]),
    "images": lambda folder: KINDS["images"](folder),
    "random boxes": lambda folder: KINDS["random boxes"](folder),
    "features": features,
    "arrays after arrays": lambda _: concatenate([(X[:5], Y[:5]), (X, Y)]),
    "arrays after samples": lambda _: concatenate([(X, Y), [(X[0], Y[0])] * 5]),
    "data sets": lambda _: concatenate([digits()] * 2),
}
every_source = pytest.mark.parametrize("name", SOURCES)


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
        *itertools.product(SOURCES, ["inline", THREADS]),
        *((name, "processes-1") for name in ("arrays", "random boxes", "data sets")),
    ],
)
def test_part_is_the_same_for_all_workers_and_after_a_break(source, executor):
    selected = source.select([*CHOSEN, 1, 3])
    arguments = {"shuffle": True, "seed": 4}
    with opened(selected, "inline", 2, **arguments) as loader:
        expected = [batches(loader) for _ in range(2)]
    with opened(selected, executor, 2, **arguments) as loader:
        assert [batches(loader) for _ in range(2)] == expected
        loader.load_state_dict({"epoch": 1, "batch": 2})
        assert batches(loader) == expected[1][2:]


@every_source
def test_shards_of_a_part_have_all_of_it(source):
    selected = source.select(range(10))
    found = []
    for shard in (None, (0, 2), (1, 2)):
        with opened(selected, "inline", 1, shuffle=True, seed=4, shard=shard) as loader:
            found.append([str(batch) for batch in batches(loader)])
    assert sorted(found[1] + found[2]) == sorted(found[0])


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


@pytest.mark.parametrize(
    "select",
    [lambda data: data.take(4), lambda data: data.shard(5, 0), lambda data: data.filter(np.any)],
    ids=["take", "shard", "filter"],
)
def test_part_of_a_mix_has_its_samples(select):
    """A mix alone can't be selected from, so its samples are asked for one by one."""
    part = select(SimpleDataset(mix([np.arange(10.0), np.arange(100, 110.0)], [1, 1])))
    with opened(part, "inline", 2) as loader:
        found = np.concatenate([batch.asnumpy() for batch in loader])
    np.testing.assert_array_equal(found, [part[number] for number in range(len(part))])


@pytest.mark.parametrize("executor", ["inline", "processes-1"])
def test_samples_that_are_dicts_come_to_batchify(executor):
    part = split({"x": X, "y": Y}, [0.5])[0]
    with opened(
        part, executor, 4, batchify_fn=lambda samples: nd(np.stack([s["y"] for s in samples]))
    ) as loader:
        assert [y for batch in loader for y in batch.asnumpy().tolist()] == Y[part.numbers].tolist()


def test_what_fails_in_a_part_is_named_by_its_number_there():
    class Odd(Triples):
        def __getitem__(self, index):
            if index == 7:
                raise KeyError(index)
            return super().__getitem__(index)

    for source in (concatenate([Odd()]), concatenate([Odd(), Triples()])):
        selected = source.select([1, 7, 2])
        with opened(selected, "inline", 3) as loader, pytest.raises(KeyError) as caught:
            list(loader)
        assert "in sample 1" in str(caught.value.__notes__)
        with opened(selected, "inline", 3, on_error="skip") as loader:
            (_, halves, _), *_ = loader
            assert halves.asnumpy().tolist() == [0.5, 1.0, 1.0]


# --- arrays on the disk ---


@pytest.fixture
def file(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py isn't installed")
    with h5py.File(tmp_path / "a.h5", "w") as made:
        made.create_dataset("x", data=pixels(), chunks=(2, 6, 5, 3))
        made["y"] = labels()
    with h5py.File(tmp_path / "a.h5", "r") as opened_file:
        yield opened_file


@pytest.mark.parametrize("executor", ["inline", "processes-1"])
@pytest.mark.parametrize(
    "make",
    [
        lambda x, y: (x, y),
        lambda x, y: x,
        lambda x, y: ArrayDataset(x, y),
        lambda x, y: SimpleDataset(x),
    ],
)
def test_data_sets_of_h5py_have_the_batches_of_arrays(file, executor, make, capsys):
    arguments = {"shuffle": True, "seed": 2}
    with opened(make(pixels(), labels()), "inline", **arguments) as loader:
        expected = batches(loader)
    with opened(make(file["x"], file["y"]), executor, **arguments) as loader:
        assert batches(loader) == expected
        loader.explain()
    assert "arrays, gathered a batch at a time" in capsys.readouterr().out
