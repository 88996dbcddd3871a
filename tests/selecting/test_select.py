"""Parts of a source, of every kind: ``select`` takes samples in their order, ``split`` divides."""

from __future__ import annotations

import hashlib
import itertools
import pickle
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters import Feature, ImageDecoder, RecordError, open_records, split
from adapters.errors import ClosedError
from adapters.records import irheader
from adapters.sources import MapSource, SequenceSource, Subset, as_source
from tests.batches import exact
from tests.fuzzing import examples
from tests.images.pictures import encoded, picture
from tests.plans import batch_of, epoch_of, plan_of
from tests.sources.every_kind import KINDS, Y, all_samples
from tests.sources.record_files import FORMATS, write, write_images

every_kind = pytest.mark.parametrize("kind", KINDS)
CHOSEN = [7, 2, 2, -1, 0, 9]


@pytest.fixture
def source(kind, tmp_path):
    return KINDS[kind](tmp_path)


@every_kind
def test_select_takes_samples_in_order(source):
    selected = source.select(CHOSEN)
    assert len(selected) == len(CHOSEN)
    assert source.select([])[:] == []
    if not source.draws:
        assert exact(selected[:]) == exact([source[number] for number in CHOSEN])
        assert exact(list(selected)) == exact(selected[:])


@every_kind
def test_select_batches_are_those_of_the_whole(source):
    """Made the same way, gathered, filled, fetched at once, or asked for; pickled, too."""
    plan = plan_of(source, 6, shuffle=True)
    selected = source.select(plan.order.batch(0, 0))
    found = exact(batch_of(plan_of(selected, 6)))
    if not source.draws:  # What is drawn is another's: see below.
        assert found == exact(batch_of(plan))
    assert exact(batch_of(plan_of(pickle.loads(pickle.dumps(selected)), 6))) == found


@every_kind
def test_select_of_a_selection(source):
    selected = source.select(range(1, 9)).select([0, -1, 3]).select([2, 1])
    assert exact(all_samples(selected)) == exact(all_samples(source.select([4, 8])))


@pytest.mark.parametrize("kind", ["arrays", "images"])
@pytest.mark.parametrize(
    ("index", "error"), [(100, IndexError), (-101, IndexError), ("a", TypeError)]
)
def test_index_out_of_range(source, index, error):
    for each in (source, source.select([1, 2])):
        with pytest.raises(error, match="number must be"):
            each[index]


def test_select_draws_by_the_new_number(tmp_path):
    """As in a file that holds these samples only, once by records and once as any source does."""
    whole, numbers = KINDS["random boxes"](tmp_path), np.array([4, 4, 9, 4, 2, 2])
    by_records, by_any = whole.select(numbers), Subset(whole, numbers)
    expected = [exact(batch) for batch in epoch_of(plan_of(by_records, 4, shuffle=True), 3)]
    found = [exact(batch) for batch in epoch_of(plan_of(by_any, 4, shuffle=True), 3)]
    assert found == expected
    assert exact(all_samples(by_any)) == exact(all_samples(by_records))
    images, _ = batch_of(plan_of(by_any, 2))  # Chosen twice, it is drawn for twice.
    assert (images[0] != images[1]).any()


def test_select_replaces_a_failed_row(tmp_path):
    class Odd(MapSource):
        """Fails for one number, as it fills."""

        leaves = (((), np.dtype(np.int64)),)
        treedef = 0
        draws = True

        def fill(self, numbers, rng_of, columns, rows=None):
            columns[0][... if rows is None else rows] = numbers
            return [(row, ValueError("odd")) for row in np.flatnonzero(numbers == 3).tolist()]

    source = Odd(list(range(10))).select([3, 5, 5, 3])
    batch = batch_of(plan_of(source, 4, on_error=lambda error, number: np.int64(100 + number)))
    assert batch.tolist() == [100, 5, 5, 103]


def test_select_refuses_whole_batches():
    source = SequenceSource([np.zeros(3)] * 4, changes_between_epochs=False)
    with pytest.raises(TypeError, match=r"single samples .* whole batches: select from the arrays"):
        source.select([0])


def test_select_copies_the_numbers():
    chosen = np.array([3, 4])
    selected = as_source(Y).select(chosen)
    chosen[:] = 0
    assert [int(y) for y in selected] == [30, 40]


@pytest.fixture(params=FORMATS)
def numbers(request, tmp_path):
    """Ten records in two files, each its number."""
    names = [
        write(tmp_path / name, request.param, [str(n).encode() for n in part])
        for name, part in (("a", range(4)), ("b", range(4, 10)))
    ]
    return open_records(names, decode=int)


@pytest.mark.parametrize(
    ("chosen", "samples"),
    [
        ([7, 2, 2, -1], [7, 2, 2, 9]),
        (range(3, 6), [3, 4, 5]),
        (np.array([9, 0], np.uint8), [9, 0]),
        ((np.arange(10) % 3 == 1).tolist(), [1, 4, 7]),
        ([], []),
    ],
)
def test_select_takes_numbers_ranges_and_masks(numbers, chosen, samples):
    selected = numbers.select(chosen)
    assert (len(selected), selected[:], list(selected)) == (len(samples), samples, samples)
    assert [selected.read(place) for place in range(len(samples))] == [b"%d" % n for n in samples]


@pytest.mark.parametrize(
    ("wrong", "kind", "said"),
    [
        ([0, 10], IndexError, r"in range\(-10, 10\), got 10 in place 1"),
        ([True] * 9, ValueError, "each of the 10 samples, got 9"),
        ([[1], [2]], ValueError, r"one axis, got 2: shape \(2, 1\)"),
        ([1.0], TypeError, "integers or a boolean mask, got float64"),
        ({1, 2}, TypeError, "sequence of sample numbers .* set; make a list"),
        (3, TypeError, "sequence of sample numbers"),
    ],
)
def test_select_refuses_what_is_no_choice(numbers, wrong, kind, said):
    for source in (numbers, as_source(np.arange(10)), as_source(list(range(10)))):
        with pytest.raises(kind, match=said):
            source.select(wrong)


def test_select_is_closed_by_itself(numbers):
    selected = numbers.select([5])
    numbers.close()
    assert selected[0] == 5
    with pytest.raises(ClosedError):
        numbers.select([5])
    selected.close()
    with pytest.raises(ClosedError):
        selected[0]


def test_select_names_a_damaged_record_as_in_its_file(tmp_path):
    jpeg = encoded(picture(9, 9), "JPEG")
    path = write_images(tmp_path / "a.rec", "recordio", [*[jpeg] * 4, jpeg[:-5], jpeg])
    source = open_records(path, decode=ImageDecoder(8)).select([5, 4])
    for ask in (lambda: source[1], lambda: batch_of(plan_of(source, 2))):
        with pytest.raises(RecordError, match="record 4, "):
            ask()


def test_insightface_header_says_which_are_images(tmp_path):
    """A header, seven images, three identities."""
    jpeg = encoded(picture(9, 9), "JPEG")
    records = [irheader.pack([8.0, 11.0], 0, b"")]
    records += [irheader.pack(n // 2, n, jpeg) for n in range(1, 8)]
    records += [irheader.pack([n, n + 2], n, b"") for n in range(3)]
    path = write(tmp_path / "train.rec", "recordio", records)
    label = open_records(path, decode={"label": Feature("float32", (None,))})[0]["label"]
    source = open_records(path, decode=ImageDecoder(8)).select(range(1, int(label[0])))
    images, labels = batch_of(plan_of(source, 7))
    assert (images.shape, labels.tolist()) == ((7, 8, 8, 3), [0, 1, 1, 2, 2, 3, 3])
    assert as_source(path).holds_images


# --- split ---


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


def test_seed_gives_these_parts_for_ever():
    numbers = np.arange(20)
    assert parts_of(20, [0.5, 0.3, 0.2], seed=3) == [
        [0, 4, 5, 6, 10, 15, 16, 17, 18, 19],
        [1, 3, 7, 9, 11, 14],
        [2, 8, 12, 13],
    ]
    assert parts_of(20, [0.5, 0.3], seed=3, stratify=numbers % 3) == [
        [0, 4, 5, 6, 10, 11, 15, 17, 18, 19],
        [3, 7, 8, 9, 14, 16],
    ]
    assert parts_of(20, [0.5, 0.5], seed=3, groups=numbers // 3) == [
        [0, 1, 2, 12, 13, 14, 15, 16, 17, 18, 19],
        [3, 4, 5, 6, 7, 8, 9, 10, 11],
    ]
    parts = split(np.arange(100_003), [0.9, 0.1], seed=2**40)
    found = np.concatenate([part.numbers for part in parts]).astype("<i8")
    expected = "a8d88025bff7e397afeafc7c505b3d5e6aeaf88c9aa8bd39dab51b704994f89d"
    assert hashlib.sha256(found.tobytes()).hexdigest() == expected


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
    [["b", "a"] * 10, np.array([0.5, 1.5] * 10), [True, False] * 10, range(20), [(1,), (0,)] * 10]
    + [np.array([["b", 1], ["a", 1]] * 10, object)],
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
    one, other = split(patients, [0.5, 0.5], groups=patients, stratify=patients % 3)
    assert not {*one} & {*other}
    counts = [np.bincount(np.array([*part]) % 3) for part in (one, other)]
    assert np.abs(counts[0] - counts[1]).max() <= 5


TWO_CLASSES = {"groups": [0, 1] * 5, "stratify": [0] * 9 + [1]}


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
        ([0.5], TWO_CLASSES, ValueError, "to one class of stratify, got group 1 with several"),
    ],
)
def test_wrong_arguments_are_refused(given, arguments, error, said):
    with pytest.raises(error, match=said):
        split(list(range(10)), given, **arguments)


def test_absent_weight_is_left_out():
    assert split((np.arange(4), np.arange(4), None), [0.5])[0].treedef == (0, 1)
