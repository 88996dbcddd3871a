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
from mxnet import nd
from mxnet.gluon import nn
from mxnet.gluon.data import ArrayDataset, Dataset
from mxnet.gluon.data.vision import transforms

from adapters.bytecode import generators_used

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
        (transforms.RandomBrightness(0.5), {"random", "numpy", "mxnet"}),
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
