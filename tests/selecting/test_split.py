"""``split``: sizes, shares of classes, whole groups, and the same parts for ever."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters import split
from adapters.errors import RecordError
from adapters.selecting.split import _shares, _sizes
from adapters.sources import SequenceSource
from tests.fuzzing import examples


def parts_of(size, fractions, **arguments):
    """The numbers of each part."""
    return [part[:] for part in split(list(range(size)), fractions, **arguments)]


# Of so many samples, the smallest of ``fractions``, 1/33, has one at least.
sizes = st.integers(40, 300)
seeds = st.integers(0, 2**70)


@st.composite
def fractions(draw):
    weights = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    left = draw(st.integers(0, 5))
    return [weight / (sum(weights) + left) for weight in weights]


@pytest.mark.parametrize(
    ("size", "given", "found"),
    [
        (11, [0.8, 0.2], [9, 2]),
        (10, [0.5], [5]),
        (10, [1 / 3] * 3, [4, 3, 3]),
        (10, [0.1] * 10, [1] * 10),
        (60_000, [0.7, 0.15, 0.15], [42_000, 9_000, 9_000]),
        (10, (1,), [10]),
        (7, [0.5, 0.5], [4, 3]),
        (10, [np.float32(0.8), np.float32(0.2)], [8, 2]),
    ],
)
def test_sizes_are_rounded_by_largest_remainder(size, given, found):
    assert [len(part) for part in split(range(size), given)] == found


def test_sizes_of_billions_are_exact():
    shares = _shares([0.3, 0.7])
    assert _sizes([3 * 10**9], shares).tolist() == [[9 * 10**8, 21 * 10**8, 0]]


@settings(max_examples=examples(100))
@given(sizes, fractions(), seeds)
def test_every_sample_is_in_one_part_at_most(size, given, seed):
    parts = parts_of(size, given, seed=seed)
    numbers = [number for part in parts for number in part]
    assert len(set(numbers)) == len(numbers)
    for part, fraction in zip(parts, given):
        assert part == sorted(part)
        assert abs(len(part) - size * fraction) < 1
    if abs(sum(given) - 1) < 1e-9:
        assert len(numbers) == size


def test_part_does_not_depend_on_the_rest():
    assert parts_of(50, [0.8])[0] == parts_of(50, [0.8, 0.2])[0] == parts_of(50, [0.8, 0.1, 0.1])[0]


GOLDEN = [[0, 4, 5, 6, 10, 15, 16, 17, 18, 19], [1, 3, 7, 9, 11, 14], [2, 8, 12, 13]]


def test_seed_gives_these_parts_for_ever():
    numbers = np.arange(20)
    assert parts_of(20, [0.5, 0.3, 0.2], seed=3) == GOLDEN
    assert parts_of(20, [0.5, 0.3], seed=3, stratify=numbers % 3) == [
        [0, 4, 5, 6, 10, 11, 15, 17, 18, 19],
        [3, 7, 8, 9, 14, 16],
    ]
    assert parts_of(20, [0.5, 0.5], seed=3, groups=numbers // 3) == [
        [0, 1, 2, 12, 13, 14, 15, 16, 17, 18, 19],
        [3, 4, 5, 6, 7, 8, 9, 10, 11],
    ]


def test_large_seed_gives_these_parts_for_ever():
    parts = split(np.arange(100_003), [0.9, 0.1], seed=2**40)
    found = np.concatenate([part.numbers for part in parts]).astype("<i8")
    expected = "a8d88025bff7e397afeafc7c505b3d5e6aeaf88c9aa8bd39dab51b704994f89d"
    assert hashlib.sha256(found.tobytes()).hexdigest() == expected


def test_another_process_gives_the_same():
    script = "from adapters import split\n"
    script += "print([part[:] for part in split(list(range(20)), [0.5, 0.3, 0.2], seed=3)])"
    environment = {**os.environ, "PYTHONHASHSEED": "5"}
    found = subprocess.check_output([sys.executable, "-c", script], text=True, env=environment)
    assert found.strip() == str(GOLDEN)


def test_global_generators_stay():
    before = random.getstate(), np.random.get_state()[1].tolist()
    parts_of(20, [0.5], stratify=np.arange(20) % 2)
    parts_of(20, [0.5], groups=np.arange(20) % 5)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_seeds_give_each_sample_its_chance():
    counts = np.zeros(20)
    for seed in range(400):
        counts[parts_of(20, [0.5], seed=seed)[0]] += 1
    assert 140 < counts.min() < counts.max() < 260


@settings(max_examples=examples(100))
@given(sizes, fractions(), seeds, st.integers(1, 12))
def test_stratify_gives_each_class_its_fraction(size, given, seed, classes):
    labels = np.random.default_rng(size).integers(0, classes, size)
    try:
        parts = parts_of(size, given, seed=seed, stratify=labels)
    except ValueError:  # Small parts may get nothing of 12 classes.
        return
    counts = np.bincount(labels, minlength=classes)
    for part, fraction in zip(parts, given):
        shares = np.bincount(labels[part], minlength=classes)
        assert (np.abs(shares - counts * fraction) < 1).all()
        assert abs(len(part) - size * fraction) <= len(given)
    if abs(sum(given) - 1) < 1e-9:
        assert sorted(itertools.chain(*parts)) == list(range(size))


def test_stratify_rounding_does_not_add_up():
    """Of 1,000 classes of five samples, half is two or three."""
    labels = np.repeat(np.arange(1000), 5)
    assert [len(part) for part in split(labels, [0.5, 0.5], stratify=labels)] == [2500, 2500]
    thirds = split(labels, [1 / 3] * 3, stratify=labels)
    assert max(len(part) for part in thirds) - min(len(part) for part in thirds) <= 1


@pytest.mark.parametrize(
    "labels",
    [["b", "a"] * 10, np.array([0.5, 1.5] * 10), [True, False] * 10, range(20), [(1,), (0,)] * 10],
)
def test_stratify_takes_what_can_be_sorted(labels):
    assert [len(part) for part in split(range(20), [0.5, 0.5], stratify=labels)] == [10, 10]


@settings(max_examples=examples(100))
@given(sizes, fractions(), seeds, st.integers(8, 60))
def test_groups_are_not_divided(size, given, seed, count):
    groups = np.random.default_rng(size).integers(0, count, size)
    try:
        parts = parts_of(size, given, seed=seed, groups=groups)
    except ValueError:  # A group may be larger than a part.
        return
    of = [set(groups[part].tolist()) for part in parts]
    assert sum(map(len, of)) == len(set().union(*of))
    for part, own in zip(parts, of):
        assert len(part) == sum((groups == group).sum() for group in own)
    if abs(sum(given) - 1) < 1e-9:
        assert sorted(itertools.chain(*parts)) == list(range(size))


def test_groups_meet_fractions():
    groups = np.repeat(np.arange(200), np.arange(200) % 7 + 1)
    parts = split(groups, [0.6, 0.3, 0.1], groups=groups)
    for part, fraction in zip(parts, [0.6, 0.3, 0.1]):
        assert abs(len(part) - fraction * len(groups)) < 7


def test_groups_and_classes_together():
    """Ten patients of each of three diagnoses, two to five pictures of each."""
    patients = np.repeat(np.arange(30), np.arange(30) % 4 + 2)
    diagnoses = patients % 3
    parts = split(patients, [0.5, 0.5], groups=patients, stratify=diagnoses)
    one, other = (set(patients[part.numbers].tolist()) for part in parts)
    assert not one & other
    for diagnosis in range(3):
        counts = [(diagnoses[part.numbers] == diagnosis).sum() for part in parts]
        assert abs(counts[0] - counts[1]) <= 5


@pytest.mark.parametrize(
    ("given", "arguments", "error", "said"),
    [
        (0.8, {}, TypeError, r"fractions must be a list of numbers such as \[0.8, 0.2\], got 0.8"),
        (["a"], {}, TypeError, r"must be numbers, got 'a' as fractions\[0\]"),
        ([], {}, ValueError, "at least one number"),
        ([0.5, 0.0], {}, ValueError, r"above 0 and at most 1, got 0.0 as fractions\[1\]"),
        ([8, 2], {}, ValueError, r"got 8 as fractions\[0\]; for a number of samples, divide"),
        ([float("nan")], {}, ValueError, "got nan"),
        ([0.9, 0.2], {}, ValueError, r"at most 1 together, got \[0.9, 0.2\], 1.1 together"),
        ([0.99, 0.01], {}, ValueError, "leave every part a sample, got 0.01 of 10 samples; give"),
        ([0.5], {"seed": -1}, ValueError, "seed must be >= 0, got -1"),
        ([0.5], {"stratify": [1, 2]}, ValueError, r"stratify must .* 10 samples, .* shape \(2,\)"),
        ([0.5], {"groups": 5}, TypeError, "groups must be an array"),
        ([0.5], {"stratify": [None, 1] * 5}, TypeError, "values that can be sorted, got object"),
        ([0.9, 0.1], {"groups": [0] * 10}, ValueError, "got 0.1 of 1 groups of 10 samples"),
        (
            [0.5, 0.5],
            {"groups": [0, 1] * 5, "stratify": [0] * 9 + [1]},
            ValueError,
            "groups must each belong to one class of stratify, got group 1 with several",
        ),
    ],
)
def test_wrong_arguments_are_refused(given, arguments, error, said):
    with pytest.raises(error, match=said):
        split(list(range(10)), given, **arguments)


class PyDataset:
    """By its name alone, as Keras isn't imported to tell."""

    __module__ = "keras.src.trainers"

    def __len__(self):
        return 3

    def __getitem__(self, number):
        return np.zeros(3)


@pytest.mark.parametrize(
    "whole", [PyDataset(), SequenceSource([0] * 3, changes_between_epochs=False)]
)
def test_whole_batches_are_refused(whole):
    with pytest.raises(TypeError, match=r"source must give single samples, .* whole batches: give"):
        split(whole, [0.5])


@pytest.mark.parametrize(
    ("source", "error", "said"),
    [
        (iter([1]), TypeError, "source must be an array"),
        ([np.zeros(5), np.ones(5)], TypeError, "must be a tuple"),
        ((np.zeros(5), np.ones(4)), ValueError, "equal lengths"),
        ([], ValueError, "at least one sample"),
        ("/nowhere/at/all.rec", OSError, "nowhere"),
        (__file__, RecordError, "test_split"),
    ],
)
def test_what_is_no_source_is_refused(source, error, said):
    with pytest.raises(error, match=said):
        split(source, [0.5])


def test_absent_weight_is_left_out():
    assert split((np.arange(4), np.arange(4), None), [0.5])[0].skeleton == (0, 1)
