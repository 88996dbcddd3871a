"""``weights``: each sample as often as its weight says, with replacement, without overlap."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from adapters import Blocks, Weighted, class_balanced
from adapters.batch.arranging import order_of
from adapters.batch.weights import Draws
from adapters.sources import SequenceSource

UNLIKELY = 1e-3


def drawn(weights, draws, seed=0, epoch=0):
    return Draws(np.asarray(weights, float), draws, seed).numbers(epoch, np.arange(draws))


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 128, 1000, 5001])
def test_each_sample_comes_as_often_as_its_weight_says(size):
    weights = np.random.default_rng(size).random(size) + 0.1
    weights[1::3] = 0
    counts = np.bincount(drawn(weights, 100_000), minlength=size)
    assert len(counts) == size
    assert (counts[weights == 0] == 0).all()
    expected = weights / weights.sum() * 100_000
    kept = expected > 0
    if kept.sum() > 1:
        assert stats.chisquare(counts[kept], expected[kept]).pvalue > UNLIKELY


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, bool])
def test_weights_are_any_numbers(dtype):
    weights = np.array([1, 0, 1, 1], dtype)
    order = order_of(4, 4, weights=weights)
    assert set(np.concatenate([order.batch(epoch, 0) for epoch in range(50)])) == {0, 2, 3}


@given(st.integers(1, 300), st.integers(0, 2**70), st.integers(0, 9))
def test_only_samples_with_weight_are_drawn(size, seed, epoch):
    weights = np.zeros(size)
    weights[seed % size] = 1e-300
    assert set(drawn(weights, 100, seed, epoch)) == {seed % size}


def test_draws_are_independent_of_each_other_and_of_the_next_epoch():
    first, second = drawn(np.ones(50), 20_000), drawn(np.ones(50), 20_000, epoch=1)
    for one, other in ((first[:-1], first[1:]), (first, second), (first[::2], first[1::2])):
        table = np.zeros((50, 50))
        np.add.at(table, (one, other), 1)
        assert stats.chisquare(table.ravel()).pvalue > UNLIKELY
    assert (first != drawn(np.ones(50), 20_000, seed=1)).mean() > 0.9


@pytest.mark.parametrize("count", [2, 3, 8])
def test_shards_deal_the_draws(count):
    def draws(shard):
        order = order_of(1000, 7, seed=3, shard=shard, weights=np.arange(1000.0))
        return np.concatenate([order.batch(2, index) for index in range(len(order))])

    whole = draws((0, 1))
    together = np.stack([draws((shard, count)) for shard in range(count)], 1).ravel()
    assert together.tolist() == whole[: len(together)].tolist()
    assert len(whole) - len(together) < count


@pytest.mark.parametrize("samples", [1, 10, 12345])
def test_an_epoch_is_as_long_as_asked(samples):
    order = order_of(100, 10, weights=Weighted(np.ones(100), samples))
    assert sum(len(order.batch(0, index)) for index in range(len(order))) == samples
    assert len(order) == -(-samples // 10)


def test_golden_draws():
    assert drawn(np.arange(100.0), 8, seed=42, epoch=5).tolist() == GOLDEN


GOLDEN = [89, 72, 62, 45, 35, 76, 81, 64]


def test_ten_million_weights_take_a_moment():
    weights = np.ones(10**7)
    started = time.process_time()
    order = order_of(10**7, 64, weights=weights)
    order.batch(0, 0)
    assert time.process_time() - started < 0.5
    started = time.process_time()
    for index in range(400):
        order.batch(0, index)
    assert (time.process_time() - started) / 400 < 300e-6


# --- class_balanced ---


@pytest.mark.parametrize("labels", [np.array([3, 3, 3, 9]), ["b", "b", "b", "a"], [1.5] * 3 + [2]])
def test_classes_are_drawn_equally_often(labels):
    assert class_balanced(labels).tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 2])


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.int8, bool])
def test_labels_of_any_type_are_counted_alike(dtype):
    labels = (np.random.default_rng(0).random(1000) < 0.1).astype(dtype)
    weights = class_balanced(labels)
    assert weights[labels.astype(bool)].sum() == pytest.approx(500)
    assert weights.sum() == pytest.approx(1000)


def test_labels_that_int64_does_not_hold():
    labels = np.array([2**63 + 5, 2**63 + 5, 2**63 + 7, 2**63 + 5], np.uint64)
    assert class_balanced(labels).tolist() == pytest.approx([2 / 3, 2 / 3, 2, 2 / 3])


def test_labels_far_apart_are_classes_like_others():
    assert class_balanced([0, 10**15, 10**15, 0]).tolist() == [1, 1, 1, 1]
    assert class_balanced([-5, 7, 7, 7]).tolist() == pytest.approx([2, 2 / 3, 2 / 3, 2 / 3])


def test_shares_are_those_of_classes():
    weights = class_balanced([0, 0, 1, 1, 2], {0: 3, 1: 1})
    assert weights.tolist() == [1.875, 1.875, 0.625, 0.625, 0]


# --- what is refused ---


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ([1, 2], ValueError, "weights must have one number for each of the 3 samples, got 2"),
        ([[1, 2, 3]], ValueError, r"weights must have one number for each sample, shape \(samples"),
        ([1, -1, 2], ValueError, "weights must be >= 0 and finite, got -1.0 for sample 1"),
        ([1, np.nan, 2], ValueError, "weights must be >= 0 and finite, got nan for sample 1"),
        ([1, np.inf, 2], ValueError, "weights must be >= 0 and finite, got inf for sample 1"),
        ([0, 0, 0], ValueError, "weights must not all be 0"),
        (["a", "b", "c"], TypeError, "weights must be numbers, one for each sample"),
    ],
)
def test_wrong_weights_are_refused(weights, error, message):
    with pytest.raises(error, match=message):
        order_of(3, 1, weights=weights)


def test_a_wrong_length_of_an_epoch_is_refused():
    with pytest.raises(ValueError, match="samples must be >= 1 or None, got 0"):
        Weighted([1, 2], 0)


@pytest.mark.parametrize(
    ("labels", "shares", "message"),
    [
        ([], None, "labels must have one class for each sample"),
        ([[0, 1]], None, "labels must have one class for each sample"),
        ([0, 1], {2: 1}, "shares must name classes of labels, got 2"),
        ([0, 1], {1: -1}, "shares must be >= 0, got -1 for 1"),
        ([0, 1], {1: 0}, "shares must not all be 0"),
    ],
)
def test_wrong_labels_and_shares_are_refused(labels, shares, message):
    with pytest.raises(ValueError, match=message):
        class_balanced(labels, shares)


def test_two_orders_at_once_are_refused():
    message = "shuffle and weights must not be given together, as each is an order of its own"
    with pytest.raises(ValueError, match=message):
        order_of(3, 1, Blocks(), weights=[1, 2, 3])


@pytest.mark.parametrize("asked", [{"shuffle": "blocks"}, {"weights": [1, 2, 3]}])
def test_whole_batches_have_no_such_order(asked):
    source = SequenceSource([np.zeros(2)] * 3, changes_between_epochs=False)
    with pytest.raises(ValueError, match="must be left out where source gives whole batches"):
        order_of(3, 1, source=source, **asked)


def test_labels_of_several_kinds_are_refused():
    with pytest.raises(TypeError, match="labels must be numbers or texts, all of one kind"):
        class_balanced(["a", None])
