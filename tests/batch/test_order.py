"""Which samples make which batch: a fair shuffle, equal shards, epochs that go on."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from adapters.batch.order import Order
from adapters.batch.permutation import permute, permute_each

POWERS = (4, 64, 1024, 8192)
SIZES = [1, 2, 3, 7, *(size + step for size in POWERS for step in (-1, 0, 1))]
HUGE = 10**9


def epoch_of(order: Order, epoch: int = 0) -> list[int]:
    """All sample numbers of an epoch, in order."""
    return [int(number) for i in range(len(order)) for number in order.batch(epoch, i)]


def dealt(shards: list[Order], epoch: int = 0) -> list[int]:
    """The shards' epochs as one, each shard's turn after the other's."""
    return [
        number
        for turn in zip(*(epoch_of(shard, epoch) for shard in shards), strict=True)
        for number in turn
    ]


def all_shards(count: int, **arguments: Any) -> list[Order]:
    return [Order(shard=(index, count), **arguments) for index in range(count)]


@pytest.mark.parametrize("size", SIZES)
def test_shuffle_has_every_sample_once(size):
    assert sorted(epoch_of(Order(size, 32, shuffle=True, seed=5), 3)) == list(range(size))


@given(st.integers(1, 3000), st.data())
def test_permute_maps_a_position_alike_among_others(size, data):
    positions = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20))
    whole = permute(np.arange(size), size, (1, 2))
    assert permute(np.array(positions), size, (1, 2)).tolist() == whole[positions].tolist()


def test_orders_of_few_samples_stay_as_they_are():
    keys = [(size, epoch) for size in range(1, 66) for epoch in range(30)]
    digests = {permute: "7a61fb137c729301", permute_each: "d24ec44e72fad0ff"}
    for function, tweaks in ((permute, ()), (permute_each, (3,))):
        orders = [function(np.arange(key[0]), key[0], key, *tweaks) for key in keys]
        digest = hashlib.sha256(np.concatenate(orders).astype("<i8").tobytes()).hexdigest()
        assert digest[:16] == digests[function]


@pytest.mark.parametrize("size", [1, 2, 9, 10, 11, 20])
def test_order_without_shuffle(size):
    assert epoch_of(Order(size, 10), 4) == list(range(size))


@pytest.mark.parametrize("shard", [(0, 1), (1, 3)])
def test_order_without_an_end(shard):
    (own, count), order = shard, Order(None, 4, shard=shard)
    for index in (0, 2, 10**9):
        first = index * 4 * count + own
        assert order.batch(0, index).tolist() == list(range(first, first + 4 * count, count))


@pytest.mark.parametrize(
    ("size", "drop_remainder", "lengths"),
    [
        (8, True, [4, 4]),
        (9, False, [4, 4, 1]),
        (9, True, [4, 4]),
        (3, True, []),
    ],
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_drop_remainder(size, drop_remainder, lengths, shuffle):
    order = Order(size, 4, shuffle, drop_remainder=drop_remainder)
    assert [len(order.batch(0, i)) for i in range(len(order))] == lengths


@given(st.integers(1, 500), st.integers(1, 40), st.integers(1, 9), st.booleans())
def test_shards_together_are_the_order(size, batch_size, count, shuffle):
    """All of it, but for the up to count - 1 samples at its end."""
    order = Order(size, batch_size, shuffle, seed=3)
    shards = all_shards(count, size=size, batch_size=batch_size, shuffle=shuffle, seed=3)
    assert len({len(shard) for shard in shards}) == 1
    assert dealt(shards) == epoch_of(order)[: size - size % count]


def test_shards_leave_out_others_in_every_epoch():
    shards = all_shards(4, size=103, batch_size=10, shuffle=True)
    left_out = [set(range(103)) - set(dealt(shards, epoch)) for epoch in range(3)]
    assert [len(samples) for samples in left_out] == [3, 3, 3]
    assert len({frozenset(samples) for samples in left_out}) == 3


@pytest.mark.parametrize("batch_size", [1, 5000, 8192, 9000, 30_000])
def test_order_depends_on_no_batch_size(batch_size):
    expected = permute(np.arange(20_000), 20_000, (7, 2, 0)).tolist()
    assert epoch_of(Order(20_000, batch_size, shuffle=True, seed=7), 2) == expected


def test_order_of_epochs_and_seeds_differs():
    keys = [(0, 0), (0, 1), (1, 0), (0, 2), (2, 0), (2**70, 0), (0, 2**40)]
    orders = [Order(1000, 1000, shuffle=True, seed=seed).batch(epoch, 0) for seed, epoch in keys]
    assert len({tuple(order.tolist()) for order in orders}) == len(keys)


def test_shuffled_batches():
    """Each once, anew in every epoch, and by other keys than samples."""
    order = Order(100, 1, shuffle=True)
    epochs = [[order.shuffled_batch(epoch, step) for step in range(100)] for epoch in range(3)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(100))] * 3
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert epochs[0] != epoch_of(order)


# --- golden values: a release that changes one of these changes everybody's training runs ---


@pytest.mark.parametrize(
    ("order", "epoch", "expected"),
    [
        (Order(10, 10, True), 0, [7, 5, 0, 9, 2, 4, 8, 3, 1, 6]),
        (Order(10, 10, True), 1, [8, 9, 3, 6, 0, 4, 1, 7, 2, 5]),
        (Order(10, 10, True, seed=1), 0, [7, 5, 8, 4, 2, 1, 9, 0, 3, 6]),
        (Order(65, 8, True, seed=2**64), 5, [45, 50, 34, 35, 53, 59, 25, 23]),
        (
            Order(60_000, 8, True, seed=42),
            0,
            [57526, 49027, 37501, 16997, 13835, 11270, 35349, 57478],
        ),
        (
            Order(60_000, 8, True, seed=42, shard=(1, 3)),
            0,
            [49027, 13835, 57478, 48669, 49605, 52799, 33336, 44263],
        ),
        (Order(HUGE, 4, True), 0, [564582324, 730113781, 557903914, 8801180]),
        (Order(2**40 + 1, 3, True), 0, [21558402366, 904024688619, 361980944556]),
    ],
)
def test_golden_orders(order, epoch, expected):
    assert order.batch(epoch, 0).tolist() == expected


def test_golden_order_of_batches():
    order = [Order(10, 1).shuffled_batch(0, step) for step in range(10)]
    assert order == [0, 3, 7, 9, 6, 5, 4, 1, 8, 2]


# --- a fair shuffle, as far as statistics can tell ---

# All keys are fixed, so that each of these tests always passes or always fails. A fair shuffle
# would fail one with this probability once, when its keys were chosen: not by the outcome.
UNLIKELY = 1e-3


@functools.cache
def permutations(size: int) -> NDArray[np.int64]:
    """``(count, size)``: a permutation per row, of the next epoch and the next seed in turn."""
    positions = np.arange(size)
    keys = [(n // 2, (n + 1) // 2, 0) for n in range(800)]
    return np.stack([permute(positions, size, key) for key in keys])


def p_of_uniform(outcomes: NDArray[np.int64], kinds: int) -> float:
    """Chi-square test of outcomes in ``range(kinds)`` being equally frequent."""
    counts = np.bincount(outcomes, minlength=kinds)
    assert len(counts) == kinds
    return float(stats.chisquare(counts).pvalue)


def test_fair_permutations():
    names = {order: i for i, order in enumerate(itertools.permutations(range(5)))}
    outcomes = np.array([names[tuple(row)] for row in permutations(5).tolist()])
    assert p_of_uniform(outcomes, math.factorial(5)) > UNLIKELY


@pytest.mark.parametrize("first", [0, 1], ids=["epochs", "seeds"])
def test_fair_epochs_and_seeds(first):
    """What comes first in one epoch (or under one seed) says nothing about the next."""
    heads = permutations(7)[first:, 0]
    pairs = heads[:-1:2] * 7 + heads[1::2]
    assert p_of_uniform(pairs, 7 * 7) > UNLIKELY


# --- an epoch that goes on with other shards and batches ---


def rest_of(order: Order, epoch: int, samples: int) -> list[np.ndarray]:
    """The batches of a shard that are left of an epoch."""
    rest = order.resumed(epoch, samples)
    if rest is None:
        return []
    return [order.batch(epoch, step, rest.origin) for step in range(rest.step, len(order))]


def on_shards(order: Order, count: int) -> list[Order]:
    return [dataclasses.replace(order, shard=(index, count)) for index in range(count)]


def dealt_rest(shards: list[list[np.ndarray]]) -> list[int]:
    """The shards' samples as one, each shard's turn after the other's."""
    rows = [np.concatenate(batches) if batches else np.empty(0, np.int64) for batches in shards]
    return np.stack(rows, axis=1).ravel().tolist()


sizes = st.integers(1, 400)
batch_sizes = st.integers(1, 30)
counts = st.integers(1, 9)


@given(sizes, st.integers(0, 400), batch_sizes, counts, st.booleans(), st.booleans())
def test_rest_is_dealt_out_once_in_its_order(size, samples, batch_size, count, shuffle, drop):
    """But for what doesn't fill all shards, or all batches where only full ones are wanted."""
    samples = min(samples, size - 1)
    order = Order(size, batch_size, shuffle, 3, drop)
    whole = order.numbers(5, np.arange(size)).tolist()
    found = dealt_rest([rest_of(each, 5, samples) for each in on_shards(order, count)])
    unit = count * batch_size if drop else count
    assert found == whole[samples : samples + (size - samples) // unit * unit]


@given(sizes, batch_sizes, counts, st.booleans(), st.booleans(), st.data())
def test_rest_on_the_same_shards_is_the_epochs(size, batch_size, count, shuffle, drop, data):
    order = Order(max(size, count), batch_size, shuffle, 3, drop, (count - 1, count))
    if len(order):
        step = data.draw(st.integers(0, len(order) - 1))
        rest = order.resumed(2, order.consumed(step))
        assert (rest.step, rest.origin) == (step, 0)


@given(
    sizes,
    st.lists(st.tuples(counts, batch_sizes, st.integers(0, 5)), min_size=1, max_size=5),
    st.booleans(),
)
def test_rest_after_any_changes_loses_and_repeats_nothing(size, runs, shuffle):
    """Each run is (shards, batch size, batches until it is stopped); the last goes to the end."""
    samples, delivered = 0, []
    for count, batch_size, stop in [*runs, (1, 7, size)]:
        shards = on_shards(Order(size, batch_size, shuffle, 1), count)
        rest = shards[0].resumed(0, samples)
        if rest is None:
            continue
        stop = min(stop, len(shards[0]) - rest.step)
        if rest.step + stop == len(shards[0]) and count > 1:
            stop -= 1  # An epoch that ends leaves out what doesn't fill all shards.
        batches = [rest_of(each, 0, samples)[:stop] for each in shards]
        delivered += dealt_rest(batches)
        if rest.step + stop == len(shards[0]):
            break
        samples = shards[0].consumed(rest.step + stop, rest.origin)
        assert len(delivered) == samples
    assert sorted(delivered) == list(range(size))


def test_rest_is_none_without_a_sample_for_a_shard():
    assert Order(10, 2, shard=(0, 3)).resumed(0, 8) is None
    assert Order(10, 3, drop_remainder=True).resumed(0, 8) is None
