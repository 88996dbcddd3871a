"""Collates and transforms of this package in a ``gluon_loader``: NDArrays come out."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset, SimpleDataset

from adapters import Buckets, SafeSequence, gluon_loader, pad
from adapters.transforms import Chain, ColorJitter, MixUp, OneHot
from tests.gluon.data_sets import nd, numpy_semantics, outline
from tests.gluon.executors import every_executor, opened

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


def test_what_they_compute_is_what_keras_gets():
    loader = gluon_loader((X, Y), 8, batch_transform=ALL, seed=0, num_workers=0)
    sequence = SafeSequence((X, Y), 8, batch_transform=ALL, seed=0, workers=0)
    for (data, label), (x, y) in zip(loader, sequence):
        assert data.asnumpy().tolist() == x.tolist()
        assert label.asnumpy().tolist() == y.tolist()


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
    with opened(data, executor, batchify_fn=pad(9, 4)) as loader:
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
                data, 8, batchify_fn=pad(), batch_transform=transform, num_workers=0
            )
            images, labels = next(iter(loader))
            kind = mx.np.ndarray if semantics else mx.nd.NDArray
            assert type(images) is type(labels) is kind
            assert images.shape == (8, 7, 8, 3)


def test_batches_of_buckets_are_padded_to_their_bounds():
    lengths = np.random.default_rng(2).integers(1, 60, 200)
    buckets = Buckets(lengths, shapes=4)
    samples = [np.full(n, n, "float32") for n in lengths.tolist()]
    options = {"batchify_fn": pad(), "bucket_by": buckets, "num_workers": 0, "seed": 1}
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
    options = {"batchify_fn": pad(), "bucket_by": Buckets(lengths, shapes=2), "seed": 0}
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
    tokens, _ = next(iter(gluon_loader(data, 4, batchify_fn=pad(), num_workers=0)))
    assert tokens.asnumpy().tolist()[1] == [1, 2, 0, 0]


def test_peek_shows_a_passs_first_batches_and_begins_none():
    loader = gluon_loader((X, Y), 8, shuffle=True, seed=1, num_workers=0)
    peek = loader.peek(2)
    assert loader.state_dict() == {"epoch": 0, "batch": 0}
    first = next(iter(loader))
    assert peek.batches[0][0].tolist() == first[0].asnumpy()[:8].tolist()
    assert len(peek.batches) == 2
    assert peek.png().startswith(b"\x89PNG")
