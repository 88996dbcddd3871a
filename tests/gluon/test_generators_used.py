"""Which global generators some code may draw from, as far as its byte code tells."""

from __future__ import annotations

import functools
import operator
import random
import types
from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
import numpy.random as npr
import psutil
import pytest
from mxnet import image, nd
from mxnet.gluon import nn
from mxnet.gluon.data import ArrayDataset, Dataset, SimpleDataset
from mxnet.gluon.data.vision import transforms

from adapters import gluon_loader
from adapters.generator_search import generators_used
from tests.gluon import drawing

_rng = np.random.default_rng(0)
_table = {"jitter": lambda x: x + random.random()}


def _calls_random(x: Any) -> Any:
    return x + random.random()


def _calls_numpy(x: Any) -> Any:
    return x + np.random.rand()


def _calls_renamed(x: Any) -> Any:
    return x + npr.normal()


def _calls_mxnet(x: Any) -> Any:
    return x + mx.nd.random.uniform(shape=x.shape)


def _calls_nd(x: Any) -> Any:
    return x + nd.random_normal(shape=x.shape)


def _imports_inside(x: Any) -> Any:
    from random import choice

    return choice([x])


def _indirect(x: Any) -> Any:
    return [_calls_numpy(member) for member in x]


def _by_table(x: Any) -> Any:
    return _table["jitter"](x)


def _closure(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(x)


def _default(x: Any, draw: Any = random.random) -> Any:
    return x + draw()


def _quiet(x: Any) -> Any:
    return np.clip(x.astype("float32") / 255, 0, 1)


def _quiet_mxnet(x: Any) -> Any:
    return mx.nd.transpose(x, (2, 0, 1)) + nd.ones((1,)) + mx.image.imresize(x, 2, 2)


def _own_generator(x: Any) -> Any:
    return x + _rng.random()


class Jitter:
    """A callable with a method of its own."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def _draw(self) -> float:
        return np.random.normal() * self.scale

    def __call__(self, x: Any) -> Any:
        return x + self._draw()

    def quiet(self, x: Any) -> Any:
        return x * self.scale


class Drawing(Dataset):
    """A data set that draws."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> float:
        return random.random() + index


def _net(*blocks: Any) -> Any:
    net = nn.Sequential()
    net.add(*blocks)
    return net


@pytest.mark.parametrize(
    ("value", "used"),
    [
        (_calls_random, "random"),
        (lambda x: random.shuffle(x), "random"),
        (random.random, "random"),
        (random.Random.shuffle, "random"),
        (_calls_numpy, "numpy"),
        (_calls_renamed, "numpy"),
        (np.random.rand, "numpy"),
        (_calls_mxnet, "mxnet"),
        (_calls_nd, "mxnet"),
        (mx.nd.random.uniform, "mxnet"),
        (lambda x: mx.np.random.uniform(), "mxnet"),
        (_imports_inside, "random"),
        (_indirect, "numpy"),
        (_by_table, "random"),
        (_closure(_calls_numpy), "numpy"),
        (_closure(_closure(_calls_mxnet)), "mxnet"),
        (_default, "random"),
        (functools.partial(_calls_random), "random"),
        (functools.partial(map, _calls_numpy), "numpy"),
        (Jitter(), "numpy"),
        (Jitter().__call__, "numpy"),
        (Jitter, "numpy"),
        (Drawing(), "random"),
        (Drawing().transform(_calls_numpy), "random numpy"),
        (ArrayDataset([1, 2]).transform_first(_calls_mxnet), "mxnet"),
        ([_calls_random, {"a": (_calls_numpy,)}], "random numpy"),
        (transforms.RandomBrightness(0.5), "mxnet"),
        (transforms.RandomResizedCrop(3), "random"),
        (transforms.Compose([transforms.ToTensor(), transforms.RandomFlipLeftRight()]), "mxnet"),
        (_net(nn.Dropout(0.5)), "mxnet"),
        (nn.Lambda(_calls_numpy), "numpy"),
    ],
    ids=lambda value: getattr(value, "__qualname__", None) or str(value).split(" at ")[0][:40],
)
def test_the_generators_that_code_draws_from_are_found(value, used):
    assert set(used.split()) <= generators_used(value).possibly


@pytest.mark.parametrize(
    "value",
    [
        _quiet,
        _quiet_mxnet,
        _own_generator,
        lambda x: (x, 1),
        functools.partial(_quiet, 1),
        operator.itemgetter(0),
        np.asarray,
        transforms.ToTensor(),
        transforms.Compose([transforms.ToTensor(), transforms.Normalize(0.5, 0.5)]),
        ArrayDataset([1, 2], np.zeros(2)).transform_first(_quiet),
        _closure(_quiet),
        mx.image.imdecode,
        None,
    ],
    ids=lambda value: getattr(value, "__qualname__", None) or str(value).split(" at ")[0][:40],
)
def test_code_that_draws_nothing_is_known_to(value):
    assert generators_used(value).possibly == frozenset()


@pytest.mark.parametrize("value", [lambda x: psutil.Process(x), psutil, [].append])
def test_code_that_cannot_be_looked_at_may_draw(value):
    assert generators_used(value).possibly >= {"random", "numpy"}


def test_code_that_refers_to_itself_is_looked_at():
    value: list[Any] = [_quiet]
    value.append(value)
    assert generators_used(value).possibly == frozenset()
    value.append(_calls_random)
    assert generators_used(value).possibly == {"random"}


@pytest.mark.parametrize(
    ("value", "certain"),
    [
        (_calls_random, {"random"}),
        (_calls_numpy, {"numpy"}),
        (_calls_renamed, {"numpy"}),
        (np.random.rand, {"numpy"}),
        (random.random, {"random"}),
        (_calls_mxnet, {"mxnet"}),
        (transforms.RandomBrightness(0.5), {"mxnet"}),
        (lambda x: psutil.Process(x), set()),
        (psutil, set()),
        ([].append, set()),
        (lambda x: np.random.default_rng(x).normal(), set()),
        (_quiet, set()),
    ],
)
def test_what_the_code_names_is_told_from_what_it_may_use(value, certain):
    assert generators_used(value).certainly == certain


def test_what_cannot_be_looked_at_breaks_nothing():
    class Hostile:
        @property
        def __self__(self):
            raise RuntimeError("nobody looks at me")

    bound_in_c = types.MethodType(len, "text")
    assert generators_used(Hostile(), bound_in_c).certainly == frozenset()


# --- MXNet's own functions ---

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
    ("value", "used"),
    [
        (image.HorizontalFlipAug(0.5), "random"),
        (image.LightingAug(0.1, np.ones(3), np.eye(3)), "numpy"),
        (image.SequentialAug([image.BrightnessJitterAug(0.5)]), "random"),
        (image.RandomOrderAug([image.CastAug()]), "random"),
        (image.DetBorrowAug(image.BrightnessJitterAug(0.1)), "random"),
        (image.DetHorizontalFlipAug(0.5), "random"),
        (image.CreateDetAugmenter((3, 4, 4), rand_mirror=True), "random"),
        (Flips(), "random"),
        (image.CreateAugmenter, "random numpy"),
        (_augments, "random numpy"),
        (lambda x: _flip(x), "random"),
        (lambda x: image.HorizontalFlipAug(0.5)(x), "random"),
        (lambda x: image.random_crop(x, (2, 2)), "random"),
        (lambda x: mx.image.random_size_crop(x, (2, 2), 0.1, (1, 2)), "random"),
    ],
    ids=lambda value: getattr(value, "__qualname__", type(value).__name__),
)
def test_augmenters_draw_from_the_generators_that_their_code_names(value, used):
    assert generators_used(value).certainly == set(used.split())


@pytest.mark.parametrize(
    "value",
    [
        Noise(),
        Drops(),
        lambda x: x + nd.normal(shape=(1,)),
        lambda x: x + mx.nd.uniform(shape=(1,)),
        lambda x: x + mx.random.normal(shape=(1,)),
        lambda x: x + mx.nd.random.gamma(shape=(1,)),
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
