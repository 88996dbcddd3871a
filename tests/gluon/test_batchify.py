"""Batches of samples: a ``batchify_fn``, this package's collates, tuples, sparse arrays."""

from __future__ import annotations

import functools
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import Block
from mxnet.gluon.data import ArrayDataset, DataLoader, SimpleDataset
from mxnet.gluon.data.vision import CIFAR10
from mxnet.gluon.data.vision.transforms import Cast, Compose, ToTensor

from adapters import Buckets, gluon_loader
from adapters import pad as pad_collate
from adapters.transforms import Chain, ColorJitter, MixUp, OneHot
from tests.gluon.data_sets import (
    Pair,
    Triples,
    assert_same,
    downloaded,
    labels,
    nd,
    numpy_semantics,
    outline,
    pixels,
    theirs,
)
from tests.gluon.executors import EXECUTORS, every_executor, every_quick_executor, opened
from tests.gluon.test_parity import INLINE, PROCESSES, SEMANTICS, WORKERS, ours


def stack(samples: Any) -> Any:
    """A tuple, as MXNet keeps it."""
    images, numbers = zip(*samples)
    return nd(np.stack([image.asnumpy() for image in images])), nd(np.array(numbers))


def pad(samples: Any) -> Any:
    """A dict, of arrays of MXNet's and NumPy's and of neither."""
    longest = max(int(label) % 4 for _, label in samples)
    rows = np.zeros((len(samples), longest + 1), np.float32)
    for row, (_, label) in zip(rows, samples):
        row[: int(label) % 4] = label
    return {"rows": nd(rows), "lengths": rows.any(1), "pair": Pair(len(samples), None)}


def chosen(samples: Any, member: int) -> Any:
    return [sample[member] for sample in samples]


BATCHIFIES = {
    "stack to a tuple": stack,
    "pad to a dict": pad,
    "lambda to a number": lambda samples: len(samples),
    "lambda to the samples": lambda samples: samples,
    "partial": functools.partial(chosen, member=0),
    "nested": lambda samples: ((stack(samples), [pad(samples)]), samples[0][1]),
}


@SEMANTICS
@WORKERS
@pytest.mark.parametrize("name", BATCHIFIES)
def test_a_batchify_of_the_users_own_gives_the_same_batches(name, workers, semantics):
    with numpy_semantics(semantics):
        arguments = {"batch_size": 4, "batchify_fn": BATCHIFIES[name]}
        data = ArrayDataset(nd(pixels()), labels())
        assert_same(ours(data, **arguments, **workers), theirs(data, **arguments))


def test_a_batchify_in_worker_processes_gives_the_same_batches():
    def batchify(samples: Any) -> Any:
        return stack(samples), pad(samples), samples, Pair(samples[0], "text")

    arguments = {"batch_size": 4, "batchify_fn": lambda samples: batchify(samples)}
    data = downloaded(CIFAR10)
    assert_same(ours(data, **arguments, **PROCESSES), theirs(data, **arguments))


@pytest.mark.parametrize(
    "samples",
    [
        [Pair(i, i / 2) for i in range(5)],
        [tuple(range(i)) for i in range(5)],
        [(1, 2), None, 3, (4,)],
        [{"a": i} for i in range(5)],
        ["a", b"b", {1}],
        [np.zeros(i) for i in range(4)],
    ],
    ids=["named tuples", "tuples of any length", "mixed", "dicts", "objects", "ragged"],
)
@pytest.mark.parametrize("transformed", [False, True])
def test_a_batchify_gets_the_samples_as_they_are(samples, transformed):
    data = SimpleDataset([(sample,) for sample in samples]) if transformed else samples
    data = data.transform(lambda sample: sample) if transformed else data
    arguments = {"batch_size": 3, "batchify_fn": lambda samples: list(samples)}
    assert_same(ours(data, **arguments, **INLINE), theirs(data, **arguments))


def test_a_batchify_gets_an_empty_batch_as_it_is():
    arguments = {"batch_sampler": [[0], [], [1, 2]], "batchify_fn": len}
    assert ours(labels(), **arguments, **INLINE) == theirs(labels(), **arguments) == [1, 0, 2]
    assert ours(Triples(), **arguments, **INLINE) == theirs(Triples(), **arguments)


# --- samples that are tuples, or become some ---


def images() -> list[Any]:
    return [nd(image) for image in pixels()]


def first_and_count(samples: list[Any]) -> Any:
    """The images, and how many members come with each."""
    pairs = [sample if isinstance(sample, tuple) else (sample,) for sample in samples]
    return [mx.nd.stack(*[first for first, *_ in pairs]), nd(np.array([*map(len, pairs)]))]


class TwoViews(Block):
    def forward(self, image: Any) -> Any:
        return image, image + 1


class Both(Block):
    def forward(self, views: Any) -> Any:
        first, second = views
        return first * 2, second * 3


@every_quick_executor
@pytest.mark.parametrize("first", [False, True], ids=["transform", "transform_first"])
def test_blocks_of_a_compose_pass_tuples_on_as_they_are(executor, first):
    data = SimpleDataset(images())
    block = Compose([ToTensor(), TwoViews(), Both(), Both()])
    data = data.transform_first(block) if first else data.transform(block)
    with opened(data, executor) as loader:
        assert_same(list(loader), theirs(data, batch_size=4))


@every_quick_executor
def test_so_they_do_with_the_first_member_of_a_pair(executor):
    data = SimpleDataset(list(zip(images(), labels().tolist())))
    data = data.transform_first(Compose([ToTensor(), Compose([TwoViews(), Both()])]))

    def batchify(samples: list[Any]) -> Any:
        return [view for views, _ in samples for view in views]

    with opened(data, executor, batchify_fn=batchify) as loader:
        assert_same(list(loader), theirs(data, batch_size=4, batchify_fn=batchify))


def test_explain_has_a_line_for_each_of_them(capsys):
    data = SimpleDataset(images()).transform(Compose([ToTensor(), TwoViews(), Both()]))
    with gluon_loader(data, 4, num_workers=0) as loader:
        loader.explain()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[1:4]] == ["ToTensor", "TwoViews", "Both"]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_tuples_in_the_one_list_of_an_array_dataset_have_members(executor):
    data = ArrayDataset(list(zip(images(), labels().tolist()))).transform_first(ToTensor())
    with opened(data, executor) as loader:
        assert_same(list(loader), theirs(data, batch_size=4))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("singles", [False, True])
def test_tuples_of_several_lengths_are_for_a_batchify_of_ones_own(executor, singles):
    tuples = [(image, *range(number % 3)) for number, image in enumerate(images())]
    samples = [each[0] if singles and len(each) == 1 else each for each in tuples]
    data = SimpleDataset(samples).transform_first(Compose([ToTensor(), Cast("float64")]))
    with opened(data, executor, batchify_fn=first_and_count) as loader:
        assert_same(list(loader), theirs(data, batch_size=4, batchify_fn=first_and_count))


@every_quick_executor
def test_by_mxnets_rules_they_are_named(executor):
    data = SimpleDataset([(image, *range(n + 1)) for n, image in enumerate(images())])
    with (
        opened(data.transform_first(ToTensor()), executor) as loader,
        pytest.raises(ValueError, match="sample 1 has 3, sample 0 has 2"),
    ):
        next(iter(loader))


# --- sparse batches ---

ROWS = np.eye(7, 5, dtype=np.float64) * np.arange(1, 8)[:, None]


def csr(samples: list[Any]) -> Any:
    return mx.nd.sparse.csr_matrix(np.array(samples), dtype="float64")


def row_sparse(samples: list[Any]) -> Any:
    return mx.nd.array(np.array(samples), dtype="float32").tostype("row_sparse")


def beside_others(samples: list[Any]) -> Any:
    return {"x": (csr(samples), [row_sparse(samples)]), "y": mx.nd.array(samples), "n": 3}


def told(batch: Any) -> Any:
    """Class, storage type and values of each array."""
    if isinstance(batch, mx.nd.NDArray):
        return type(batch), batch.stype, outline(batch), batch.tostype("default").shape
    if isinstance(batch, (list, tuple)):
        return type(batch), [told(member) for member in batch]
    if isinstance(batch, dict):
        return {name: told(member) for name, member in batch.items()}
    return batch


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("batchify", [csr, row_sparse, beside_others])
def test_a_sparse_batch_arrives_as_mxnets_loader_gives_it(batchify, executor):
    # The last batches hold nothing but zeros.
    expected = [told(batch) for batch in DataLoader(ROWS, 2, batchify_fn=batchify)]
    with opened(ROWS, executor, 2, batchify_fn=batchify) as loader:
        assert [told(batch) for batch in loader] == expected


def test_a_sparse_batch_from_a_process_can_be_computed_with():
    with opened(ROWS, "processes-1", 7, batchify_fn=csr) as loader:
        (batch,) = loader
    product = mx.nd.sparse.dot(batch, mx.nd.ones((5, 2), dtype="float64"))
    np.testing.assert_array_equal(product.asnumpy(), ROWS.sum(1, keepdims=True).repeat(2, 1))
    assert batch.asscipy().nnz == 5


@pytest.mark.parametrize("semantics", [False, True])
@pytest.mark.parametrize("kind", ["nd", "np"])
def test_a_process_gives_the_kind_of_array_that_a_batchify_makes(kind, semantics):
    def batchify(samples: list[Any]) -> Any:
        return (mx.np if kind == "np" else mx.nd).array(np.array(samples))

    with numpy_semantics(semantics), opened(ROWS, "processes-1", 4, batchify_fn=batchify) as loader:
        assert {type(batch) for batch in loader} == {
            mx.np.ndarray if kind == "np" else mx.nd.NDArray
        }


# --- collates and transforms of this package ---

X = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), np.uint8)
Y = np.arange(24) % 4
TOKENS = [np.arange(1, 2 + number % 7, dtype=np.int32) for number in range(24)]
ALL = Chain([OneHot(4), ColorJitter(0.4, 0.4, 0.4, 0.1), MixUp()])


@every_executor
def test_transforms_give_ndarrays_and_the_same_ones_in_every_executor(executor):
    arguments: dict[str, Any] = {"shuffle": True, "seed": 3, "batch_transform": ALL}
    with opened(ArrayDataset(X, Y), executor, **arguments) as loader:
        batches = list(loader)
    assert [type(each) for each in batches[0]] == [mx.nd.NDArray, mx.nd.NDArray]
    with gluon_loader((X, Y), len(batches[0][0]), num_workers=0, **arguments) as inline:
        assert [outline(batch) for batch in batches] == [outline(batch) for batch in inline]


def test_ndarrays_of_a_data_set_are_left_alone():
    data = nd(X.astype(np.float32) / 255)
    before = data.asnumpy()
    loader = gluon_loader(
        ArrayDataset(data, nd(np.eye(24, dtype="f4"))), 8, batch_transform=MixUp(), num_workers=0
    )
    batch = next(iter(loader))
    assert (batch[0].asnumpy() != before[:8]).any()
    assert (data.asnumpy() == before).all()


@every_executor
def test_pad_gives_ndarrays(executor):
    data = SimpleDataset(list(zip(TOKENS, Y)))
    with opened(data, executor, batchify_fn=pad_collate(9, 4)) as loader:
        tokens, label = next(iter(loader))
    assert isinstance(tokens, mx.nd.NDArray)
    assert tokens.shape[1] % 4 == 0
    assert tokens[0].asnumpy().tolist()[:4] == [1, 9, 9, 9]
    assert label.dtype == np.int64


@pytest.mark.parametrize("transform", [None, ALL, lambda batch: (batch[0] * 2, batch[1])])
def test_pad_and_a_transform_after_it(transform):
    data = SimpleDataset([(X[number, : 1 + number % 7], number % 4) for number in range(24)])
    for semantics in (False, True):
        with numpy_semantics(semantics):
            loader = gluon_loader(
                data, 8, batchify_fn=pad_collate(), batch_transform=transform, num_workers=0
            )
            images, labels = next(iter(loader))
            kind = mx.np.ndarray if semantics else mx.nd.NDArray
            assert type(images) is type(labels) is kind
            assert images.shape == (8, 7, 8, 3)


def test_batches_of_buckets_are_padded_to_their_bounds():
    lengths = np.random.default_rng(2).integers(1, 60, 200)
    buckets = Buckets(lengths, shapes=4)
    samples = [np.full(n, n, "float32") for n in lengths.tolist()]
    options = {"batchify_fn": pad_collate(), "bucket_by": buckets, "num_workers": 0, "seed": 1}
    with gluon_loader(samples, 8, True, shard=(1, 2), **options) as loader:
        seen = {batch.shape[1] for batch in loader}
    assert len(seen) > 1
    assert seen <= set(buckets.bounds)


@pytest.mark.parametrize("last_batch", ["keep", "rollover"])
def test_members_of_a_fixed_size_keep_it_beside_buckets(last_batch):
    """Also where they are as long as all samples of a batch; draws are those of each batch."""
    lengths = [3, 3, 4, 4, 9, 9, 10, 10]
    data = SimpleDataset([(np.arange(n, dtype="f4"), np.eye(3, dtype="f4")[0]) for n in lengths])
    data = data.transform(lambda tokens, label: (tokens * np.random.rand(), label), lazy=True)
    options = {"batchify_fn": pad_collate(), "bucket_by": Buckets(lengths, shapes=2), "seed": 0}
    passes = []
    with gluon_loader(data, 2, last_batch=last_batch, num_workers=0, **options) as loader:
        for _ in range(2):
            loader.set_epoch(0)
            passes.append(list(loader))
    shapes = [(tokens.shape[1], label.shape[1]) for tokens, label in passes[0]]
    assert shapes == [(4, 3), (4, 3), (10, 3), (10, 3)]
    assert outline(passes[0]) == outline(passes[1])


def test_items_of_mxnet_are_padded_too():
    data = SimpleDataset([(nd(tokens), 1) for tokens in TOKENS])
    tokens, _ = next(iter(gluon_loader(data, 4, batchify_fn=pad_collate(), num_workers=0)))
    assert tokens.asnumpy().tolist()[1] == [1, 2, 0, 0]


def test_peek_shows_a_passs_first_batches_and_begins_none():
    loader = gluon_loader((X, Y), 8, shuffle=True, seed=1, num_workers=0)
    peek = loader.peek(2)
    assert loader.state_dict() == {"epoch": 0, "batch": 0}
    first = next(iter(loader))
    assert peek.batches[0][0].tolist() == first[0].asnumpy()[:8].tolist()
    assert len(peek.batches) == 2
    assert peek.png().startswith(b"\x89PNG")
