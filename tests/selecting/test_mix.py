"""``mix``: exact shares over every stretch, each source through its own epochs."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from adapters import Blocks, concatenate, mix, packed, split
from adapters.batch.arranging import order_of
from adapters.selecting.mix import schedule_of
from tests.fuzzing import examples
from tests.plans import batch_of
from tests.plans import plan_of as plain_plan_of


def numbers_of(source, epoch=0, shuffle=True, batch_size=16, shard=(0, 1), seed=3):
    order = order_of(len(source), batch_size, shuffle, seed, shard=shard, source=source)
    return np.concatenate([order.batch(epoch, index) for index in range(len(order))])


def owners_of(numbers, sizes):
    return np.searchsorted(np.cumsum(sizes), numbers, "right")


def sources_of(sizes):
    return [np.arange(size) for size in sizes]


@settings(max_examples=examples(100))
@given(st.lists(st.integers(1, 40), min_size=1, max_size=9))
def test_shares_are_exact_over_every_stretch(weights):
    shares = [Fraction(weight, sum(weights)) for weight in weights]
    schedule = schedule_of(shares)
    assert schedule.shares == shares
    owners, draws = schedule.at(np.arange(2000))
    for source, share in enumerate(shares):
        drawn = np.cumsum(owners == source)
        off = drawn * share.denominator - np.arange(1, 2001) * share.numerator
        assert np.abs(off).max() < share.denominator
        assert draws[owners == source].tolist() == list(range(drawn[-1]))


def test_shares_without_a_small_denominator():
    shares = [Fraction(1, 3), Fraction(314159, 10**6), Fraction(1057523, 3 * 10**6)]
    found = schedule_of(shares).shares
    assert max(abs(one - other) for one, other in zip(shares, found)) < 1e-7


def test_schedule_finds_draws():
    schedule = schedule_of([Fraction(1, 6), Fraction(1, 2), Fraction(1, 3)])
    owners, draws = schedule.at(np.arange(200_000))
    for place in (0, 1, 17, 65_000, 131_073, 199_999):
        assert schedule.position_of(int(owners[place]), int(draws[place])) == place
        counted = np.bincount(owners[:place], minlength=3)
        assert schedule.draws_before(place).tolist() == counted.tolist()


@pytest.mark.parametrize(("count", "weights"), [(2, [1, 1]), (3, [5, 3, 2]), (8, [3, 1])])
def test_shards_have_the_shares_nearly(weights, count):
    sizes = [10_000 * weight for weight in weights]
    source = mix(sources_of(sizes), weights)
    for shard in range(count):
        owners = owners_of(numbers_of(source, shard=(shard, count)), sizes)
        shares = np.bincount(owners) / len(owners)
        assert np.abs(shares - np.array(weights) / sum(weights)).max() < 0.1


@pytest.mark.parametrize("shuffle", [False, True, Blocks(80, 2)])
@pytest.mark.parametrize("stop", ["first", "last"])
def test_sources_come_once_per_own_epoch(shuffle, stop):
    """Over the ends of the mix's epochs, too."""
    sizes = [50, 70, 7]
    source = mix(sources_of(sizes), [5, 3, 2], stop=stop)
    numbers = np.concatenate([numbers_of(source, epoch, shuffle) for epoch in range(9)])
    owners = owners_of(numbers, sizes)
    for at, size in enumerate(sizes):
        own = numbers[owners == at]
        whole = own[: len(own) // size * size].reshape(-1, size)
        assert len(whole)
        assert (np.sort(whole, 1) == np.sort(own[:size])).all()
        if shuffle and len(whole) > 1:
            assert whole[0].tolist() != whole[1].tolist()


def test_epoch_ends_where_asked():
    sources = sources_of([30, 100])
    first, last = mix(sources, [1, 1]), mix(sources, [1, 1], stop="last")
    counts = [np.bincount(owners_of(numbers_of(each), [30, 100])) for each in (first, last)]
    assert counts[0].tolist() in ([30, 30], [30, 31])
    assert counts[1][1] == 100
    assert 99 <= counts[1][0] <= 101
    assert sorted(numbers_of(mix(sources))) == list(range(130))


def test_temperature_makes_sources_more_alike():
    def shares(temperature):
        return [float(each) for each in mix(sources_of([100, 1]), temperature=temperature).shares]

    assert shares(1) == pytest.approx([100 / 101, 1 / 101])
    assert shares(2) == pytest.approx([10 / 11, 1 / 11], abs=1e-5)
    assert shares(float("inf")) == [0.5, 0.5]


def test_replacement_within_a_mix():
    inner = mix(sources_of([50, 500]), [1, 1])
    outer = mix([inner, np.arange(100)], [1, 1], replacement=True)
    for shuffle in (False, True):
        drawn = [numbers_of(outer, epoch, shuffle) for epoch in range(30)]
        first = drawn[0][drawn[0] < 550]
        assert 0.5 < len(set(first.tolist())) / len(first) < 0.95
        counts = np.bincount(np.concatenate(drawn), minlength=650)
        assert abs(counts[:50].sum() / counts[:550].sum() - 0.5) < 0.05
        assert (counts[50:550] > 0).mean() > 0.8


def test_replacement_draws_independently():
    source = mix(sources_of([50, 50_000]), [1, 1], stop="last", replacement=True)
    numbers = numbers_of(source)
    own = numbers[numbers < 50]
    assert stats.chisquare(np.bincount(own, minlength=50)).pvalue > 1e-3
    assert len(np.unique(numbers[numbers >= 50])) < 40_000


def test_mix_of_mixes_has_the_shares_of_both():
    inner = mix(sources_of([100, 300]), [1, 3])
    source = mix([inner, np.arange(400)], [1, 1])
    numbers = numbers_of(source)
    assert sorted(numbers.tolist()) == list(range(800))
    owners = owners_of(numbers, [100, 300, 400])
    assert np.abs(np.cumsum(owners == 0) - np.arange(1, 801) / 8).max() < 2


@pytest.mark.parametrize("count", [2, 3])
def test_shards_deal_the_order(count):
    source = mix(sources_of([40, 60]), [2, 3])
    whole = numbers_of(source)
    shards = [numbers_of(source, shard=(shard, count)) for shard in range(count)]
    together = np.stack(shards, 1).ravel()
    assert together.tolist() == whole[: len(together)].tolist()


@pytest.mark.parametrize(
    ("sizes", "shuffle", "replacement"),
    [
        ([70_000, 5000, 300], True, False),
        ([70_000, 5000, 300], "blocks", False),
        ([1, 2, 90_000], False, True),
        ([150_000], False, False),
    ],
)
def test_position_has_its_sample_whatever_is_asked(sizes, shuffle, replacement):
    """Positions may come in a stretch, scattered, or one by one."""
    source = mix(sources_of(sizes), stop="last", replacement=replacement)
    order, rng = source.arranged(shuffle, 3), np.random.default_rng(0)
    for start in (0, 65_000, order.size - 40_000):  # Over the ends of periods and of own epochs.
        positions = np.arange(max(0, start), max(0, start) + 30_000)
        scattered = rng.permutation(len(positions))
        stretch = order.numbers(7, positions)
        assert np.array_equal(order.numbers(7, positions[scattered]), stretch[scattered])
        some = scattered[:100]
        alone = [order.numbers(7, positions[at : at + 1]).item() for at in some]
        assert stretch[some].tolist() == alone


def plan_of(source, **arguments):
    plan = plain_plan_of(source, **arguments)
    plan.order = order_of(len(source), 8, True, 1, source=source)
    return plan


@pytest.mark.parametrize("kinds", ["arrays", "lists", "both"])
def test_batches_have_their_samples(kinds):
    rng = np.random.default_rng(0)
    pairs = [(rng.random((size, 20, 8)), np.arange(size) + at) for at, size in ((0, 30), (100, 50))]
    made = {"arrays": [0, 0], "lists": [1, 1], "both": [0, 1]}[kinds]
    given = [list(zip(*pair)) if as_list else pair for pair, as_list in zip(pairs, made)]
    source = mix(given, [1, 1])
    plan = plan_of(source)
    x, y = batch_of(plan, 0, 2)
    where = {int(label): row for pair in pairs for row, label in zip(*pair)}
    assert len({label >= 100 for label in y.tolist()}) == 2
    assert all(np.array_equal(row, where[int(label)]) for row, label in zip(x, y))


def test_golden_order():
    assert numbers_of(mix(sources_of([40, 60, 9]), [5, 4, 1]), 2)[:12].tolist() == GOLDEN


GOLDEN = [36, 50, 25, 54, 21, 107, 81, 34, 96, 3, 37, 74]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"sources": np.zeros(3)}, TypeError, "sources must be a list of sources, got ndarray"),
        ({"sources": []}, ValueError, "sources must hold at least one source"),
        ({"weights": [1]}, ValueError, "weights must have one number for each of the 2 sources"),
        ({"weights": [1, 0]}, ValueError, r"weights must be finite and above 0, got 0 as weights"),
        ({"weights": {3, 1}}, TypeError, r"weights must be a list of numbers .* got \{1, 3\}"),
        ({"weights": [1, 10**7]}, ValueError, "weights must give each source a share of 1/131,072"),
        ({"temperature": 0}, ValueError, "temperature must be above 0, got 0"),
        ({"stop": "never"}, ValueError, 'stop must be "first" or "last", got '),
        ({"replacement": 2}, TypeError, "replacement must be True or False, got 2"),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        mix(**{"sources": [np.zeros(3), np.zeros(4)], **arguments})


def test_what_loses_the_shares_is_refused():
    source = mix([np.zeros(3), np.zeros(4)])
    with pytest.raises(TypeError, match="source must not be a mix to be selected from or split"):
        split(source, [0.5])
    with pytest.raises(ValueError, match="sources must have no order of their own"):
        concatenate([source, np.zeros(3)])
    with pytest.raises(ValueError, match="source must have no order of its own"):
        packed(mix([[[1, 2], [3]], [[4]]], [1, 9]), 4)
    for other in ({"weights": np.ones(7)}, {"bucket_by": np.ones(7)}):
        with pytest.raises(ValueError, match="must be left out where source is a mix"):
            order_of(7, 1, source=source, **other)


def test_schedule_is_the_same_on_every_processor():
    """Equal times are many here, and an unstable sort breaks ties as the processor has it."""
    parts = [np.arange(2400), np.arange(2400, 2500), np.arange(2500, 2600)]
    order = mix(parts, [24, 1, 1]).arranged(False, 0)
    numbers = order.numbers(0, np.arange(52))
    first = [*range(12), 2400, 2500, *range(12, 36), 2401, 2501, *range(36, 48)]
    assert numbers.tolist() == first
