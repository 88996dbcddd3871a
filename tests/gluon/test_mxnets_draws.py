"""What MXNet itself draws, from three generators, is found, and follows a loader's seed."""

from __future__ import annotations

import random
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import image, nd
from mxnet.gluon import nn
from mxnet.gluon.data import SimpleDataset

from adapters import gluon_loader
from adapters.bytecode import generators_used
from tests.gluon import drawing

_flip = image.HorizontalFlipAug(0.5)


class Noise(nn.HybridBlock):
    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x + F.random.normal(shape=(1,))


class Drops(nn.HybridBlock):
    def hybrid_forward(self, operators: Any, x: Any) -> Any:
        return x * operators.Dropout(x, p=0.5, mode="always")


class Scales(nn.HybridBlock):
    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.transpose(x) * 2


class Flips(image.HorizontalFlipAug):
    """With a probability of its own."""

    def __init__(self) -> None:
        super().__init__(0.25)


def _augments(x: Any) -> Any:
    for each in image.CreateAugmenter((3, 4, 4), rand_mirror=True):
        x = each(x)
    return x


@pytest.mark.parametrize(
    "value",
    [
        image.HorizontalFlipAug(0.5),
        image.LightingAug(0.1, np.ones(3), np.eye(3)),
        image.SequentialAug([image.BrightnessJitterAug(0.5)]),
        image.RandomOrderAug([image.CastAug()]),
        image.DetBorrowAug(image.BrightnessJitterAug(0.1)),
        image.DetHorizontalFlipAug(0.5),
        image.CreateDetAugmenter((3, 4, 4), rand_mirror=True),
        Flips(),
        image.CreateAugmenter,
        _augments,
        lambda x: _flip(x),
        lambda x: image.HorizontalFlipAug(0.5)(x),
        lambda x: image.random_crop(x, (2, 2)),
        lambda x: mx.image.random_size_crop(x, (2, 2), 0.1, (1, 2)),
    ],
    ids=lambda value: getattr(value, "__qualname__", type(value).__name__),
)
def test_what_augments_at_random_may_draw_from_all_generators(value):
    assert generators_used(value).certainly == {"random", "numpy", "mxnet"}


@pytest.mark.parametrize(
    "value",
    [
        Noise(),
        Drops(),
        lambda x: x + nd.normal(shape=(1,)),
        lambda x: x + mx.nd.uniform(shape=(1,)),
        lambda x: x + mx.random.normal(shape=(1,)),
        lambda x: nd.shuffle(x),
        nd.uniform,
        nd.random.uniform,
        lambda x: drawing.noise(x),
        lambda x: drawing.inner.noise(x),
    ],
)
def test_operators_draw_from_mxnets_generator(value):
    assert generators_used(value).certainly == {"mxnet"}


@pytest.mark.parametrize(
    "value",
    [
        Scales(),
        image.CastAug(),
        image.SequentialAug([image.CenterCropAug((2, 2)), image.ResizeAug(2)]),
        image.DetBorrowAug(image.CastAug()),
        lambda x: image.center_crop(image.imrotate(x, 3), (2, 2)),
        lambda x: nd.gamma(x) + nd.L2Normalization(x),
        lambda x: drawing.twice(x) + drawing.SCALE,
        lambda x: drawing.inner.twice(x),
    ],
)
def test_what_of_mxnet_and_of_a_module_draws_nothing_is_known_to(value):
    assert generators_used(value).possibly == frozenset()


@pytest.mark.parametrize("value", [lambda x: drawing.missing(x), lambda x: drawing.inner, drawing])
def test_a_module_that_is_used_in_another_way_may_draw(value):
    assert generators_used(value).possibly >= {"random", "numpy"}
    assert not generators_used(value).certainly


def _first(transform: Any, mxnets_seed: int) -> Any:
    pictures = SimpleDataset([nd.array(np.arange(48).reshape(4, 4, 3)) for _ in range(16)])
    mx.random.seed(mxnets_seed)
    with gluon_loader(pictures.transform(transform), 16, seed=7, num_workers=0) as loader:
        return next(iter(loader)).asnumpy()


@pytest.mark.parametrize(
    "transform",
    [
        _augments,
        lambda x: image.random_crop(x, (2, 2))[0],
        lambda x: x + nd.normal(shape=(1,)),
        lambda x: drawing.noise(x),
        Noise(),
    ],
)
def test_the_seed_decides_what_mxnet_draws_and_nobody_elses_generator_moves(transform):
    before = random.getstate(), np.random.get_state()[2]
    assert np.array_equal(_first(transform, 1), _first(transform, 2))
    assert (random.getstate(), np.random.get_state()[2]) == before
