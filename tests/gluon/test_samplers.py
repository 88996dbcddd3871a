"""Which samples come when: seeds, epochs, samplers, orders, and passes side by side."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from mxnet.gluon.data import DataLoader

from adapters import Blocks, Weighted, gluon_loader, mix
from tests.gluon.data_sets import Computed, assert_same, theirs, values
from tests.gluon.executors import THREADS as ON_THREADS
from tests.gluon.executors import every_quick_executor, opened
from tests.gluon.test_resume import Seeded, state

SIZE = 23
NUMBERS = np.arange(SIZE)
INLINE = {"num_workers": 0}
THREADS = {"num_workers": 2, "thread_pool": True}


# Asked for each sample.
SQUARES = Computed(lambda number: range(SIZE)[number] ** 2, SIZE)


def of_squares(batches: Any) -> list[Any]:
    return [np.sqrt(np.asarray(batch)).astype(int).tolist() for batch in values(batches)]


# Which samples, in batches, for arrays and for what must be asked.
DATA = pytest.mark.parametrize(
    ("data", "numbers", "workers"),
    [(NUMBERS, values, INLINE), (SQUARES, of_squares, THREADS)],
    ids=["array", "asked"],
)


def raising(error: BaseException) -> Iterator[int]:
    """Gives some numbers, and raises."""
    yield from range(5)
    raise error


@pytest.mark.parametrize("order", [{"shuffle": True}, {"shuffle": "blocks", "seed": 1}], ids=str)
def test_rollover_of_a_shuffled_order_loses_no_sample(order):
    with gluon_loader(NUMBERS, 4, last_batch="rollover", **order, **INLINE) as loader:
        epochs = [values(loader) for _ in range(4)]
    # 23 + 3, 23 + 2 and so on: what is left begins the next epoch.
    assert [len(epoch) for epoch in epochs] == [5, 6, 6, 6]
    delivered = list(itertools.chain(*itertools.chain(*epochs)))
    assert sorted(delivered[:SIZE]) == sorted(delivered[SIZE : 2 * SIZE]) == [*range(SIZE)]
    assert np.bincount(delivered).tolist() == [4] * SIZE


@DATA
@pytest.mark.parametrize(
    "sampler",
    [
        list(np.int64([3, 1, 2, 22])),
        [-1, -23, 5, -2],
        [1, 1, 1, 1, 1],
        np.array([4, 2, 2], np.uint8),
        (1, 2),
        range(20, 3, -3),
    ],
    ids=["np.int64", "negative", "duplicates", "array", "tuple", "range"],
)
def test_sampler_may_give_any_index(data, numbers, workers, sampler):
    with gluon_loader(data, 2, sampler=sampler, **workers) as loader:
        assert numbers(loader) == numbers(DataLoader(data, 2, sampler=sampler))


@DATA
@pytest.mark.parametrize("error", [KeyError("no more"), StopAsyncIteration()])
def test_sampler_that_raises_delivers_what_came_before(data, numbers, workers, error):
    with gluon_loader(data, 2, sampler=raising(error), **workers) as loader:
        iterator = iter(loader)
        assert numbers([next(iterator), next(iterator)]) == [[0, 1], [2, 3]]
        with pytest.raises(type(error)) as info:
            next(iterator)
        assert info.value is error
        with pytest.raises(StopIteration):
            next(iterator)


@DATA
@pytest.mark.parametrize("wrong", [SIZE, -SIZE - 1, 2**40])
def test_index_out_of_range_is_named(data, numbers, workers, wrong):
    with gluon_loader(data, 2, sampler=[0, 1, 2, wrong], **workers) as loader:
        iterator = iter(loader)
        assert numbers([next(iterator)]) == [[0, 1]]
        with pytest.raises(IndexError) as info:
            next(iterator)
    assert f"sample {wrong}" in "\n".join([str(info.value), *info.value.__notes__])


def test_iterator_has_mxnets_methods():
    with gluon_loader(NUMBERS, 10, **INLINE) as loader:
        iterator = iter(loader)
        assert iter(iterator) is iterator
        assert len(iterator) == 3
        assert iterator.next().asnumpy().tolist() == list(range(10))


def test_sampler_is_told_its_epoch():
    sampler = Seeded()
    with gluon_loader(NUMBERS, 4, sampler=sampler, num_workers=0) as loader:
        assert sampler.told == []  # It may have been told by somebody else.
        list(loader)
        next(iter(loader))
        loader.set_epoch(7)
        loader.load_state_dict(state(8, 1))
    assert sampler.told == [1, 2, 7, 8]


def test_pass_within_a_pass_has_its_own_epoch():
    sampler = Seeded()
    with gluon_loader(NUMBERS, 4, sampler=sampler, num_workers=0) as loader:
        next(outer := iter(loader))
        next(iter(loader))
        assert sampler.told[:1] == [1]
        outer.close()


def test_what_somebody_else_tells_a_sampler_counts():
    sampler = Seeded()
    with gluon_loader(NUMBERS, SIZE, sampler=sampler, num_workers=0) as loader:
        next(iter(loader))
        sampler.set_epoch(0)
        assert values(loader) == [np.random.default_rng(0).permutation(SIZE).tolist()]


def test_what_can_be_read_only_once_cannot_be_continued():
    with gluon_loader(NUMBERS, batch_sampler=iter([[1], [2], [3]]), num_workers=0) as loader:
        next(iter(loader))
        with pytest.raises(ValueError, match="an iterator, which can be read only once"):
            loader.state_dict()


@every_quick_executor
def test_batch_sampler_may_fill_one_list_again_and_again(executor):
    class Refilled:
        def __iter__(self):
            samples = [0, 0]
            for first in range(10):
                samples[:] = first, first + 1
                yield samples

    with opened(NUMBERS, executor, batch_size=None, batch_sampler=Refilled()) as loader:
        assert [batch.asnumpy().tolist() for batch in loader] == [[n, n + 1] for n in range(10)]


def test_sampler_that_ends_too_early_is_an_error_and_so_are_numbers_for_batches():
    with pytest.raises(TypeError, match=r"batch_sampler must give a list .* got 1"):
        next(iter(gluon_loader(NUMBERS, batch_sampler=[1, 2], num_workers=0)))

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


class Negative(Late):
    def __len__(self):
        return -1


@pytest.mark.parametrize("sampler", [Late, Negative])
def test_sampler_needs_no_length(sampler):
    class Single(sampler):
        def __iter__(self):
            return itertools.chain(*super().__iter__())

    with opened(NUMBERS, "inline", 3, sampler=Single()) as loader:
        assert values(loader) == [[0, 1, 2], [3]]
    with opened(NUMBERS, ON_THREADS, None, batch_sampler=sampler()) as loader:
        for epoch in (1, 2):
            assert values(loader) == [[0, 1], [2, 3]]
            assert loader.state_dict() == state(epoch, 0)


@pytest.mark.parametrize(
    ("function", "batches", "executor", "seed"),
    [
        (
            lambda key: np.full(key[1], key[0], np.float32),  # An image of a size that was chosen.
            [[(0, (3, 3)), (1, (3, 3))], [(2, (4, 5)), (3, (4, 5))]],
            "inline",
            None,
        ),
        (lambda key: np.float32(sum(key)), [[[0, 1], [2]], [[3], [4, 5, 6]]], ON_THREADS, 1),
    ],
    ids=["pairs", "lists"],
)
def test_batch_sampler_may_give_pairs_and_lists(function, batches, executor, seed):
    data = Computed(function, None)  # Its length isn't asked for, or there is none.
    unsized = type("Unsized", (), {"__getitem__": lambda self, key: function(key)})()
    for each in (data, unsized, data.transform(lambda sample: sample + np.random.rand() * 0)):
        expected = theirs(each, batch_sampler=batches)
        with opened(each, executor, None, batch_sampler=batches, seed=seed) as loader:
            assert_same(list(loader), expected)


def test_arrays_are_named_by_integers():
    with (
        opened(np.ones((6, 2)), "inline", 2, sampler=[slice(0, 3), slice(3, 6)]) as loader,
        pytest.raises(IndexError, match=r"integers, got \[slice.*: give a data set of your own"),
    ):
        next(iter(loader))


# --- blocks, weights, buckets, mixes ---


COUNT = 1003
X = np.arange(COUNT)
ORDERS = {
    "blocks": {"shuffle": Blocks(block_bytes=8 * 50, window=4)},
    "weights": {"weights": Weighted(1 + X % 3, 700)},
    "bucket_by": {"shuffle": True, "bucket_by": X % 97},
    "mix": {"dataset": mix([X[:600], X[600:]], [1, 2]), "shuffle": True},
}


@pytest.mark.parametrize(
    ("name", "executor"), [*((name, ON_THREADS) for name in ORDERS), ("mix", "processes-1")]
)
def test_all_workers_give_the_same_batches(name, executor):
    arguments = {"dataset": X, "seed": 5, "batch_size": 64, **ORDERS[name]}
    with gluon_loader(num_workers=0, **arguments) as loader:
        expected = [values(loader) for _ in range(2)]
    assert expected[0] != expected[1]
    data, batch_size = arguments.pop("dataset"), arguments.pop("batch_size")
    with opened(data, executor, batch_size, **arguments) as loader:
        assert [values(loader) for _ in range(2)] == expected


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_order_goes_on_in_its_middle_and_in_shards(order):
    arguments = {"dataset": X, "num_workers": 0, "seed": 5, **order}
    with gluon_loader(batch_size=12, **arguments) as loader:
        expected = values(loader)
        loader.load_state_dict({"epoch": 0, "batch": 7})
        assert values(loader) == expected[7:]
    parts = []
    for index in range(3):
        with gluon_loader(batch_size=4, shard=(index, 3), **arguments) as loader:
            parts.append(values(loader))
    together = [n for batches in zip(*parts) for row in zip(*batches) for n in row]
    assert together == np.concatenate(expected).tolist()[: len(together)]
    assert len(together) >= sum(map(len, expected)) - 2


def test_blocks_draw_their_seed_from_numpy():
    found = []
    for _ in range(2):
        np.random.seed(3)
        with gluon_loader(X, 64, shuffle="blocks", num_workers=0) as loader:
            found.append(values(loader))
            with pytest.raises(ValueError, match="seed of its order is drawn from numpy"):
                loader.load_state_dict({"epoch": 0, "batch": 3})
    assert found[0] == found[1]
    with gluon_loader(X, 64, shuffle="blocks", num_workers=0) as loader:
        assert values(loader) != found[0]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"batch_sampler": [[1]], "weights": X}, ValueError, "weights must not be .* sampler or"),
        ({"batch_size": 2, "sampler": [1], "weights": X}, ValueError, "weights must not be .* if"),
        ({"batch_size": 2, "shard": (0, 2), "shuffle": "blocks"}, ValueError, "shard needs a seed"),
        ({"batch_size": 2, "shuffle": "block"}, TypeError, "True or False, got 'block'"),
    ],
)
def test_wrong_orders_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        gluon_loader(X, **arguments)


def test_blocks_are_measured_by_a_readable_sample():
    data = Computed(lambda number: number // (number > 1), 100)
    arguments = {"shuffle": Blocks(64, 2), "seed": 1, "on_error": "skip", "num_workers": 0}
    with gluon_loader(data, 4, **arguments) as loader:
        read = [int(each) for batch in loader for each in batch.asnumpy()]
    assert sorted(set(read)) == list(range(2, 100))
    assert len(read) == 100
