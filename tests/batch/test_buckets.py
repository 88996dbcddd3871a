"""``bucket_by``: batches of similar length, few shapes, little padding, a random order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from adapters import Blocks, Buckets
from adapters.batch.arranging import order_of

UNLIKELY = 1e-3


def lengths_of(sigma, size=100_000):
    drawn = np.random.default_rng(7).lognormal(5, sigma, size)
    return np.maximum(1, np.rint(drawn)).astype(np.int64)


def batches_of(lengths, batch_size=16, epoch=0, shard=(0, 1), shuffle=True, seed=1):
    order = order_of(len(lengths), batch_size, shuffle, seed, shard=shard, bucket_by=lengths)
    return [order.batch(epoch, index) for index in range(len(order))]


@given(st.lists(st.integers(0, 60), min_size=1, max_size=300), st.integers(1, 40), st.booleans())
def test_every_sample_comes_once(lengths, batch_size, shuffle):
    numbers = np.concatenate(batches_of(lengths, batch_size, 2, shuffle=shuffle))
    assert np.array_equal(np.sort(numbers), np.arange(len(lengths)))


@pytest.mark.parametrize(("sigma", "most"), [(0.25, 0.10), (0.4, 1.1 * 0.113), (0.5, 1.1 * 0.142)])
def test_padding_to_eight_shapes_is_little(sigma, most):
    """11.3% is the least possible at sigma 0.4, and 14.2% at 0.5."""
    lengths = lengths_of(sigma)
    bounds = np.array(Buckets(lengths).bounds)
    longest = [lengths[batch].max() for batch in batches_of(lengths, 64)]
    shapes = bounds[np.searchsorted(bounds, longest)]
    assert len(set(shapes.tolist())) <= 8
    rows = [len(batch) for batch in batches_of(lengths, 64)]
    assert 1 - lengths.sum() / (shapes * rows).sum() <= most


def test_bounds_are_the_best_ones():
    lengths = np.random.default_rng(1).integers(1, 12, 200)
    values = np.unique(lengths)

    def padded(bounds):
        return np.array(bounds)[np.searchsorted(bounds, lengths)].sum()

    best = min(
        padded([*sorted({first, second}), values[-1]])
        for first in values[:-1]
        for second in values[:-1]
    )
    buckets = Buckets(lengths, 3)
    assert padded(buckets.bounds) == best
    assert buckets.padding == pytest.approx(1 - lengths.sum() / best)


def test_many_lengths_have_bounds_nearly_as_good():
    lengths = np.random.default_rng(0).lognormal(0, 0.4, 50_000)
    assert Buckets(lengths).padding < 1.02 * Buckets(np.rint(lengths * 300)).padding


@pytest.mark.parametrize("shapes", [1, 2, 8, 100])
def test_there_are_no_more_shapes_than_asked(shapes):
    buckets = Buckets(np.arange(1, 51), shapes)
    assert len(buckets.bounds) == min(50, shapes)
    assert buckets.bounds[-1] == 50


def test_the_batches_of_all_shards_together_have_similar_lengths():
    lengths = lengths_of(0.4, 20_000)
    bounds = np.array(Buckets(lengths).bounds)
    shards = [batches_of(lengths, 16, shard=(shard, 4)) for shard in range(4)]
    mixed = sum(
        len({int(np.searchsorted(bounds, lengths[batch].max())) for batch in step}) > 1
        for step in zip(*shards)
    )
    assert mixed <= 9
    together = [np.stack(step, 1).ravel().tolist() for step in zip(*shards)][:-1]
    whole = [batch.tolist() for batch in batches_of(lengths, 64)]
    assert together == whole[: len(together)]


def test_what_comes_together_and_when_is_random():
    """Within a bucket, and over the epoch."""
    lengths = lengths_of(0.4, 32_000)
    buckets = np.searchsorted(Buckets(lengths).bounds, lengths)
    batches = batches_of(lengths, 64)
    of = np.array([np.bincount(buckets[batch]).argmax() for batch in batches])
    # Which bucket comes next doesn't depend on the last one, and none has a time of its own.
    score = np.corrcoef(of[:-1], of[1:])[0, 1] * np.sqrt(len(of))
    assert 2 * stats.norm.sf(abs(score)) > UNLIKELY
    assert stats.spearmanr(of, np.arange(len(of))).pvalue > UNLIKELY
    # Neighbours in the data set come together no more often than others.
    place = np.empty(len(lengths), int)
    for number, batch in enumerate(batches):
        place[batch] = number
    same = buckets[:-1] == buckets[1:]
    counts = np.bincount(buckets)
    expected = (64 / counts[buckets[:-1]][same]).sum()
    found = (place[:-1] == place[1:])[same].sum()
    assert abs(found - expected) < 5 * np.sqrt(expected)
    # And no batch is that of another epoch.
    others = {frozenset(batch.tolist()) for batch in batches_of(lengths, 64, epoch=1)}
    assert not others & {frozenset(batch.tolist()) for batch in batches}


def test_what_does_not_fill_a_batch_is_of_any_bucket():
    lengths = lengths_of(0.4, 1003)
    last = {int(lengths[batches_of(lengths, 64, epoch)[-1]].max()) for epoch in range(20)}
    assert len(last) > 5


def test_without_shuffle_samples_come_from_the_shortest_bucket_on():
    lengths = np.array([9, 1, 9, 2, 1, 9])
    order = order_of(6, 2, False, bucket_by=Buckets(lengths, 2))
    found = np.concatenate([order.batch(0, index) for index in range(3)])
    assert found.tolist() == [1, 3, 4, 0, 2, 5]


def test_golden_order():
    assert batches_of(lengths_of(0.4, 1000), 8, 3)[5].tolist() == GOLDEN


GOLDEN = [745, 902, 478, 627, 22, 398, 364, 112]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ([1, 2], ValueError, "bucket_by must have one length for each of the 3 samples, got 2"),
        ([[1, 2, 3]], ValueError, r"bucket_by must have one length for each sample, shape \(sampl"),
        ([1, -1, 2], ValueError, "bucket_by must be lengths >= 0, got -1 to 2"),
        ([1, np.nan, 2], ValueError, "bucket_by must be lengths >= 0, got nan"),
        (["a", "b", "c"], TypeError, "bucket_by must be numbers, one for each sample"),
    ],
)
def test_wrong_lengths_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        order_of(3, 1, bucket_by=arguments)


@pytest.mark.parametrize("other", [{"weights": [1, 2, 3]}, {"shuffle": Blocks()}])
def test_two_orders_at_once_are_refused(other):
    with pytest.raises(ValueError, match="must not be given together"):
        order_of(3, 1, bucket_by=[1, 2, 3], **other)


def test_a_wrong_number_of_shapes_is_refused():
    with pytest.raises(ValueError, match="shapes must be >= 1, got 0"):
        Buckets([1], 0)
