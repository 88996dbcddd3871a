"""An epoch goes on with other shards and batches: what is left comes once; and 1,024 shards."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.batch.key import WHOLE, BatchKey
from adapters.batch.order import Order

HUGE = 10**9
RANKS = 1024


def rest_of(order: Order, epoch: int, samples: int) -> list[np.ndarray]:
    """The batches of a shard that are left of an epoch."""
    rest = order.continuation(epoch, samples)
    if rest is None:
        return []
    return [order.batch(epoch, step, rest.origin) for step in range(rest.step, len(order))]


def on_shards(order: Order, count: int) -> list[Order]:
    return [dataclasses.replace(order, shard=(index, count)) for index in range(count)]


def dealt(shards: list[list[np.ndarray]]) -> list[int]:
    """The shards' samples as one, each shard's turn after the other's."""
    rows = [np.concatenate(batches) if batches else np.empty(0, np.int64) for batches in shards]
    return np.stack(rows, axis=1).ravel().tolist()


sizes = st.integers(1, 400)
batch_sizes = st.integers(1, 30)
counts = st.integers(1, 9)


@given(sizes, st.integers(0, 400), batch_sizes, counts, st.booleans(), st.booleans())
def test_what_is_left_is_dealt_out_once_in_the_order_that_it_has(
    size, samples, batch_size, count, shuffle, drop
):
    """But for what doesn't fill all shards, or all batches where only full ones are wanted."""
    samples = min(samples, size - 1)
    order = Order(size, batch_size, shuffle, 3, drop)
    whole = order.numbers(5, np.arange(size)).tolist()
    found = dealt([rest_of(each, 5, samples) for each in on_shards(order, count)])
    unit = count * batch_size if drop else count
    assert found == whole[samples : samples + (size - samples) // unit * unit]


@given(sizes, batch_sizes, counts, st.booleans(), st.booleans(), st.data())
def test_with_the_same_shards_it_is_the_epoch_that_was_begun(
    size, batch_size, count, shuffle, drop, data
):
    order = Order(max(size, count), batch_size, shuffle, 3, drop, (count - 1, count))
    if len(order):
        step = data.draw(st.integers(0, len(order) - 1))
        rest = order.continuation(2, order.consumed(step))
        assert (rest.step, rest.origin) == (step, 0)


@given(
    sizes,
    st.lists(st.tuples(counts, batch_sizes, st.integers(0, 5)), min_size=1, max_size=5),
    st.booleans(),
)
def test_any_number_of_changes_loses_and_repeats_nothing(size, runs, shuffle):
    """Each run is (shards, batch size, batches until it is stopped); the last goes to the end."""
    samples, delivered = 0, []
    for count, batch_size, stop in [*runs, (1, 7, size)]:
        shards = on_shards(Order(size, batch_size, shuffle, 1), count)
        rest = shards[0].continuation(0, samples)
        if rest is None:
            continue
        stop = min(stop, len(shards[0]) - rest.step)
        if rest.step + stop == len(shards[0]) and count > 1:
            stop -= 1  # An epoch that ends leaves out what doesn't fill all shards.
        batches = [rest_of(each, 0, samples)[:stop] for each in shards]
        delivered += dealt(batches)
        if rest.step + stop == len(shards[0]):
            break
        samples = shards[0].consumed(rest.step + stop, rest.origin)
        assert len(delivered) == samples
    assert sorted(delivered) == list(range(size))


def test_where_no_shard_has_a_sample_the_epoch_is_over():
    assert Order(10, 2, shard=(0, 3)).continuation(0, 8) is None
    assert Order(10, 3, drop_remainder=True).continuation(0, 8) is None


def test_batches_that_came_before_are_those_of_the_whole_epoch():
    rest = Order(100, 4, shard=(0, 2)).continuation(3, 10)
    assert rest.key(3, rest.step) == BatchKey(3, rest.step, origin=rest.origin)
    assert rest.key(3, rest.step - 1) == BatchKey(3, rest.step - 1)
    assert rest.key(4, 12) == BatchKey(4, 12)
    assert WHOLE.key(0, 5, lambda epoch, step: step + 1) == BatchKey(0, 6)


# --- 1,024 shards ---


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("size", [RANKS, 5 * RANKS + 1, 20_000])
def test_all_of_many_shards_are_one_order(size, shuffle):
    """The proof on small sizes: union and no overlap, of a whole epoch and of the rest of one."""
    shards = on_shards(Order(size, 3, shuffle, 9), RANKS)
    whole = shards[0].numbers(1, np.arange(size))
    for samples in (0, size // 3):
        found = dealt([rest_of(each, 1, samples) for each in shards])
        assert found == whole[samples:][: (size - samples) // RANKS * RANKS].tolist()
        assert len(set(found)) == len(found)


def test_batches_of_a_billion_samples_on_many_shards_share_none():
    """By sampling: 1,024 shards' batches at a few places, and after a change from 1,000 shards."""
    consumed = 123_457 * 1000
    shards = on_shards(Order(HUGE, 32, True, 9), RANKS)
    rest = shards[0].continuation(0, consumed)
    for step in (rest.step, rest.step + 1, len(shards[0]) - 1):
        batches = [each.batch(0, step, rest.origin) for each in shards]
        start = shards[0].consumed(step, rest.origin)
        positions = np.arange(start, start + sum(map(len, batches)))
        assert start >= consumed
        assert (
            np.stack(batches, axis=1).ravel().tolist() == shards[0].numbers(0, positions).tolist()
        )


@pytest.mark.parametrize("origin", [0, -17])
def test_a_key_costs_the_same_on_any_number_of_shards(origin):
    """Milliseconds of CPU at the most for a batch, where a whole block is computed for it, too."""
    for count in (1, RANKS):
        order = Order(HUGE, 32, True, 21, shard=(count - 1, count))
        steps = range(5, len(order), len(order) // 50)
        started = time.process_time()
        for step in steps:
            order.batch(0, step, origin)
        assert (time.process_time() - started) / len(steps) < 5e-3
