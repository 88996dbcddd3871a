"""Samplers of the user's own: who tells them their epoch, and what they may do."""

from __future__ import annotations

import numpy as np
import pytest

from adapters import gluon_loader
from tests.gluon.crews import THREADS, opened
from tests.gluon.data_sets import values
from tests.gluon.test_resume import NUMBERS, SIZE, Seeded, state


def test_a_sampler_is_told_its_epoch():
    sampler = Seeded()
    with gluon_loader(NUMBERS, 4, sampler=sampler, num_workers=0) as loader:
        assert sampler.told == []  # It may have been told by somebody else.
        list(loader)
        next(iter(loader))
        loader.set_epoch(7)
        loader.load_state_dict(state(8, 1))
    assert sampler.told == [1, 2, 7, 8]


def test_what_somebody_else_tells_a_sampler_counts():
    sampler = Seeded()
    with gluon_loader(NUMBERS, SIZE, sampler=sampler, num_workers=0) as loader:
        next(iter(loader))
        sampler.set_epoch(0)
        assert values(loader) == [np.random.default_rng(0).permutation(SIZE).tolist()]


def test_that_counts_too_before_an_iterator_that_was_given_up_is_released():
    sampler, found = Seeded(), []
    with gluon_loader(NUMBERS, SIZE, sampler=sampler, num_workers=0) as loader:
        for epoch in (7, 8, 9):
            sampler.set_epoch(epoch)
            iterator = iter(loader)  # The one before ends here.
            found.append(next(iterator).asnumpy().tolist())
    assert found == [np.random.default_rng(epoch).permutation(SIZE).tolist() for epoch in (7, 8, 9)]


def test_a_sampler_that_wants_to_be_told_more_is_left_alone():
    class Demanding(Seeded):
        def set_epoch(self, epoch, rank):
            raise AssertionError

    with gluon_loader(NUMBERS, SIZE, sampler=Demanding(), num_workers=0) as loader:
        assert len(list(loader)) == 1


def test_what_can_be_read_only_once_cannot_be_continued():
    with gluon_loader(NUMBERS, batch_sampler=iter([[1], [2], [3]]), num_workers=0) as loader:
        next(iter(loader))
        with pytest.raises(ValueError, match="an iterator, which nobody can read again"):
            loader.state_dict()


@pytest.mark.parametrize("crew", ["inline", THREADS])
def test_a_batch_sampler_may_fill_one_list_again_and_again(crew):
    class Refilled:
        def __iter__(self):
            samples = [0, 0]
            for first in range(10):
                samples[:] = first, first + 1
                yield samples

    with opened(NUMBERS, crew, batch_size=None, batch_sampler=Refilled()) as loader:
        assert [batch.asnumpy().tolist() for batch in loader] == [[n, n + 1] for n in range(10)]


def test_a_sampler_that_ends_too_early_is_an_error():
    class Short:
        def __iter__(self):
            return iter([[1], [2]])

    with gluon_loader(NUMBERS, batch_sampler=Short(), num_workers=0) as loader:
        loader.load_state_dict(state(0, 3))
        with pytest.raises(ValueError, match="at batch 3, and the sampler gave 2 batches"):
            list(loader)
