"""``auto_reload``, ``refresh`` and ``clean``: a pass that begins before it is asked for."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from mxnet.gluon.data import Dataset

from adapters import gluon_loader
from tests.gluon.crews import THREADS, arguments_of
from tests.gluon.data_sets import values

SIZE = 6
PATIENCE_SECONDS = 30


class Watched(Dataset):
    """Tells when it is asked, on threads."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.first = threading.Event()

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> int:
        self.asked.append(index)
        self.first.set()
        return index


def test_without_it_nothing_is_asked_for_before_the_first_batch():
    data = Watched()
    with gluon_loader(data, 2, **arguments_of(THREADS)) as loader:
        iterator = iter(loader)
        assert data.asked == []
        assert not loader.auto_reload
        next(iterator)
        assert data.asked


def test_a_loader_begins_with_its_first_pass_when_it_is_made():
    data = Watched()
    with gluon_loader(data, 2, auto_reload=True, **arguments_of(THREADS)) as loader:
        assert data.first.wait(PATIENCE_SECONDS)
        assert values(loader) == [[0, 1], [2, 3], [4, 5]]


def test_the_next_pass_begins_when_one_has_ended():
    data = Watched()
    with gluon_loader(data, 2, auto_reload=True, **arguments_of(THREADS)) as loader:
        values(loader)
        data.first.clear()
        data.asked.clear()
        loader.refresh()
        assert data.first.wait(PATIENCE_SECONDS)
        assert values(loader) == [[0, 1], [2, 3], [4, 5]]


def test_refresh_begins_with_a_pass_and_clean_drops_it():
    data = Watched()
    with gluon_loader(data, 2, **arguments_of(THREADS)) as loader:
        loader.refresh()
        assert data.first.wait(PATIENCE_SECONDS)
        loader.clean()
        assert values(loader) == [[0, 1], [2, 3], [4, 5]]
        loader.clean()


@pytest.mark.parametrize(
    ("crew", "seed"),
    [("inline", None), (THREADS, None), (THREADS, 3), ("processes-1", None)],
)
def test_passes_are_those_of_a_loader_without_it(crew, seed):
    def passes(reload: bool) -> Any:
        np.random.seed(5)
        arguments = {"shuffle": True, "seed": seed, "auto_reload": reload, **arguments_of(crew)}
        with gluon_loader(np.arange(SIZE), 4, **arguments) as loader:
            found = [values(loader) for _ in range(3)]
            next(iter(loader))  # An abandoned pass.
            return [*found, values(loader)]

    assert passes(True) == passes(False)


def test_two_passes_at_once_are_two():
    arguments = arguments_of(THREADS)
    with gluon_loader(np.arange(SIZE), 2, auto_reload=True, **arguments) as loader:
        pairs = [[one.asnumpy().tolist() for one in pair] for pair in zip(loader, loader)]
        assert pairs == [[[0, 1]] * 2, [[2, 3]] * 2, [[4, 5]] * 2]


def test_a_loader_may_be_closed_while_a_pass_is_begun():
    loader = gluon_loader(Watched(), 2, auto_reload=True, **arguments_of(THREADS))
    values(loader)
    loader.close()
    loader.close()
