"""Random numbers: functions of seed, epoch and sample, and nobody else's generators disturbed."""

from __future__ import annotations

import itertools
import random
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import image, nd
from mxnet.gluon import nn
from mxnet.gluon.data import ArrayDataset, DataLoader, RandomSampler, SimpleDataset
from mxnet.gluon.data.vision import transforms
from mxnet.gluon.data.vision.transforms import RandomFlipLeftRight

from adapters import gluon_loader
from tests.gluon.data_sets import outline, pixels, values
from tests.gluon.executors import THREADS as ON_THREADS
from tests.gluon.executors import arguments_of

INLINE = {"num_workers": 0}
THREADS = {"num_workers": 3, "thread_pool": True}


COUNT = 7


def _draws_all(number: Any) -> Any:
    drawn = nd.random.uniform(shape=(2,))
    return number, random.random(), np.random.rand(2), drawn, np.random.randint(0, 1000)


TRANSFORMS = {
    "random": lambda number: random.random(),
    "numpy": lambda number: np.random.rand(2),
    "mxnet": lambda number: nd.random.normal(shape=(2,)),
    "all": _draws_all,
}
EACH = pytest.mark.parametrize("name", TRANSFORMS)


def loader_of(name: str, **arguments: Any) -> Any:
    data = ArrayDataset(np.zeros(COUNT) if name != "all" else np.arange(COUNT))
    arguments = {"batch_size": 3, "seed": 2**70, **INLINE, **arguments}
    return gluon_loader(data.transform(TRANSFORMS[name]), **arguments)


def epochs_of(name: str, count: int = 2, **arguments: Any) -> list[Any]:
    with loader_of(name, **arguments) as loader:
        return [outline(list(loader)) for _ in range(count)]


@EACH
def test_seed_repeats_what_a_transform_draws(name):
    first = epochs_of(name, shuffle=True)
    random.seed(5)
    np.random.seed(5)
    mx.random.seed(5)
    assert epochs_of(name, shuffle=True) == first


def test_log_says_that_batches_are_made_one_at_a_time(caplog):
    with caplog.at_level("INFO", logger="adapters"), loader_of("numpy", **THREADS) as loader:
        list(loader)
    (said,) = [record.message for record in caplog.records if "one at a time" in record.message]
    assert "numpy" in said
    assert "thread_pool=False" in said


@EACH
def test_epochs_seeds_and_loaders_without_a_seed_differ(name):
    one, two = epochs_of(name)
    outlines = [one, two, *epochs_of(name, 1, seed=12)]
    outlines += [epochs_of(name, 1, seed=None)[0] for _ in range(2)]
    assert all(first != second for first, second in itertools.combinations(outlines, 2))


@pytest.mark.parametrize("name", ["random", "numpy"])
def test_draws_depend_on_neither_batch_nor_order(name):
    def rows(**arguments: Any) -> Any:
        data = ArrayDataset(np.arange(COUNT)).transform(lambda n: (n, TRANSFORMS[name](n)))
        with gluon_loader(data, seed=2, **INLINE, **arguments) as loader:
            numbers, drawn = zip(*([each.asnumpy() for each in batch] for batch in loader))
        return np.concatenate(drawn)[np.argsort(np.concatenate(numbers))]

    expected = rows(batch_size=COUNT)
    np.testing.assert_array_equal(rows(batch_size=2), expected)
    np.testing.assert_array_equal(rows(batch_size=3, shuffle=True), expected)


class Mixed(SimpleDataset):
    """Mixes samples by a factor that is drawn once ``draw`` has been set."""

    draw: Any = None

    def __getitem__(self, number: int) -> Any:
        return float(number) if self.draw is None else self.draw()


@pytest.mark.parametrize("executor", ["inline", "processes-1"])
def test_draws_switched_on_after_the_loader_was_made_are_seeded(executor):
    drawn = []
    for state in range(2):
        np.random.seed(state)
        data = Mixed(range(COUNT))
        with gluon_loader(data, 3, seed=1, **arguments_of(executor)) as loader:
            data.draw = np.random.rand
            drawn.append([values(loader), values(loader)])
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[0][1]


@pytest.mark.parametrize("workers", [INLINE, THREADS])
def test_between_two_batches_the_users_generators_are_his_own(workers):
    random.seed(1)
    np.random.seed(1)
    expected = [(random.random(), np.random.rand()) for _ in range(3)]
    random.seed(1)
    np.random.seed(1)
    with loader_of("all", **workers) as loader:
        assert [(random.random(), np.random.rand()) for _ in loader] == expected


def test_after_an_exception_the_users_generators_are_put_back():
    def failing(number: Any) -> Any:
        return random.random() / np.random.rand() / 0

    before = random.getstate(), np.random.get_state()
    data = ArrayDataset([1.0]).transform(failing)
    with gluon_loader(data, 1, seed=0, **INLINE) as loader, pytest.raises(ZeroDivisionError):
        list(loader)
    assert random.getstate() == before[0]
    np.testing.assert_equal(np.random.get_state(), before[1])


@pytest.mark.parametrize(
    "function",
    [
        TRANSFORMS["numpy"],
        lambda number: nd.gamma(nd.ones((2,))) * float(number),
        lambda number: image.center_crop(nd.ones((4, 4, 3)), (2, 2))[0],
        lambda number: image.CastAug()(nd.ones((4, 4, 3))),
        lambda number: transforms.Normalize(0.5, 0.5)(nd.ones((3, 4, 4))),
    ],
    ids=["numpy", "operator", "function", "augmenter", "block"],
)
def test_mxnets_generator_is_left_alone(function):
    def drawn_after(iterate: bool) -> Any:
        mx.random.seed(9)
        if iterate:
            data = ArrayDataset(np.zeros(COUNT)).transform(function)
            with gluon_loader(data, 2, shuffle=True, **INLINE) as loader:
                assert len(list(loader)) == 4
        return mx.nd.random.uniform(shape=3).asnumpy().tolist()

    assert drawn_after(True) == drawn_after(False)


def test_augmenters_outside_a_loader_are_mxnets():
    augment = image.RandomOrderAug([lambda x, n=n: [*x, n] for n in range(9)])
    assert augment([]) == [each([])[0] for each in augment.ts]


def test_users_seed_of_mxnet_still_counts():
    def drawn_after(seed: int) -> Any:
        mx.random.seed(seed)
        epochs_of("mxnet")
        return mx.nd.random.uniform(shape=3).asnumpy().tolist()

    assert drawn_after(9) == drawn_after(9) != drawn_after(10)


# --- without a seed ---


SIZE = 23
FEW = np.arange(SIZE)


def state() -> Any:
    return np.random.get_state(legacy=False)


def test_loader_takes_one_number_of_numpys():
    np.random.seed(1)
    np.random.randint(1 << 31)
    after = state()
    np.random.seed(1)
    with gluon_loader(FEW, 4, shuffle=True, num_workers=0) as loader:
        np.testing.assert_equal(state(), after)
        assert values(loader) != values(loader)
        loader.peek()
    with gluon_loader(FEW, 4, shuffle=True, seed=1, num_workers=0) as loader:
        assert len(values(loader)) == 6
    np.testing.assert_equal(state(), after)


def _drawn(number: Any) -> Any:
    return number, random.random(), np.random.rand(), mx.nd.random.uniform(shape=(1,))


DRAWING: dict[str, Any] = {
    "a transform": lambda: ArrayDataset(FEW).transform(_drawn),
    "a block": lambda: SimpleDataset([*zip(nd.array(pixels()))]).transform(RandomFlipLeftRight()),
}


@pytest.mark.parametrize(
    ("name", "order", "executor"),
    [
        ("a transform", {"last_batch": "rollover"}, "processes-1"),
        ("a block", {"shuffle": True}, ON_THREADS),
    ],
)
def test_numpys_seed_repeats_what_is_drawn(name, order, executor):
    data = DRAWING[name]()

    def passes(executor: str = "inline") -> list[Any]:
        with gluon_loader(data, 4, **order, **arguments_of(executor)) as loader:
            found = [outline(list(loader)) for _ in range(2)]
            assert found[0] != found[1]
            return found

    np.random.seed(3)
    first, other = passes(), passes()
    assert first != other
    np.random.seed(3)
    assert passes(executor) == first
    assert passes() == other


@pytest.mark.parametrize("seed", [None, 1])
def test_second_of_a_pair_of_normal_numbers_stays(seed):
    """NumPy keeps it beside the generator's own state."""
    data = DRAWING["a transform"]()
    np.random.seed(9)
    np.random.normal()
    with gluon_loader(data, 4, num_workers=0, seed=seed) as loader:
        assert outline(list(loader)) != outline(list(loader))
    assert np.random.normal() == np.random.RandomState(9).normal(size=2)[1]


def test_sampler_that_draws_gives_what_it_gives_mxnets_loader():
    np.random.seed(8)
    stock = DataLoader(FEW, 4, sampler=RandomSampler(SIZE))
    expected = [values(stock) for _ in range(2)]
    with gluon_loader(FEW, 4, sampler=RandomSampler(SIZE), num_workers=0) as loader:
        np.random.seed(8)
        assert [values(loader) for _ in range(2)] == expected


def _calls_numpy(x: Any) -> Any:
    return x + np.random.rand()


class Drops(nn.HybridBlock):
    def hybrid_forward(self, operators: Any, x: Any) -> Any:
        return x * operators.Dropout(x, p=0.5, mode="always")


class Flips(image.HorizontalFlipAug):
    """A class of the user's own."""


def _augments(x: Any) -> Any:
    for each in image.CreateAugmenter((3, 4, 4), rand_mirror=True):
        x = each(x)
    return x


def _first(transform: Any, mxnets_seed: int) -> Any:
    pictures = SimpleDataset([nd.array(np.arange(48).reshape(4, 4, 3)) for _ in range(16)])
    mx.random.seed(mxnets_seed)
    with gluon_loader(pictures.transform(transform), 16, seed=7, num_workers=0) as loader:
        return next(iter(loader)).asnumpy()


BOX = np.array([[0, 0.1, 0.1, 0.5, 0.5]])
_one_of = image.DetRandomSelectAug([image.DetHorizontalFlipAug(p) for p in range(2)])
DRAWS: dict[str, Any] = {
    "augmenter": image.HorizontalFlipAug(0.5),
    "augmenter of NumPy's": image.LightingAug(0.1, np.ones(3), np.eye(3)),
    "augmenters in any order": image.RandomOrderAug([lambda x: x * 2, lambda x: x + 1]),
    "augmenter of the module": lambda x: _one_of(x, BOX)[0],
    "own augmenter": Flips(0.25),
    "augmenters that are made": _augments,
    "crop": lambda x: image.random_crop(x, (2, 2))[0],
    "mx.nd.random.gamma": lambda x: x + mx.nd.random.gamma(shape=(1,)),
    "nd.shuffle": lambda x: nd.shuffle(x),
    "own block": Drops(),
    "MXNet's jitter": transforms.RandomColorJitter(0.5, 0.5, 0.5, 0.5),
    "MXNet's block of another": transforms.RandomApply(transforms.RandomLighting(0.5)),
    "MXNet's blocks": transforms.Compose([transforms.RandomFlipLeftRight()]),
    "block of a function": nn.Lambda(_calls_numpy),
}


@pytest.mark.parametrize("transform", list(DRAWS.values()), ids=list(DRAWS))
def test_seed_decides_what_mxnet_draws(transform):
    before = random.getstate(), np.random.get_state()[2]
    assert np.array_equal(_first(transform, 1), _first(transform, 2))
    assert (random.getstate(), np.random.get_state()[2]) == before
