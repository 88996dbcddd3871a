"""The shuffle is fair, as far as statistics can tell.

All keys are fixed, so that each of these tests always passes or always fails. A fair shuffle would
fail a test with probability ``UNLIKELY`` once, when its keys were chosen; keys were not chosen by
the outcome.
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from adapters.batch.order import permute

UNLIKELY = 1e-3


@functools.cache
def permutations(size: int) -> NDArray[np.int64]:
    """``(count, size)``: a permutation per row, of the next epoch and the next seed in turn."""
    positions = np.arange(size)
    keys = [(n // 2, (n + 1) // 2, 0) for n in range(800 if 5 <= size < 64 else 200)]
    return np.stack([permute(positions, size, key) for key in keys])


def p_of_uniform(outcomes: NDArray[np.int64], kinds: int) -> float:
    """Chi-square test of outcomes in ``range(kinds)`` being equally frequent."""
    counts = np.bincount(outcomes, minlength=kinds)
    assert len(counts) == kinds
    return float(stats.chisquare(counts).pvalue)


@pytest.mark.parametrize("size", [2, 5])
def test_all_permutations_are_equally_frequent(size):
    names = {order: i for i, order in enumerate(itertools.permutations(range(size)))}
    outcomes = np.array([names[tuple(row)] for row in permutations(size).tolist()])
    assert p_of_uniform(outcomes, math.factorial(size)) > UNLIKELY


@pytest.mark.parametrize("size", [5, 7, 13])
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_pairs_of_neighbours_are_equally_frequent(size, place):
    """Which sample follows which."""
    column = {"first": 0, "middle": size // 2, "last": size - 2}[place]
    one, other = permutations(size)[:, column], permutations(size)[:, column + 1]
    pairs = one * (size - 1) + other - (other > one)
    assert p_of_uniform(pairs, size * (size - 1)) > UNLIKELY


@pytest.mark.parametrize("size", [5, 7, 13, 33])
def test_every_sample_is_at_every_position_equally_often(size):
    rows = permutations(size)
    counts = np.stack([np.bincount(rows[:, place], minlength=size) for place in range(size)])
    expected = len(rows) / size
    # Rows and columns both add up, which leaves (size - 1) ** 2 degrees of freedom.
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert stats.chi2.sf(statistic, (size - 1) ** 2) > UNLIKELY


@pytest.mark.parametrize("size", [5, 7])
@pytest.mark.parametrize("first", [0, 1], ids=["epochs", "seeds"])
def test_successive_orders_are_independent(size, first):
    """What comes first in one epoch (or under one seed) says nothing about the next."""
    heads = permutations(size)[first:, 0]
    pairs = heads[:-1:2] * size + heads[1::2]
    assert p_of_uniform(pairs, size * size) > UNLIKELY


@pytest.mark.parametrize("size", [64, 1000, 1024, 1025])
def test_position_and_sample_are_uncorrelated(size):
    rows = permutations(size)
    positions = np.arange(size) - (size - 1) / 2
    correlations = (rows - rows.mean()) @ positions / (positions @ positions)
    # A permutation's correlation has variance 1 / (size - 1).
    score = correlations.mean() * math.sqrt(len(rows) * (size - 1))
    assert 2 * stats.norm.sf(abs(score)) > UNLIKELY


@pytest.mark.parametrize("size", [1000, 1024])
@pytest.mark.parametrize("lag", [1, 2, 32])
def test_samples_at_a_distance_are_uncorrelated(size, lag):
    rows = permutations(size) - (size - 1) / 2
    variance = (size * size - 1) / 12
    correlations = (rows[:, :-lag] * rows[:, lag:]).mean(axis=1) / variance
    # Drawn without replacement: -1 / (size - 1) each, and nearly independent pairs.
    score = (correlations.mean() + 1 / (size - 1)) * math.sqrt(len(rows) * (size - lag))
    assert 2 * stats.norm.sf(abs(score)) > UNLIKELY
