"""Functions of a class are looked through wherever it keeps them, and whatever it derives from."""

from __future__ import annotations

import collections
import functools
import random
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from adapters.generator_search import draws_unseeded, generator_name, generators_used


def draws(x: Any) -> Any:
    return x + np.random.rand()


class InSlot:
    __slots__ = ("__inner", "unset")

    def __init__(self, inner: Any) -> None:
        self.__inner = inner

    def __call__(self, x: Any) -> Any:
        return self.__inner(x)


class OfTheClass:
    steps = (draws,)

    def __call__(self, x: Any) -> Any:
        return self.steps[0](x)


class Quiet(list):
    names = ("a", "b")
    kind = int

    def __call__(self, x: Any) -> Any:
        return x


def makes_an_array() -> Any:
    return np.random.default_rng(0).random((3, 2))


def passes_it_on(call: Any) -> Any:
    return call(np.random)


def draws_by_another_name() -> Any:
    module = np.random
    return module.rand(3)


def draws_in_a_function_within() -> Any:
    import numpy as own

    return [(lambda: own.random.rand())() for _ in range(3)]


def draws_by_an_attribute_s_name() -> Any:
    return getattr(np, "random").rand(3)  # noqa: B009


_NAMES: dict[str, Any] = {"np": np}
# Python needs a further instruction for a place above 255.
exec(f"def of_many_names():\n {'; '.join(f'n{i}' for i in range(300))}\n np.random.rand()", _NAMES)


class ShufflesBetweenEpochs:
    """As Keras's tutorials have it."""

    def __init__(self) -> None:
        self.numbers = np.arange(4)
        self.on_epoch_end()

    def __getitem__(self, index: int) -> Any:
        return self.numbers[index]

    def on_epoch_end(self) -> None:
        np.random.shuffle(self.numbers)


class ShufflesByItself(ShufflesBetweenEpochs):
    def __getitem__(self, index: int) -> Any:
        if index == 3:
            self.on_epoch_end()
        return self.numbers[index]


class Holds:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getitem__(self, index: int) -> Any:
        return self.inner[index]


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def call(self: Any, index: int) -> Any:
        return function(self, index)

    return call


class ShufflesDecorated(ShufflesBetweenEpochs):
    @decorated
    def __getitem__(self, index: int) -> Any:
        self.on_epoch_end()
        return self.numbers[index]


class Steps:
    def __init__(self, *steps: Any) -> None:
        self.steps = collections.deque(steps)

    def __getitem__(self, index: int) -> Any:
        return [step(index) for step in self.steps]


class ImportsBoth:
    def __getitem__(self, index: int) -> Any:
        from random import Random, shuffle

        numbers = [1, 2]
        shuffle(numbers)
        return Random(index).random(), numbers


class KeepsNumpys:
    def __init__(self) -> None:
        self.generator = np.random.mtrand._rand

    def __getitem__(self, index: int) -> Any:
        return self.generator.rand()


class NamesTypes(ShufflesBetweenEpochs):
    def __getitem__(self, index: int) -> Any:
        if index < 0:
            raise IndexError(f"{type(index)}, {type(index).__name__}")
        return self.numbers[index]


class Augments:
    """Its weights are drawn once."""

    def __init__(self) -> None:
        self.weights = np.random.rand(3)

    def augment(self, x: Any) -> Any:
        return x * self.weights


@pytest.mark.parametrize(
    "code",
    [
        *(draws_by_another_name, passes_it_on, draws_in_a_function_within),
        *(draws_by_an_attribute_s_name, _NAMES["of_many_names"]),
        *(InSlot(draws), OfTheClass()),
        *(ShufflesByItself(), Holds(ShufflesBetweenEpochs()), ShufflesDecorated()),
        *(Steps(draws), Steps(np.vectorize(draws)), KeepsNumpys()),
    ],
    ids=lambda code: getattr(code, "__name__", type(code).__name__),
)
def test_draws_are_found(code):
    assert generators_used(code).certainly == {"numpy"}


@pytest.mark.parametrize(
    "code",
    [ShufflesBetweenEpochs(), NamesTypes(), Augments().augment, [Augments()], makes_an_array],
    ids=["between epochs", "names types", "a method", "a list", "one's own generator"],
)
def test_draws_once_are_none(code):
    assert not generators_used(code).certainly


def test_draws_beside_a_class_of_generators():
    assert generators_used(ImportsBoth()).certainly == {"random"}


@pytest.mark.parametrize("value", [Quiet([1]), [1, "a"], np.float32(1), np.zeros(2)], ids=str)
def test_draws_of_none(value):
    assert generators_used(value).possibly == frozenset()


@pytest.mark.full  # To import PyTorch takes seconds.
def test_draws_within_a_large_library():
    data = pytest.importorskip("torch.utils.data")

    class Own(data.Dataset):
        def __getitem__(self, index: int) -> Any:
            return draws(index)

        def __len__(self) -> int:
            return 4

    rows = pytest.importorskip("datasets").Dataset.from_dict({"x": [1]})
    assert not generators_used(rows).certainly
    for value in (data.Subset(Own(), [0]), data.ConcatDataset([Own()]), rows.with_transform(draws)):
        assert generators_used(value).certainly == {"numpy"}


# --- samplers of one's own ---


class Augmenting:
    """Samples that draw."""

    def __getitem__(self, number: int) -> Any:
        return number + np.random.rand()


class Seeded:
    """A sampler whose order is the same each time."""

    def __iter__(self) -> Any:
        order = list(range(4))
        random.Random(7).shuffle(order)
        return iter(np.random.Generator(np.random.SFC64(3)).permutation(order))


class ByLength:
    """The samples of what it holds draw; their order doesn't."""

    def __init__(self) -> None:
        self.samples = Augmenting()

    def __iter__(self) -> Any:
        return iter(sorted(range(4), key=lambda number: -number))


class Unseeded:
    def __iter__(self) -> Any:
        return iter(np.random.permutation(4))


class UnseededInside:
    def __iter__(self) -> Any:
        return iter(sorted(range(4), key=lambda number: random.random()))


class Wraps:
    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Any:
        return iter(self.sampler)


class ToldTheEpoch(Unseeded):
    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


@pytest.mark.parametrize("sampler", [Seeded(), ByLength(), ToldTheEpoch(), Wraps(Seeded()), [1, 2]])
def test_sampler_that_is_seeded(sampler):
    assert not draws_unseeded(sampler)


@pytest.mark.parametrize(
    "sampler",
    [Unseeded(), UnseededInside(), Wraps(Unseeded())],
    ids=lambda sampler: type(sampler).__name__,
)
def test_sampler_that_draws(sampler):
    assert draws_unseeded(sampler)


# --- names of generators ---


class Touchy:
    """Warns of each access to its attributes, as ``torch.distributed.reduce_op`` does."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"{name} was accessed")


def test_touchy_objects_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("touchy")
    module.touchy = Touchy()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "touchy", module)
    generators = iter([np.random.default_rng()])
    assert generator_name(next(generators)) == "a generator (numpy's Generator)"
