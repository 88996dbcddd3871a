"""Gluon's data sets and arrays as a source of ``SafeSequence``."""

from __future__ import annotations

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset

from adapters.batch.order import Order
from adapters.batch.sourceplan import SourcePlan
from adapters.engine import Engine, Settings
from adapters.sources import as_source

IMAGES = np.arange(40, dtype=np.uint8).reshape(10, 2, 2, 1)
LABELS = np.arange(10, dtype=np.int32)
SETTINGS = {
    "inline": Settings(0),
    "threads": Settings(2),
    "processes": Settings(1, use_multiprocessing=True),
}


def doubled(sample):
    image, label = sample
    image *= 2
    return image.astype("float32"), label


def batches(source, settings, **arguments):
    plan = SourcePlan(as_source(source), Order(10, 4), **arguments)
    engine = Engine(plan, settings)
    try:
        stream = engine.stream(0, 0, False)
        return [stream.next() for _ in range(6)]
    finally:
        engine.close()


@pytest.mark.parametrize("executor", SETTINGS)
def test_samples_of_a_gluon_data_set_become_numpy_batches(executor):
    data = ArrayDataset(mx.nd.array(IMAGES, dtype="uint8"), LABELS)
    for images, labels in (
        batches(data, SETTINGS[executor])[0],
        batches(data, SETTINGS[executor])[3],
    ):
        assert (type(images), images.dtype, images.tolist()) == (
            np.ndarray,
            np.uint8,
            IMAGES[:4].tolist(),
        )
        assert labels.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("executor", SETTINGS)
def test_a_transform_that_writes_into_its_ndarray_harms_nobody(executor):
    data = ArrayDataset(mx.nd.array(IMAGES, dtype="uint8"), LABELS)
    first, again = batches(data, SETTINGS[executor], transform=doubled)[::3]
    assert first[0].dtype == again[0].dtype == np.float32
    assert first[0].tolist() == again[0].tolist() == (2 * IMAGES[:4]).tolist()


def test_ndarrays_are_a_source_themselves():
    first, *_ = batches((mx.nd.array(IMAGES, dtype="uint8"), LABELS), SETTINGS["inline"])
    assert (first[0].tolist(), first[1].tolist()) == (IMAGES[:4].tolist(), [0, 1, 2, 3])


def test_a_batch_transform_may_give_ndarrays():
    first, *_ = batches(IMAGES, SETTINGS["inline"], batch_transform=mx.nd.array)
    assert (type(first), first.tolist()) == (np.ndarray, IMAGES[:4].tolist())
