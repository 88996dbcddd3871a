"""A loader without a seed takes one from ``numpy.random`` when it is made, and nothing else."""

from __future__ import annotations

import random
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset, DataLoader, RandomSampler
from mxnet.gluon.data.vision.transforms import RandomFlipLeftRight

from adapters import ImageDecoder, gluon_loader, open_records
from tests.gluon.data_sets import outline, pixels, values
from tests.gluon.executors import THREADS, arguments_of, every_quick_executor
from tests.images.pictures import encoded, picture
from tests.sources.record_files import SIZE as RECORDS
from tests.sources.record_files import write_images

SIZE = 23
NUMBERS = np.arange(SIZE)


def state() -> Any:
    return np.random.get_state(legacy=False)


@every_quick_executor
def test_numpys_seed_before_the_loader_repeats_its_passes_and_two_passes_differ(executor):
    found = []
    for _ in range(2):
        np.random.seed(0)
        with gluon_loader(NUMBERS, 4, shuffle=True, **arguments_of(executor)) as loader:
            found.append([values(loader), values(loader)])
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]


def test_a_loader_takes_one_number_when_it_is_made_and_none_later():
    np.random.seed(1)
    np.random.randint(1 << 31)
    after = state()
    np.random.seed(1)
    with gluon_loader(NUMBERS, 4, shuffle=True, num_workers=0) as loader:
        np.testing.assert_equal(state(), after)
        assert values(loader) != values(loader)
        loader.peek()
    np.testing.assert_equal(state(), after)


def test_a_loader_with_a_seed_or_with_nothing_random_takes_nothing():
    before = state()
    with gluon_loader(NUMBERS, 4, num_workers=0) as loader:
        assert len(values(loader)) == 6
    with gluon_loader(NUMBERS, 4, shuffle=True, seed=1, num_workers=0) as loader:
        assert len(values(loader)) == 6
    np.testing.assert_equal(state(), before)


@pytest.mark.parametrize("last_batch", ["keep", "discard", "rollover"])
def test_without_shuffle_the_order_is_that_of_mxnets_loader(last_batch):
    stock = DataLoader(NUMBERS, 4, last_batch=last_batch)
    with gluon_loader(NUMBERS, 4, last_batch=last_batch, num_workers=0) as loader:
        assert [values(loader) for _ in range(3)] == [values(stock) for _ in range(3)]


def _drawn(number: Any) -> Any:
    return number, random.random(), np.random.rand(), mx.nd.random.uniform(shape=(1,))


def _records(folder: Any) -> Any:
    contents = [encoded(picture(20, 30), "JPEG")] * RECORDS
    path = write_images(folder / "a.rec", "recordio", contents)
    return open_records(path, decode=ImageDecoder(8, crop="random", flip=True))


DRAWING: dict[str, Any] = {
    "a transform": lambda folder: ArrayDataset(NUMBERS).transform(_drawn),
    "a block": lambda folder: ArrayDataset(mx.nd.array(pixels(), dtype="uint8")).transform(
        RandomFlipLeftRight()
    ),
    "a decoder": _records,
}


@pytest.mark.parametrize("order", [{}, {"shuffle": True}, {"last_batch": "rollover"}], ids=str)
@pytest.mark.parametrize("name", DRAWING)
def test_numpys_seed_repeats_what_is_drawn_and_passes_and_loaders_differ(name, order, tmp_path):
    data = DRAWING[name](tmp_path)

    def passes(executor: str = "inline") -> list[Any]:
        with gluon_loader(data, 4, **order, **arguments_of(executor)) as loader:
            found = [outline(list(loader)) for _ in range(2)]
            assert found[0] != found[1]
            return found

    np.random.seed(3)
    first, other = passes(), passes()
    assert first != other
    np.random.seed(3)
    assert passes() == first
    assert passes() == other


@pytest.mark.parametrize("name", ["a transform", "a decoder"])
def test_what_is_drawn_is_the_same_for_every_kind_of_worker(name, tmp_path):
    data, found = DRAWING[name](tmp_path), []
    for executor in ("inline", THREADS, "processes-1"):
        np.random.seed(3)
        with gluon_loader(data, 4, **arguments_of(executor)) as loader:
            found.append([outline(list(loader)) for _ in range(2)])
    assert found[1] == found[0]
    assert found[2] == found[0]


@pytest.mark.parametrize("seed", [None, 1])
def test_the_second_of_a_pair_of_normal_numbers_stays(seed):
    """NumPy keeps it beside the generator's own state."""
    data = DRAWING["a transform"](None)
    np.random.seed(9)
    np.random.normal()
    with gluon_loader(data, 4, num_workers=0, seed=seed) as loader:
        assert outline(list(loader)) != outline(list(loader))
    assert np.random.normal() == np.random.RandomState(9).normal(size=2)[1]


def test_a_sampler_that_draws_gives_what_it_gives_mxnets_loader():
    np.random.seed(8)
    stock = DataLoader(NUMBERS, 4, sampler=RandomSampler(SIZE))
    expected = [values(stock) for _ in range(2)]
    with gluon_loader(NUMBERS, 4, sampler=RandomSampler(SIZE), num_workers=0) as loader:
        np.random.seed(8)
        assert [values(loader) for _ in range(2)] == expected
