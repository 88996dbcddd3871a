"""Several sources as one, of every kind, alike and mixed: ``concatenate`` and ``mix``."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from adapters import (
    Blocks,
    ImageDecoder,
    RecordError,
    concatenate,
    mix,
    open_images,
    open_records,
    packed,
    split,
)
from adapters.batch.arranging import order_of
from adapters.sources import as_source
from adapters.sources.concatenation import Concatenation
from tests.batches import exact
from tests.fuzzing import examples
from tests.images.pictures import encoded, npy, picture
from tests.plans import batch_of, epoch_of, notes_of, plan_of
from tests.sources.conftest import gatherer  # noqa: F401 - a fixture.
from tests.sources.every_kind import CENTRE, KINDS, SIZE, X, Y, all_samples
from tests.sources.image_folders import folder
from tests.sources.record_files import (
    write_images,
)

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def source(kind, tmp_path):
    return KINDS[kind](tmp_path)


def halves(source):
    """A source in two, put together otherwise than by what ``split`` has cut."""
    middle = len(source) // 2
    return Concatenation([source.select(range(middle)), source.select(range(middle, len(source)))])


@every_kind
def test_samples_come_one_source_after_the_other(source):
    whole = halves(source)
    assert exact(all_samples(whole)) == exact(all_samples(source))
    if not source.draws:
        assert exact(whole[:]) == exact(source[:])
    chosen = [len(source) - 1, 0, 3, 3]
    found = all_samples(whole.select(chosen))
    assert exact(found) == exact(all_samples(source.select(chosen)))


@every_kind
def test_batches_are_those_of_one_source(source):
    """What is random depends on a sample's number in the whole; in another process, too."""
    expected = [exact(batch) for batch in epoch_of(plan_of(source, 5, shuffle=True), 2)]
    whole = halves(source)
    for each in (whole, pickle.loads(pickle.dumps(whole))):
        found = epoch_of(plan_of(each, 5, shuffle=True), 2)
        assert [exact(batch) for batch in found] == expected


def test_one_source_stays_what_it_is():
    source = as_source((X, Y))
    assert concatenate([source]) is source
    parts = [list(range(3)), list(range(3, 5)), list(range(5, 9))]
    assert concatenate([concatenate(parts[:2]), parts[2]])[:] == list(range(9))
    folds = split((X, Y), [0.25] * 4)
    whole = concatenate(folds[1:])
    assert exact(whole[:]) == exact([sample for fold in folds[1:] for sample in fold])


def test_users_code_is_found_in_a_part():
    """What a data set draws from numpy.random is seeded for it, see ``users_code``."""
    data = [1, 2, 3]
    whole = concatenate([data, np.arange(3), data])
    assert list(whole.users_code) == [data, data]
    assert list(whole.select([0]).users_code) == [data, data]


@pytest.fixture
def files(tmp_path):
    """The same sort of pictures: in RecordIO, in TFRecord, and as arrays."""
    contents = [encoded(picture(20, 20 + n), "JPEG") for n in range(SIZE)]
    paths = [
        write_images(tmp_path / format, format, contents[part])
        for format, part in (("recordio", slice(0, 10)), ("tfrecord", slice(10, SIZE)))
    ]
    return [open_records(path, decode=CENTRE) for path in paths]


@pytest.mark.parametrize("transform", [None, lambda sample: sample])
def test_labels_of_several_types_become_one(files, transform):
    """RecordIO has floats as labels, TFRecord integers; all batches have one dtype."""
    arrays = np.arange(3 * 8 * 9 * 3, dtype=np.uint8).reshape(3, 8, 9, 3), np.arange(3, dtype="i4")
    whole = concatenate([*files, arrays])
    batches = epoch_of(plan_of(whole, 4, transform=transform))
    assert {labels.dtype for _, labels in batches} == {np.dtype("f8")}
    images, labels = map(np.concatenate, zip(*batches))
    np.testing.assert_array_equal(images, [image for image, _ in whole])
    assert labels.tolist() == [*range(10), *range(SIZE - 10), *range(3)]
    assert {type(label) for _, label in whole} == {float, np.float64}


@pytest.mark.parametrize(
    ("sources", "dtype"),
    [
        ([np.arange(3, dtype="i2"), np.array([0.5], "f4")], "<f4"),
        ([np.array([0.5]), np.array([1]), [2, 3], [True]], "<f8"),
        ([np.array(["cat", "a"]), np.array(["horse"])], "<U5"),
    ],
)
def test_numbers_of_several_types_become_one(sources, dtype):
    batches = epoch_of(plan_of(concatenate(sources), 1))
    assert {batch.dtype.str for batch in batches} == {dtype}
    assert np.concatenate(batches).tolist() == [value for each in sources for value in each]


def test_texts_of_lists_and_arrays_are_joined():
    whole = concatenate([(["cat", "a"], [0, 1]), (np.array(["horse"]), [2])])
    ((texts, _),) = epoch_of(plan_of(whole, 3))
    assert texts.tolist() == ["cat", "a", "horse"]


def test_numbers_of_lists_that_are_not_known_before():
    whole = concatenate([np.array([1]), [0.5, "b"]])
    batches = epoch_of(plan_of(whole.select([0, 1]), 1))
    assert [batch.tolist() for batch in batches] == [[1], [0.5]]
    assert whole[-1] == "b"


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1])
@pytest.mark.parametrize("columns", [lambda x: x, lambda x: (np.zeros((len(x), 2)), x)])
def test_integers_that_floats_lose_are_refused(value, columns):
    whole = concatenate([columns(np.array([2**53, value])), columns(np.array([0.5]))])
    batch = batch_of(plan_of(whole.select([0, 2]), 2))
    assert (batch if isinstance(batch, np.ndarray) else batch[1]).tolist() == [2**53, 0.5]
    for chosen in ([1], [1, 2], [2, 1, 0]):
        with pytest.raises(ValueError, match=f"{value} is no float64 exactly"):
            batch_of(plan_of(whole.select(chosen), 3))
    with pytest.raises(ValueError, match=f"{value} is no float64 exactly"):
        whole[1]


@pytest.mark.parametrize("shuffle", [False, True])
def test_labels_that_floats_lose_are_refused(shuffle, tmp_path):
    """A batch that is filled; what failed in it has no label to look at."""
    files = open_images(folder(tmp_path)).files
    one = open_images([(file, 2**53 + 1) for file in files], decode=CENTRE)
    other = open_images([(file, 0.5) for file in files], decode=CENTRE)
    with pytest.raises(ValueError, match="9007199254740993 is no float64 exactly"):
        epoch_of(plan_of(concatenate([one, other]), 5, shuffle=shuffle))
    small = open_images([(file, 3) for file in [*files, "gone.jpg"]], decode=CENTRE)
    batches = epoch_of(plan_of(concatenate([small, other]), 5, shuffle=shuffle, on_error="skip"))
    assert {batch[1].dtype for batch in batches} == {np.dtype("f8")}
    assert set(np.concatenate([batch[1] for batch in batches]).tolist()) == {3.0, 0.5}


def test_damaged_record_is_named_as_in_its_file(tmp_path):
    contents = [npy(picture(4, 4)), npy(picture(4, 4)), b"nothing"]
    path = write_images(tmp_path / "a", "recordio", contents)
    arrays = np.zeros((3, 4, 4, 3), np.uint8), np.arange(3)
    decoded = concatenate([arrays, open_records(path, decode=ImageDecoder(4))])
    with pytest.raises(RecordError, match="record 2, "):
        batch_of(plan_of(decoded, 6))
    batch = batch_of(plan_of(decoded, 6, on_error="skip"))
    assert batch[1].tolist() == [0, 1, 2, 0, 1, 0]


def test_errors_name_the_number_in_the_whole():
    class Broken(list):
        def __getitem__(self, number):
            raise KeyError(number)

    with pytest.raises(KeyError) as caught:
        batch_of(plan_of(concatenate([[1, 2], Broken([0])]), 3))
    assert "in sample 2" in notes_of(caught.value)


@pytest.mark.parametrize(
    ("sources", "error", "said"),
    [
        ([], ValueError, "at least one source, got none"),
        (5, TypeError, r"list of sources, got int; one source is \[source\]"),
        ({"a": X}, TypeError, "got dict"),
        (X, TypeError, "got ndarray; one source is"),
        (as_source(X), TypeError, "got ArraySource"),
        ([X, iter([1])], TypeError, r"sources\[1\] must be an array"),
        ([X, []], ValueError, "at least one sample"),
        ([[X, X]], TypeError, "must be a tuple"),
        ([(X, Y), (X[:, :1], Y)], ValueError, r"sources\[1\] has \(int32\(1, 3\), int64\(\)\)"),
        ([(X, Y), X], ValueError, r"sources\[1\] has int32\(2, 3\); bring them into one form"),
        ([(X, Y), {"x": X, "y": Y}], ValueError, r"has \{'x': int32\(2, 3\), 'y': int64"),
        # As float64, 2^53 + 1 would be 2^53.
        ([np.array([2**53 + 1]), np.array([1], "u8")], ValueError, r"\[1\] has uint64"),
    ],
)
def test_what_are_no_sources_or_other_ones_is_refused(sources, error, said):
    with pytest.raises(error, match=said):
        concatenate(sources)


def test_rows_of_many_arrays():
    rng = np.random.default_rng(9)
    given = [(rng.random((n, 5)), rng.random(n) > 0.5) for n in rng.integers(1, 6, 9)]
    plan = plan_of(concatenate(given), 90, shuffle=True)
    for found, columns in zip(batch_of(plan), zip(*given)):
        expected = np.concatenate(columns)[plan.order.batch(0, 0)]
        np.testing.assert_array_equal(found, expected, strict=True)


@pytest.fixture
def photos(tmp_path):
    """Makes files of these classes; their names, or as many as are known beforehand."""

    def make(*classes, known=None):
        files = open_images(folder(tmp_path / "-".join(classes), classes=classes)).files
        return open_images(files, decode=ImageDecoder(8), classes=known)

    return make


@pytest.mark.parametrize("together", [concatenate, mix])
def test_classes_numbered_otherwise_are_refused(together, photos):
    one = photos("cat", "dog")
    for other in (photos("bird", "cat"), photos("cat", "eel")):
        with pytest.raises(ValueError, match=r"alike, got \['cat', 'dog'\] and, in sources\[1\], "):
            together([one, other])
        with pytest.raises(ValueError, match="number their classes alike"):
            together([one.select([0, 1]), concatenate([other, other]).select([0, 1])])


def test_classes_given_alike_or_lacking_are_joined(photos):
    known = ["bird", "cat", "dog"]
    whole = mix([photos("cat", "dog", known=known), photos("bird", "cat", known=known)])
    assert whole.classes == known
    assert [label for _, label in whole] == [1, 1, 1, 2, 2, 2, 0, 0, 0, 1, 1, 1]
    one, more = photos("cat"), photos("cat", "dog")
    assert concatenate([one, more]).select([0]).classes == ["cat", "dog"]
    numbered = open_images([(file, 0) for file in one.files], decode=ImageDecoder(8))
    assert concatenate([more, numbered]).classes is None


# --- mix ---


def numbers_of(source, epoch=0, shuffle=True, batch_size=16, seed=3):
    order = order_of(len(source), batch_size, shuffle, seed, source=source)
    return np.concatenate([order.batch(epoch, index) for index in range(len(order))])


def owners_of(numbers, sizes):
    return np.searchsorted(np.cumsum(sizes), numbers, "right")


def sources_of(sizes):
    return [np.arange(size) for size in sizes]


@settings(max_examples=examples(100))
@given(st.lists(st.integers(1, 40), min_size=1, max_size=9))
def test_shares_are_exact_over_every_stretch(weights):
    sizes = [10 * weight for weight in weights]
    source = mix(sources_of(sizes), weights)
    assert source.shares == [Fraction(weight, sum(weights)) for weight in weights]
    numbers = numbers_of(source, shuffle=False, batch_size=1000)
    owners = owners_of(numbers, sizes)
    for at, share in enumerate(source.shares):
        drawn = np.cumsum(owners == at)
        off = drawn * share.denominator - np.arange(1, len(numbers) + 1) * share.numerator
        assert np.abs(off).max() < share.denominator
        assert (np.diff(numbers[owners == at]) == 1).all()


def test_shares_without_a_small_denominator():
    weights = [Fraction(1, 3), Fraction(314159, 10**6), Fraction(1057523, 3 * 10**6)]
    shares = mix(sources_of([9] * 3), [float(weight) for weight in weights]).shares
    assert max(abs(one - other) for one, other in zip(weights, shares)) < 1e-7


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


def test_shards_have_the_shares():
    """Also if they are as many as the positions after which the shares repeat."""
    sizes, shares = [5000, 3000, 2000], [0.5, 0.3, 0.2]
    owners = owners_of(numbers_of(mix(sources_of(sizes), shares), shuffle=False), sizes)
    found = [(owners.reshape(-1, 10) == source).mean(0) for source in range(3)]
    assert np.abs(np.transpose(found) - shares).max() < 0.2


def test_golden_order():
    """Equal times are many here, and an unstable sort breaks ties as the processor has it."""
    numbers = numbers_of(mix(sources_of([2400, 100, 100]), [24, 1, 1]), 2)[:52]
    rare = np.flatnonzero(numbers >= 2400)
    assert (rare.tolist(), numbers[rare].tolist()) == ([12, 22, 29, 41], [2499, 2523, 2463, 2540])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"sources": np.zeros(3)}, TypeError, "sources must be a list of sources, got ndarray"),
        ({"sources": []}, ValueError, "sources must hold at least one source"),
        ({"weights": [1]}, ValueError, "weights must have one number for each of the 2 sources"),
        ({"weights": [1, 0]}, ValueError, r"weights must be finite and above 0, got 0 as weights"),
        ({"weights": {3, 1}}, TypeError, r"weights must be a list of numbers .* got \{1, 3\}"),
        ({"weights": [1, 10**7]}, ValueError, "weights must give each source a share of 1/131,072"),
        ({"temperature": 0}, ValueError, "temperature must be > 0, got 0"),
        ({"stop": "never"}, ValueError, 'stop must be "first" or "last", got '),
        ({"replacement": 2}, TypeError, "replacement must be True or False, got 2"),
    ],
)
def test_wrong_arguments_of_mix_are_refused(arguments, error, message):
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
