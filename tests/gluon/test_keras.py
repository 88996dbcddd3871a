"""Gluon's data sets and arrays as a source of ``SafeSequence``, and what both front ends share.

Worker processes import the module of a function that they run; none should import this one,
which imports Keras.
"""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset

from adapters import SafeSequence, gluon_loader
from adapters.transforms import Chain, ColorJitter, MixUp, OneHot
from tests.gluon.data_sets import doubled

IMAGES = np.arange(40, dtype=np.uint8).reshape(10, 2, 2, 1)
LABELS = np.arange(10, dtype=np.int32)
WORKERS: dict[str, Any] = {
    "inline": {"workers": 0},
    "threads": {"workers": 2, "thread_safe": True},
    "processes": {"workers": 1, "use_multiprocessing": True},
}


def batches(source, executor, **arguments):
    """The batches of two epochs."""
    with SafeSequence(source, 4, **WORKERS[executor], **arguments) as sequence:
        return [batch for _ in range(2) for batch in sequence]


@pytest.mark.parametrize(
    "executor", ["inline", "threads", pytest.param("processes", marks=pytest.mark.full)]
)
def test_transform_that_writes_into_its_ndarray_harms_nobody(executor):
    data = ArrayDataset(mx.nd.array(IMAGES, dtype="uint8"), LABELS)
    first, again = batches(data, executor, transform=doubled)[::3]
    assert first[0].dtype == again[0].dtype == np.float32
    assert first[0].tolist() == again[0].tolist() == (2 * IMAGES[:4]).tolist()
    assert first[1].tolist() == again[1].tolist() == [0, 1, 2, 3]


def test_ndarrays_are_a_source_themselves():
    first, *_ = batches((mx.nd.array(IMAGES, dtype="uint8"), LABELS), "inline")
    assert (first[0].tolist(), first[1].tolist()) == (IMAGES[:4].tolist(), [0, 1, 2, 3])


def test_batch_transform_may_give_ndarrays():
    first, *_ = batches(IMAGES, "inline", batch_transform=mx.nd.array)
    assert (type(first), first.tolist()) == (np.ndarray, IMAGES[:4].tolist())


def test_transforms_compute_alike_in_both_front_ends():
    images = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), np.uint8)
    labels = np.arange(24) % 4
    chain = Chain([OneHot(4), ColorJitter(0.4, 0.4, 0.4, 0.1), MixUp()])
    loader = gluon_loader((images, labels), 8, batch_transform=chain, seed=0, num_workers=0)
    sequence = SafeSequence((images, labels), 8, batch_transform=chain, seed=0, workers=0)
    for (data, label), (x, y) in zip(loader, sequence, strict=True):
        assert data.asnumpy().tolist() == x.tolist()
        assert label.asnumpy().tolist() == y.tolist()
