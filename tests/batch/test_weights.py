"""``weights`` and ``bucket_by``: orders by what is known of each sample."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from adapters import Blocks, Buckets, Weighted, class_balanced
from adapters.batch.arranging import order_of
from adapters.sources import SequenceSource
from tests.fuzzing import examples

UNLIKELY = 1e-3


def drawn(weights, draws, seed=0, epoch=0):
    return Weighted(weights, draws).of(len(weights), seed).numbers(epoch, np.arange(draws))


@pytest.mark.parametrize("size", [1, 65, 5001])
def test_weights_are_frequencies(size):
    weights = np.random.default_rng(size).random(size) + 0.1
    weights[1::3] = 0
    counts = np.bincount(drawn(weights, 100_000), minlength=size)
    assert len(counts) == size
    assert (counts[weights == 0] == 0).all()
    expected = weights / weights.sum() * 100_000
    kept = expected > 0
    if kept.sum() > 1:
        assert stats.chisquare(counts[kept], expected[kept]).pvalue > UNLIKELY


@given(st.integers(1, 300), st.integers(0, 2**70), st.integers(0, 9))
def test_weights_of_0_are_never_drawn(size, seed, epoch):
    weights = np.zeros(size)
    weights[seed % size] = 1e-300
    assert set(drawn(weights, 100, seed, epoch)) == {seed % size}
    order = Weighted(weights).of(size, seed)
    assert [n for n in range(size) if order.visits(n)] == [seed % size]


def test_weights_changed_in_place_do_not_count():
    weights = np.ones(1000)
    order = order_of(1000, 100, weights=weights)
    before = order.numbers(1, np.arange(1000))
    weights[:500] = 0
    np.testing.assert_array_equal(order.numbers(1, np.arange(1000)), before)


def test_draws_are_independent():
    first, second = drawn(np.ones(50), 20_000), drawn(np.ones(50), 20_000, epoch=1)
    for one, other in ((first[:-1], first[1:]), (first, second), (first[::2], first[1::2])):
        table = np.zeros((50, 50))
        np.add.at(table, (one, other), 1)
        assert stats.chisquare(table.ravel()).pvalue > UNLIKELY
    assert (first != drawn(np.ones(50), 20_000, seed=1)).mean() > 0.9


@pytest.mark.parametrize("samples", [1, 12345])
def test_draws_are_as_many_as_asked(samples):
    order = order_of(100, 10, weights=Weighted(np.ones(100), samples))
    assert sum(len(order.batch(0, index)) for index in range(len(order))) == samples
    assert len(order) == -(-samples // 10)


def test_golden_draws():
    golden = [89, 72, 62, 45, 35, 76, 81, 64]
    assert drawn(np.arange(100.0), 8, seed=42, epoch=5).tolist() == golden


# --- class_balanced ---


@pytest.mark.parametrize(
    "labels",
    [
        np.array([3, 3, 3, 9], np.uint8),
        [True, True, True, False],
        ["b", "b", "b", "a"],
        [1.5] * 3 + [2],
        np.array([2**63 + 5, 2**63 + 5, 2**63 + 5, 2**63 + 7], np.uint64),
    ],
)
def test_classes_are_balanced(labels):
    assert class_balanced(labels).tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 2])


def test_classes_have_shares():
    weights = class_balanced([0, 0, 1, 1, 2], {0: 3, 1: 1})
    assert weights.tolist() == [1.875, 1.875, 0.625, 0.625, 0]


# --- what is refused ---


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([1, 2], ValueError, "bucket_by must have one length for each of the 3 samples, got 2"),
        ([[1, 2, 3]], ValueError, r"bucket_by must have one length for each sample, shape \(sampl"),
        ([1, -1, 2], ValueError, "bucket_by must be lengths >= 0, got -1 to 2"),
        ([1, np.nan, 2], ValueError, "bucket_by must be lengths >= 0, got nan"),
        (["a", "b", "c"], TypeError, "bucket_by must be numbers, one for each sample"),
        ([[1], [1, 2]], ValueError, "weights must have one number for each sample"),
        ([1, 2], ValueError, "weights must have one number for each of the 3 samples, got 2"),
        ([[1, 2, 3]], ValueError, r"weights must have one number for each sample, shape \(samples"),
        ([1, -1, 2], ValueError, "weights must be >= 0 and finite, got -1 for sample 1"),
        ([1, np.nan, 2], ValueError, "weights must be >= 0 and finite, got nan for sample 1"),
        ([1, np.inf, 2], ValueError, "weights must be >= 0 and finite, got inf for sample 1"),
        ([0, 5e-324, 0], ValueError, "weights must not all be 0, or nearly"),
        (["a", "b", "c"], TypeError, "weights must be numbers, one for each sample"),
    ],
)
def test_weights_and_lengths_are_checked(given, error, message):
    with pytest.raises(error, match=message):
        order_of(3, 1, **{message.split()[0]: given})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Weighted([1, 2], 0), "samples must be >= 1 or None, got 0"),
        (lambda: Buckets([]), "lengths must have one length for each sample"),
        (lambda: Buckets([1], 0), "shapes must be >= 1, got 0"),
        (lambda: class_balanced([]), "labels must have one class for each sample"),
        (lambda: class_balanced([[0, 1]]), "labels must have one class for each sample"),
        (lambda: class_balanced([0, 1], {2: 1}), "shares must name classes of labels, got 2"),
        (lambda: class_balanced([0, 1], {1: -1}), "shares must be >= 0, got -1 for 1"),
        (lambda: class_balanced([0, 1], {1: 0}), "shares must not all be 0"),
    ],
)
def test_arguments_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_classes_of_two_kinds_are_refused():
    with pytest.raises(TypeError, match="labels must be numbers or texts, all of one kind"):
        class_balanced(["a", None])
    for shares in ([1, 3], {0: "a"}):
        with pytest.raises(TypeError, match=r"shares must map classes .*got (list|dict)"):
            class_balanced([0, 1], shares)


@pytest.mark.parametrize("asked", [{"shuffle": "blocks"}, {"weights": [1, 2, 3]}])
def test_orders_of_whole_batches_are_refused(asked):
    source = SequenceSource([np.zeros(2)] * 3, changes_between_epochs=False)
    with pytest.raises(ValueError, match="must be left out where source gives whole batches"):
        order_of(3, 1, source=source, **asked)


# --- buckets of similar length: few shapes, little padding, a random order ---


def lengths_of(sigma, size=100_000):
    drawn = np.random.default_rng(7).lognormal(5, sigma, size)
    return np.maximum(1, np.rint(drawn)).astype(np.int64)


def batches_of(lengths, batch_size=16, epoch=0, shard=(0, 1), shuffle=True, seed=1):
    order = order_of(len(lengths), batch_size, shuffle, seed, shard=shard, bucket_by=lengths)
    return [order.batch(epoch, index) for index in range(len(order))]


@given(st.lists(st.integers(0, 60), min_size=1, max_size=300), st.integers(1, 40), st.booleans())
@settings(max_examples=examples(100))
def test_buckets_have_every_sample_once(lengths, batch_size, shuffle):
    numbers = np.concatenate(batches_of(lengths, batch_size, 2, shuffle=shuffle))
    assert np.array_equal(np.sort(numbers), np.arange(len(lengths)))


@pytest.mark.parametrize(("sigma", "most"), [(0.25, 0.10), (0.5, 1.1 * 0.142)])
def test_buckets_pad_little(sigma, most):
    """14.2% is the least possible at sigma 0.5."""
    lengths = lengths_of(sigma)
    bounds = np.array(Buckets(lengths).bounds)
    longest = [lengths[batch].max() for batch in batches_of(lengths, 64)]
    shapes = bounds[np.searchsorted(bounds, longest)]
    assert len(set(shapes.tolist())) <= 8
    rows = [len(batch) for batch in batches_of(lengths, 64)]
    assert 1 - lengths.sum() / (shapes * rows).sum() <= most


def test_buckets_have_the_best_bounds():
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


def test_buckets_of_all_shards_are_alike():
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


def test_buckets_are_random_within_and_in_their_order():
    """Within a bucket, and over the epoch."""
    lengths = lengths_of(0.4, 32_000)
    buckets = np.searchsorted(Buckets(lengths).bounds, lengths)
    batches = batches_of(lengths, 64)
    of = np.array([np.bincount(buckets[batch]).argmax() for batch in batches])
    # Which bucket comes next doesn't depend on the last one, and none has a time of its own.
    score = np.corrcoef(of[:-1], of[1:])[0, 1] * np.sqrt(len(of))
    assert 2 * stats.norm.sf(abs(score)) > UNLIKELY
    assert stats.spearmanr(of, np.arange(len(of))).pvalue > UNLIKELY
    # And no batch is that of another epoch.
    others = {frozenset(batch.tolist()) for batch in batches_of(lengths, 64, epoch=1)}
    assert not others & {frozenset(batch.tolist()) for batch in batches}


def test_buckets_rest_is_of_the_largest():
    """So a last batch that isn't full has one shape in all epochs."""
    lengths = lengths_of(0.4, 1005)
    buckets = np.searchsorted(Buckets(lengths).bounds, lengths)
    rests = [batches_of(lengths, 16, epoch)[-1] for epoch in range(20)]
    assert {len(rest) for rest in rests} == {1005 % 16}
    assert set(buckets[np.stack(rests)].ravel()) == {np.bincount(buckets).argmax()}


def test_buckets_without_shuffle_begin_with_the_shortest():
    lengths = np.array([9, 1, 9, 2, 1, 9])
    order = order_of(6, 2, False, bucket_by=Buckets(lengths, 2))
    found = np.concatenate([order.batch(0, index) for index in range(3)])
    assert found.tolist() == [1, 3, 4, 0, 2, 5]


def test_golden_buckets():
    assert batches_of(lengths_of(0.4, 1000), 8, 3)[5].tolist() == GOLDEN_LENGTHS


GOLDEN_LENGTHS = [745, 902, 478, 627, 22, 398, 364, 112]


@pytest.mark.parametrize(
    "orders",
    [
        {"bucket_by": Buckets([1, 3, 2]), "weights": Weighted([1, 2, 3], 7)},
        {"bucket_by": [1, 2, 3], "shuffle": Blocks()},
        {"weights": [1, 2, 3], "shuffle": Blocks()},
    ],
)
def test_orders_at_once_are_refused(orders):
    with pytest.raises(ValueError, match="must not be given together") as raised:
        order_of(3, 1, **orders)
    assert " at 0x" not in str(raised.value)
