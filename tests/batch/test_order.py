"""Which samples make which batch: a bijection, a fair shuffle, equal shards."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.batch.order import Order, permute

POWERS = (4, 8, 64, 256, 1024, 8192)
SIZES = [1, 2, 3, 7, *(size + step for size in POWERS for step in (-1, 0, 1))]
HUGE = 10**9


def epoch_of(order: Order, epoch: int = 0) -> list[int]:
    """All sample numbers of an epoch, in order."""
    return [int(number) for i in range(len(order)) for number in order.batch(epoch, i)]


def dealt(shards: list[Order], epoch: int = 0) -> list[int]:
    """The shards' epochs as one, each shard's turn after the other's."""
    return [
        number for turn in zip(*(epoch_of(shard, epoch) for shard in shards)) for number in turn
    ]


def all_shards(count: int, **arguments: Any) -> list[Order]:
    return [Order(shard=(index, count), **arguments) for index in range(count)]


@pytest.mark.parametrize("size", SIZES)
def test_a_shuffled_epoch_has_every_sample_once(size):
    assert sorted(epoch_of(Order(size, 32, shuffle=True, seed=5), 3)) == list(range(size))


@given(st.integers(1, 3000), st.integers(0, 2**130), st.integers(0, 2**40))
def test_permute_is_a_bijection(size, seed, epoch):
    images = permute(np.arange(size), size, (seed, epoch))
    assert np.array_equal(np.sort(images), np.arange(size))


@given(st.integers(1, 3000), st.data())
def test_a_position_is_mapped_alike_alone_and_among_others(size, data):
    positions = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20))
    whole = permute(np.arange(size), size, (1, 2))
    assert permute(np.array(positions), size, (1, 2)).tolist() == whole[positions].tolist()


def test_permute_leaves_its_argument_as_it_was():
    positions = np.arange(100)
    permute(positions, 100, (0,))
    assert positions.tolist() == list(range(100))


@pytest.mark.parametrize("size", [1, 2, 9, 10, 11, 20])
def test_without_shuffle_samples_come_as_they_are(size):
    assert epoch_of(Order(size, 10), 4) == list(range(size))


@pytest.mark.parametrize("shard", [(0, 1), (1, 3)])
def test_an_order_without_an_end_goes_on(shard):
    (own, count), order = shard, Order(None, 4, shard=shard)
    for index in (0, 2, 10**9):
        first = index * 4 * count + own
        assert order.batch(0, index).tolist() == list(range(first, first + 4 * count, count))


@pytest.mark.parametrize(
    ("size", "drop_remainder", "lengths"),
    [
        (8, False, [4, 4]),
        (8, True, [4, 4]),
        (9, False, [4, 4, 1]),
        (9, True, [4, 4]),
        (3, False, [3]),
        (3, True, []),
    ],
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_drop_remainder_leaves_out_the_batch_that_is_not_full(
    size, drop_remainder, lengths, shuffle
):
    order = Order(size, 4, shuffle, drop_remainder=drop_remainder)
    assert [len(order.batch(0, i)) for i in range(len(order))] == lengths


@given(st.integers(1, 500), st.integers(1, 40), st.integers(1, 9), st.booleans(), st.booleans())
def test_all_shards_have_the_same_number_of_batches(
    size, batch_size, count, shuffle, drop_remainder
):
    shards = all_shards(
        count, size=size, batch_size=batch_size, shuffle=shuffle, drop_remainder=drop_remainder
    )
    assert len({len(shard) for shard in shards}) == 1
    assert len({len(epoch_of(shard)) for shard in shards}) == 1


@given(st.integers(1, 500), st.integers(1, 40), st.integers(1, 9), st.booleans())
def test_the_shards_together_are_the_global_order(size, batch_size, count, shuffle):
    """All of it, but for the up to count - 1 samples at its end."""
    order = Order(size, batch_size, shuffle, seed=3)
    shards = all_shards(count, size=size, batch_size=batch_size, shuffle=shuffle, seed=3)
    assert dealt(shards) == epoch_of(order)[: size - size % count]


def test_the_left_over_samples_are_others_in_every_epoch():
    shards = all_shards(4, size=103, batch_size=10, shuffle=True)
    left_out = [set(range(103)) - set(dealt(shards, epoch)) for epoch in range(3)]
    assert [len(samples) for samples in left_out] == [3, 3, 3]
    assert len({frozenset(samples) for samples in left_out}) == 3


@pytest.mark.parametrize("batch_size", [1, 10, 5000, 8192, 9000, 20_000, 30_000])
def test_the_order_does_not_depend_on_the_batch_size(batch_size):
    expected = permute(np.arange(20_000), 20_000, (7, 2, 0)).tolist()
    assert epoch_of(Order(20_000, batch_size, shuffle=True, seed=7), 2) == expected


@pytest.mark.parametrize("one", [(0, 0), (0, 1), (1, 0)])
@pytest.mark.parametrize("other", [(0, 2), (2, 0), (2**70, 0), (0, 2**40)])
def test_epochs_and_seeds_differ(one, other):
    def first_batch(seed: int, epoch: int) -> list[int]:
        return Order(1000, 1000, shuffle=True, seed=seed).batch(epoch, 0).tolist()

    assert first_batch(*one) != first_batch(*other)


def test_shuffled_batches_are_every_batch_once():
    order = Order(1003, 4)
    assert sorted(order.shuffled_batch(1, step) for step in range(len(order))) == [*range(251)]


def test_batches_and_samples_are_shuffled_by_different_keys():
    samples = Order(100, 1, shuffle=True)
    batches = [samples.shuffled_batch(0, step) for step in range(100)]
    assert batches != epoch_of(samples)


def test_batches_are_shuffled_anew_in_every_epoch():
    order = Order(100, 1)
    epochs = [[order.shuffled_batch(epoch, step) for step in range(100)] for epoch in range(3)]
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("batch_size", [10, 10_000])
def test_a_batch_is_int64_and_read_only(shuffle, batch_size):
    numbers = Order(10_000, batch_size, shuffle).batch(0, 0)
    assert (numbers.dtype, numbers.flags.writeable) == (np.int64, False)


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


def test_golden_order_of_whole_batches():
    assert [Order(10, 1).shuffled_batch(0, step) for step in range(10)] == [
        0,
        3,
        7,
        9,
        6,
        5,
        4,
        1,
        8,
        2,
    ]


def test_golden_digest_of_a_whole_epoch():
    images = permute(np.arange(100_000), 100_000, (1, 2, 3))
    assert hashlib.sha256(images.astype("<i8").tobytes()).hexdigest()[:16] == "eb720b6c7beb9a56"


def test_a_new_process_has_the_same_order():
    script = (
        "from adapters.batch.order import Order\n"
        "print(Order(1000, 1000, True, 9).batch(3, 0).tolist())"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert printed == f"{Order(1000, 1000, True, 9).batch(3, 0).tolist()}\n"


# --- a billion samples ---


def test_a_billion_samples_take_no_memory():
    tracemalloc.start()
    try:
        order = Order(HUGE, 256, shuffle=True, seed=11)
        for index in (0, 1, len(order) // 2, len(order) - 1):
            order.batch(0, index)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * 2**20


def test_a_billion_samples_take_no_time():
    order = Order(HUGE, 256, shuffle=True, seed=12)
    started = time.process_time()
    for index in (0, len(order) // 2, len(order) - 1):
        order.batch(0, index)
    assert time.process_time() - started < 0.5


def test_a_billion_samples_in_order_take_no_memory():
    tracemalloc.start()
    try:
        Order(HUGE, 256).batch(0, 2_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**20


def test_distant_batches_of_a_billion_samples_share_none():
    order = Order(HUGE, 8192, shuffle=True)
    batches = [order.batch(0, index) for index in range(0, len(order), len(order) // 20)]
    samples = np.concatenate(batches)
    assert len(np.unique(samples)) == len(samples)
    assert 0 <= samples.min() < samples.max() < HUGE
