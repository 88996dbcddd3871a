"""Samplers of the user's own: who tells them their epoch, and what they may do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset, Dataset, Sampler

from adapters import gluon_loader
from tests.gluon.data_sets import assert_same, theirs, values
from tests.gluon.executors import THREADS, every_quick_executor, opened
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


def test_a_sampler_that_wants_to_be_told_more_is_left_alone():
    class Demanding(Seeded):
        def set_epoch(self, epoch, rank):
            raise AssertionError

    with gluon_loader(NUMBERS, SIZE, sampler=Demanding(), num_workers=0) as loader:
        assert len(list(loader)) == 1


def test_what_can_be_read_only_once_cannot_be_continued():
    with gluon_loader(NUMBERS, batch_sampler=iter([[1], [2], [3]]), num_workers=0) as loader:
        next(iter(loader))
        with pytest.raises(ValueError, match="an iterator, which can be read only once"):
            loader.state_dict()


@pytest.mark.parametrize("executor", ["inline", THREADS])
def test_a_batch_sampler_may_fill_one_list_again_and_again(executor):
    class Refilled:
        def __iter__(self):
            samples = [0, 0]
            for first in range(10):
                samples[:] = first, first + 1
                yield samples

    with opened(NUMBERS, executor, batch_size=None, batch_sampler=Refilled()) as loader:
        assert [batch.asnumpy().tolist() for batch in loader] == [[n, n + 1] for n in range(10)]


def test_a_sampler_that_ends_too_early_is_an_error():
    class Short:
        def __iter__(self):
            return iter([[1], [2]])

    with gluon_loader(NUMBERS, batch_sampler=Short(), num_workers=0) as loader:
        loader.load_state_dict(state(0, 3))
        with pytest.raises(ValueError, match="at batch 3, and the sampler gave 2 batches"):
            list(loader)


class Late:
    """Knows its length once it is iterated over, as samplers of buckets do."""

    def __iter__(self):
        self.batches = [[0, 1], [2, 3]]
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


class Unknown(Late):
    def __len__(self):
        raise ValueError("nobody knows")


class Negative(Late):
    def __len__(self):
        return -1


@every_quick_executor
@pytest.mark.parametrize("sampler", [Late, Unknown, Negative])
def test_a_batch_sampler_needs_no_length(sampler, executor):
    with opened(NUMBERS, executor, None, batch_sampler=sampler()) as loader:
        for epoch in (1, 2):
            assert values(loader) == [[0, 1], [2, 3]]
            assert loader.state_dict() == state(epoch, 0)


@pytest.mark.parametrize("sampler", [Late, Unknown, Negative])
def test_a_sampler_needs_none_either(sampler):
    class Single(sampler):
        def __iter__(self):
            return itertools.chain(*super().__iter__())

    with opened(NUMBERS, "inline", 3, sampler=Single()) as loader:
        assert values(loader) == [[0, 1, 2], [3]]


class Scaled(Dataset):
    """Of images whose size a sampler chooses."""

    def __len__(self):
        return SIZE

    def __getitem__(self, key):
        number, (height, width) = key
        return np.full((height, width), number, np.float32)


class Sums(Dataset):
    """Of as many numbers as a sampler names."""

    def __len__(self):
        return SIZE

    def __getitem__(self, key):
        return np.float32(sum(key))


@every_quick_executor
@pytest.mark.parametrize("seed", [None, 1])
def test_a_batch_sampler_may_give_pairs_and_lists_of_any_length(executor, seed):
    def drawn(sample):
        return sample + np.random.rand() * 0

    for data, batches in [
        (Scaled(), [[(0, (3, 3)), (1, (3, 3))], [(2, (4, 5)), (3, (4, 5))]]),
        (Sums(), [[[0, 1], [2]], [[3], [4, 5, 6]]]),
    ]:
        expected = theirs(data, batch_sampler=batches)
        with opened(data, executor, None, batch_sampler=batches, seed=seed) as loader:
            assert_same(list(loader), expected)
        data = data.transform(drawn)
        expected = theirs(data, batch_sampler=batches)
        with opened(data, executor, None, batch_sampler=batches, seed=seed) as loader:
            assert_same(list(loader), expected)


def test_arrays_may_name_samples_that_lie_in_one_place():
    class Constant(Sums):
        one = np.ones(1, np.float32)

        def __getitem__(self, key):
            return self.one

    batches = [[np.array([0, 1]), np.array([2, 3])]]
    with opened(Constant(), "inline", None, batch_sampler=batches) as loader:
        assert_same(list(loader), theirs(Constant(), batch_sampler=batches))


ROWS = np.arange(SIZE * 2.0).reshape(SIZE, 2)
SLICES = [slice(0, 3), slice(3, 6)]


def test_a_choice_may_be_of_any_keys():
    class Slices(Sampler):
        def __iter__(self):
            return iter(SLICES)

        def __len__(self):
            return len(SLICES)

    data = ArrayDataset(ROWS, ROWS).sample(Slices())
    with opened(data, "inline", 2) as loader:
        assert_same(list(loader), theirs(data, batch_size=2))


@every_quick_executor
def test_arrays_are_named_by_integers(executor):
    with (
        opened(ROWS, executor, 2, sampler=SLICES) as loader,
        pytest.raises(IndexError, match=r"integers, got \[slice.*: give a data set of your own"),
    ):
        next(iter(loader))
