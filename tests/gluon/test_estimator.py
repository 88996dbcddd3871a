"""Gluon's ``Estimator``, which takes nothing but a ``DataLoader``."""

from __future__ import annotations

import logging
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.contrib.estimator import Estimator
from mxnet.gluon.data import ArrayDataset, DataLoader
from mxnet.gluon.data.vision.transforms import ToTensor

from tests.gluon.executors import PROCESSES, THREADS, opened

SIZE = 24


def images() -> Any:
    """Bright ones and dark ones, in turn."""
    labels = np.arange(SIZE) % 2
    pixels = np.broadcast_to(labels[:, None, None, None] * 255, (SIZE, 4, 4, 1)).astype(np.uint8)
    return ArrayDataset(mx.nd.array(pixels, dtype="uint8"), labels.astype(np.float32))


def small(dark: Any) -> Any:
    """As float32 in [0, 1], a sample at a time."""
    return dark.astype("float32").transpose((2, 0, 1)) / 255


@pytest.mark.parametrize(
    ("executor", "transform"), [("inline", small), (THREADS, ToTensor()), (PROCESSES, small)]
)
def test_fit_and_evaluate_take_a_loader_for_training_and_validation(executor, transform):
    net = mx.gluon.nn.Dense(2)
    net.initialize(mx.init.One())
    metric = mx.metric.Accuracy()
    estimator = Estimator(
        net,
        mx.gluon.loss.SoftmaxCrossEntropyLoss(),
        metric,
        trainer=mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}),
        context=mx.cpu(0),
    )
    estimator.logger.setLevel(logging.ERROR)
    data = images().transform_first(transform)
    with (
        opened(data, executor, shuffle=True, seed=1) as train,
        opened(data, executor, 8) as validation,
    ):
        assert isinstance(train, DataLoader)
        estimator.fit(train, val_data=validation, epochs=3)
        assert estimator.max_epoch == 3
        estimator.evaluate(validation)
    scores = {each.get()[0]: each.get()[1] for each in estimator.val_metrics}
    assert scores["validation accuracy"] == 1.0
