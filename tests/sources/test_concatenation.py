"""Several sources as one, of every kind, alike and mixed."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from adapters import (
    Feature,
    ImageDecoder,
    RecordError,
    concatenate,
    open_images,
    open_records,
    split,
)
from adapters.sources import Subset, as_source
from adapters.sources.concatenation import Concatenation, form_of
from tests.batches import exact
from tests.images.pictures import encoded, npy, picture
from tests.plans import batch_of, epoch_of, notes_of, plan_of
from tests.sources import example_files
from tests.sources.every_kind import CENTRE, KINDS, SIZE, Fetching, X, Y, all_samples
from tests.sources.image_folders import folder
from tests.sources.record_files import write_images

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def source(kind, tmp_path):
    return KINDS[kind](tmp_path)


def halves(source):
    """A source in two, put together otherwise than by what ``split`` has cut."""
    middle = len(source) // 2
    parts = [source.select(range(middle)), source.select(range(middle, len(source)))]
    return Concatenation(parts, [form_of(part) for part in parts])


@every_kind
def test_samples_come_one_source_after_the_other(source):
    whole = halves(source)
    assert len(whole) == len(source)
    assert exact(all_samples(whole)) == exact(all_samples(source))
    if not source.draws:
        assert exact(whole[:]) == exact(source[:])
        assert exact(whole[-1]) == exact(source[-1])


@every_kind
def test_batches_are_those_of_one_source_random_crops_too(source):
    """What is random depends on a sample's number in the whole."""
    expected = [exact(batch) for batch in epoch_of(plan_of(source, 5, shuffle=True), 2)]
    assert [exact(batch) for batch in epoch_of(plan_of(halves(source), 5, shuffle=True), 2)] == (
        expected
    )


@every_kind
def test_it_is_read_in_the_way_that_its_sources_are(source):
    whole = halves(source)
    for name in ("gathers", "pads", "python_numbers", "makes_samples", "stored", "fetches_many"):
        assert getattr(whole, name) == getattr(source, name), name
    for name in ("draws", "decodes", "holds_images"):
        assert getattr(whole, name) == getattr(source, name), name
    assert (whole.leaves is not None) == (source.gathers or source.leaves is not None)


@every_kind
def test_it_travels_to_another_process(source):
    received = pickle.loads(pickle.dumps(halves(source)))
    assert exact(batch_of(plan_of(received, 20))) == exact(batch_of(plan_of(source, 20)))


@every_kind
def test_it_may_be_selected_from(source):
    chosen = [len(source) - 1, 0, 3, 3]
    found = all_samples(halves(source).select(chosen))
    assert exact(found) == exact(all_samples(source.select(chosen)))


def test_sources_may_be_concatenations_without_a_chain():
    parts = [list(range(3)), list(range(3, 5)), list(range(5, 9))]
    whole = concatenate([concatenate(parts[:2]), parts[2]])
    assert [type(part).__name__ for part in whole.parts] == ["MapSource"] * 3
    assert whole[:] == list(range(9))


def test_one_source_stays_what_it_is():
    source = as_source((X, Y))
    assert concatenate([source]) is source


def test_what_was_split_is_gathered_as_one_when_it_is_put_together():
    folds = split((X, Y), [0.25] * 4)
    whole = concatenate(folds[1:])
    assert type(whole) is Subset
    assert exact(whole[:]) == exact([sample for fold in folds[1:] for sample in fold])


# --- of several kinds ---


@pytest.fixture
def files(tmp_path):
    """The same sort of pictures: in RecordIO, in TFRecord, and as arrays."""
    contents = [encoded(picture(20, 20 + n), "JPEG") for n in range(SIZE)]
    paths = [
        write_images(tmp_path / format, format, contents[part])
        for format, part in (("recordio", slice(0, 10)), ("tfrecord", slice(10, SIZE)))
    ]
    return [open_records(path, decode=CENTRE) for path in paths]


def test_records_of_several_formats_and_arrays_are_one_source(files):
    arrays = np.arange(3 * 8 * 9 * 3, dtype=np.uint8).reshape(3, 8, 9, 3), np.arange(3)
    whole = concatenate([*files, arrays])
    assert whole.leaves is not None
    images, labels = batch_of(plan_of(whole, SIZE + 3, shuffle=True))
    order = plan_of(whole, SIZE + 3, shuffle=True).order.batch(0, 0)
    for row, number in enumerate(order.tolist()):
        image, label = whole[number]
        np.testing.assert_array_equal(images[row], image)
        assert labels[row] == label
    assert whole[SIZE][0].tolist() == arrays[0][0].tolist()


def test_what_gathers_and_what_is_asked_are_one_source():
    whole = concatenate([(X, Y), [(x, int(y)) for x, y in zip(X, Y)]])
    assert (whole.gathers, whole.leaves) == (False, None)
    x, y = batch_of(plan_of(whole, 2 * SIZE))
    assert (x.tolist(), y.tolist()) == ([*X.tolist()] * 2, [*Y.tolist()] * 2)


def test_what_fetches_many_does_so_for_its_own_samples():
    asked = []

    class Noting(Fetching):
        def __getitems__(self, numbers):
            asked.append(numbers)
            return super().__getitems__(numbers)

    whole = concatenate([Noting(), [{"x": X[0], "y": (Y[0],)}], Noting()])
    batch = whole.select([SIZE + 2, 5, SIZE, 1])
    assert batch_of(plan_of(batch, 4))["y"][0].tolist() == [10, 50, 0, 10]
    assert asked == [[5, 1], [1]]


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ((X.astype(float), Y), r"sources\[0\] has \(int32 \(2, 3\), int64 \(\)\), sources\[1\]"),
        ((X[:, :1], Y), r"sources\[1\] has \(int32 \(1, 3\), int64 \(\)\)"),
        (X, r"sources\[1\] has int32 \(2, 3\); bring them into one form"),
        ({"x": X, "y": Y}, r"has \{x: int32 \(2, 3\), y: int64 \(\)\}"),
    ],
)
def test_samples_that_differ_are_refused_at_once(others, said):
    with pytest.raises(ValueError, match=said):
        concatenate([(X, Y), others])


def test_records_that_differ_are_refused_at_once(tmp_path):
    content = [encoded(picture(9, 9), "JPEG")]
    path = write_images(tmp_path / "a", "recordio", content)
    small, large = (open_records(path, decode=ImageDecoder(size)) for size in (8, 16))
    with pytest.raises(ValueError, match=r"sources\[1\] has \(uint8 \(16, 16, 3\), float64 \(\)\)"):
        concatenate([small, large])


@pytest.mark.parametrize("transform", [None, lambda sample: sample])
def test_numbers_of_several_types_become_those_of_one(files, transform):
    """RecordIO has floats as labels, TFRecord integers; all batches have one dtype."""
    whole = concatenate([*files, (np.zeros((3, 8, 9, 3), np.uint8), np.arange(3, dtype="i4"))])
    batches = epoch_of(plan_of(whole, 4, transform=transform))
    assert {batch[1].dtype for batch in batches} == {np.dtype("f8")}
    labels = [*range(10), *range(SIZE - 10), *range(3)]
    assert np.concatenate([batch[1] for batch in batches]).tolist() == labels
    assert {type(label) for _, label in whole} == {float, np.float64}


def test_numbers_of_several_types_are_gathered_as_one():
    whole = concatenate([np.arange(3, dtype="i2"), np.array([0.5], "f4")])
    assert [batch.dtype.str for batch in epoch_of(plan_of(whole, 2))] == ["<f4", "<f4"]


def test_numbers_of_a_source_that_does_not_know_them_before_become_those_of_the_others():
    whole = concatenate([np.array([0.5]), np.array([1]), [2, 3], [True], ["a", "b"]])
    batches = epoch_of(plan_of(whole.select(range(5)), 1))
    assert [batch.dtype.str for batch in batches] == ["<f8"] * 5
    assert np.concatenate(batches).tolist() == [0.5, 1, 2, 3, 1]
    assert whole[-1] == "b"
    whole = concatenate([np.array([1]), [0.5]])  # Which isn't known before.
    assert [value for batch in epoch_of(plan_of(whole, 1)) for value in batch.tolist()] == [1, 0.5]


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1])
@pytest.mark.parametrize("columns", [lambda x: x, lambda x: (np.zeros((len(x), 2)), x)])
def test_an_integer_that_would_be_another_one_as_a_float_is_refused(value, columns):
    whole = concatenate([columns(np.array([2**53, value])), columns(np.array([0.5]))])
    batch = batch_of(plan_of(whole.select([0, 2]), 2))
    assert (batch if isinstance(batch, np.ndarray) else batch[1]).tolist() == [2**53, 0.5]
    for chosen in ([1], [1, 2], [2, 1, 0]):
        with pytest.raises(ValueError, match=f"{value} is no float64 exactly"):
            batch_of(plan_of(whole.select(chosen), 3))
    with pytest.raises(ValueError, match=f"{value} is no float64 exactly"):
        whole[1]


@pytest.mark.parametrize("shuffle", [False, True])
def test_labels_beside_images_that_would_be_other_ones_are_refused(shuffle, tmp_path):
    """A batch that is filled; what failed in it has no label to look at."""
    paths = [folder(tmp_path / name) for name in "ab"]
    files = [str(path) for path in sorted(paths[0].rglob("*.jpg"))]
    one = open_images([(file, 2**53 + 1) for file in files], decode=CENTRE)
    other = open_images([(file, 0.5) for file in files], decode=CENTRE)
    with pytest.raises(ValueError, match="9007199254740993 is no float64 exactly"):
        epoch_of(plan_of(concatenate([one, other]), 5, shuffle=shuffle))
    small = open_images([(file, 3) for file in [*files, "gone.jpg"]], decode=CENTRE)
    batches = epoch_of(plan_of(concatenate([small, other]), 5, shuffle=shuffle, on_error="skip"))
    assert {batch[1].dtype for batch in batches} == {np.dtype("f8")}
    assert set(np.concatenate([batch[1] for batch in batches]).tolist()) == {3.0, 0.5}


def test_integers_that_no_type_holds_together_are_refused():
    """As float64, 2^53 + 1 would be 2^53."""
    ids = np.array([2**53 + 1]), np.array([1], np.uint64)
    with pytest.raises(ValueError, match=r"sources\[0\] has int64 \(\), sources\[1\] has uint64"):
        concatenate(ids)


def test_features_of_other_names_are_told_where_lengths_vary(tmp_path):
    feature = Feature("int64", (None,), default=0)
    sources = []
    for name in "ab":
        payloads = [example_files.encoded({name: [1, 2][:n]}) for n in (1, 2)]
        path = example_files.file_of(tmp_path, payloads, f"{name}.tfrecord")
        sources.append(open_records(path, decode={name: feature}))
    with pytest.raises(ValueError, match=r"sample 2 .*'b'"):
        batch_of(plan_of(concatenate(sources), 4))


def test_a_damaged_record_is_named_as_it_stands_in_its_file(tmp_path):
    contents = [npy(picture(4, 4)), npy(picture(4, 4)), b"nothing"]
    path = write_images(tmp_path / "a", "recordio", contents)
    decoded = concatenate(
        [
            (np.zeros((3, 4, 4, 3), np.uint8), np.arange(3)),
            open_records(path, decode=ImageDecoder(4)),
        ]
    )
    with pytest.raises(RecordError, match="record 2, "):
        batch_of(plan_of(decoded, 6))
    batch = batch_of(plan_of(decoded, 6, on_error="skip"))
    assert batch[1].tolist() == [0, 1, 2, 0, 1, 0]


def test_what_a_source_raises_names_the_number_in_the_whole():
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
        (X, TypeError, "got one ndarray"),
        (as_source(X), TypeError, "got one ArraySource"),
        ([X, iter([1])], TypeError, "source must be an array"),
        ([X, []], ValueError, "at least one sample"),
        ([[X, X]], TypeError, "must be a tuple"),
    ],
)
def test_what_are_no_sources_is_refused(sources, error, said):
    with pytest.raises(error, match=said):
        concatenate(sources)
