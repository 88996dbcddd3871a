"""A loader without a seed: what a script gets from it follows ``numpy.random``, as with MXNet's."""

from __future__ import annotations

import itertools
import random
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset, DataLoader, RandomSampler
from mxnet.gluon.data.vision.transforms import RandomFlipLeftRight

from adapters import ImageDecoder, gluon_loader, open_records
from tests.gluon.crews import THREADS, arguments_of, every_quick_crew
from tests.gluon.data_sets import outline, pixels, values
from tests.images.pictures import encoded, picture
from tests.sources.record_files import SIZE as RECORDS
from tests.sources.record_files import write_images

SIZE = 23
NUMBERS = np.arange(SIZE)


def state() -> Any:
    return np.random.get_state(legacy=False)


@pytest.mark.parametrize(
    ("crew", "last_batch"),
    [
        ("inline", "keep"),
        (THREADS, "discard"),
        (THREADS, "rollover"),
        (THREADS, None),
        ("processes-1", "keep"),
    ],
)
def test_the_order_is_that_of_mxnets_loader_pass_by_pass(crew, last_batch):
    arguments = {"batch_size": 4, "shuffle": True, "last_batch": last_batch}
    np.random.seed(4)
    stock = DataLoader(NUMBERS, **arguments)
    expected = [(values(stock), np.random.rand()) for _ in range(3)]
    after = state()
    np.random.seed(4)
    with gluon_loader(NUMBERS, **arguments, **arguments_of(crew)) as loader:
        assert [(values(loader), np.random.rand()) for _ in range(3)] == expected
    np.testing.assert_equal(state(), after)


@every_quick_crew
def test_numpys_seed_before_a_pass_repeats_it_and_two_passes_differ(crew):
    with gluon_loader(NUMBERS, 4, shuffle=True, **arguments_of(crew)) as loader:
        np.random.seed(0)
        first, second = values(loader), values(loader)
        np.random.seed(0)
        assert [values(loader), values(loader)] == [first, second]
    assert first != second


def test_two_loaders_after_numpys_seed_each_have_the_same_order():
    orders = []
    for _ in range(2):
        np.random.seed(0)
        with gluon_loader(NUMBERS, 4, shuffle=True, num_workers=0) as loader:
            orders.append(values(loader))
    assert orders[0] == orders[1]


def test_an_order_is_drawn_when_the_first_batch_is_asked_for():
    np.random.seed(1)
    with gluon_loader(NUMBERS, 4, shuffle=True, num_workers=2, thread_pool=False) as loader:
        iterator = iter(loader)
        before = state()
        np.random.seed(2)
        first = next(iterator).asnumpy().tolist()
        rest = values(iterator)
        after = state()
        np.testing.assert_equal(state(), after)  # Nothing is drawn for a pass to come.
    np.random.seed(2)
    assert [first, *rest] == values(DataLoader(NUMBERS, 4, shuffle=True))
    np.testing.assert_equal(state(), after)
    assert before["state"]["key"].tolist() != after["state"]["key"].tolist()


def test_a_loader_that_draws_nothing_takes_nothing():
    before = state()
    with gluon_loader(NUMBERS, 4, num_workers=0) as loader:
        assert len(values(loader)) == 6
    with gluon_loader(NUMBERS, 4, shuffle=True, seed=1, num_workers=0) as loader:
        assert len(values(loader)) == 6
    np.testing.assert_equal(state(), before)


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

    def passes(crew: str = "inline") -> list[Any]:
        with gluon_loader(data, 4, **order, **arguments_of(crew)) as loader:
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
    for crew in ("inline", THREADS, "processes-1"):
        np.random.seed(3)
        with gluon_loader(data, 4, **arguments_of(crew)) as loader:
            found.append([outline(list(loader)) for _ in range(2)])
    assert found[1] == found[0]
    assert found[2] == found[0]


@pytest.mark.parametrize("order", [{}, {"shuffle": True}], ids=str)
def test_numpys_seed_before_a_pass_repeats_what_is_drawn_in_it(order, tmp_path):
    data = DRAWING["a block"](tmp_path)
    with gluon_loader(data, 4, num_workers=0, **order) as loader:
        np.random.seed(6)
        first, _ = outline(list(loader)), list(loader)
        np.random.seed(6)
        assert outline(list(loader)) == first


@pytest.mark.parametrize("name", DRAWING)
def test_passes_that_draw_leave_orders_and_numbers_to_come_as_with_mxnets_loader(name, tmp_path):
    data, found = DRAWING[name](tmp_path), []
    for passes in (0, 3):
        np.random.seed(0)
        with gluon_loader(data, 4, num_workers=0) as loader:
            drawn = [outline(list(loader)) for _ in range(passes)]
        assert all(one != other for one, other in itertools.combinations(drawn, 2))
        found.append((values(DataLoader(NUMBERS, 4, shuffle=True)), np.random.rand()))
    assert found[0] == found[1]


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
    data = DRAWING["a transform"](None)
    np.random.seed(8)
    stock = DataLoader(NUMBERS, 4, sampler=RandomSampler(SIZE))
    expected = [values(stock) for _ in range(2)]
    np.random.seed(8)
    with gluon_loader(data, 4, sampler=RandomSampler(SIZE), num_workers=0) as loader:
        assert [values([batch[0] for batch in loader]) for _ in range(2)] == expected
