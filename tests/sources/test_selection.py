"""``source.select``: some of the records, as insightface's files need it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from adapters import Feature, ImageDecoder, RecordError, open_records
from adapters.errors import ClosedError
from adapters.records import irheader
from adapters.sources import as_source
from tests.images.pictures import encoded, picture
from tests.plans import batch_of, plan_of
from tests.sources.record_files import FORMATS, raw_file, write

every_format = pytest.mark.parametrize("format", FORMATS)


@pytest.fixture(params=FORMATS)
def numbers(request, tmp_path):
    """Ten records in two files, each its number."""
    names = [
        write(tmp_path / name, request.param, [str(n).encode() for n in part])
        for name, part in (("a", range(4)), ("b", range(4, 10)))
    ]
    return open_records(names, decode=int)


MASK = np.arange(10) % 3 == 1


@pytest.mark.parametrize(
    ("chosen", "samples"),
    [
        ([7, 2, 2, -1], [7, 2, 2, 9]),
        (range(3, 6), [3, 4, 5]),
        (np.array([9, 0], np.uint8), [9, 0]),
        (MASK, [1, 4, 7]),
        (MASK.tolist(), [1, 4, 7]),
        ([], []),
    ],
    ids=["numbers", "a range", "an array", "a mask", "a list as a mask", "none"],
)
def test_it_has_the_chosen_samples_in_their_order(numbers, chosen, samples):
    selected = numbers.select(chosen)
    assert (len(selected), selected[:]) == (len(samples), samples)
    assert list(selected) == samples


def test_what_is_selected_may_be_selected_from(numbers):
    assert numbers.select(range(1, 9)).select([0, -1])[:] == [1, 8]


def test_the_array_of_numbers_may_change_afterwards(numbers):
    chosen = np.array([3, 4])
    selected = numbers.select(chosen)
    chosen[:] = 0
    assert selected[:] == [3, 4]


@pytest.mark.parametrize(
    ("wrong", "kind", "said"),
    [
        ([0, 10], IndexError, r"in range\(-10, 10\), got 10 in place 1"),
        ([-11], IndexError, "got -11 in place 0"),
        ([True] * 9, ValueError, "each of the 10 samples, got 9"),
        ([[1], [2]], ValueError, r"one axis, got 2: shape \(2, 1\)"),
        ([1.0], TypeError, "integers or a boolean mask, got float64"),
        (iter([1]), TypeError, "sequence of sample numbers .* list_iterator; make a list"),
        ("12", TypeError, "sequence of sample numbers"),
        ({1, 2}, TypeError, "sequence of sample numbers .* set; make a list"),
        ({1: 2}, TypeError, "sequence of sample numbers .* dict; make a list"),
        (3, TypeError, "sequence of sample numbers"),
    ],
)
def test_what_is_no_choice_is_refused(numbers, wrong, kind, said):
    with pytest.raises(kind, match=said):
        numbers.select(wrong)


def test_each_of_the_two_is_closed_by_itself(numbers):
    selected = numbers.select([5])
    numbers.close()
    assert selected[0] == 5
    with pytest.raises(ClosedError):
        numbers.select([5])
    selected.close()
    with pytest.raises(ClosedError):
        selected[0]


def test_it_travels_to_another_process(numbers):
    assert pickle.loads(pickle.dumps(numbers.select([8, 1])))[:] == [8, 1]


def test_raw_bytes_are_those_of_the_chosen_record(numbers):
    assert numbers.select([6]).read(0) == b"6"


@every_format
@pytest.mark.parametrize("count", [1, 2], ids=["a file", "files"])
def test_a_batch_of_arrays_is_gathered_from_the_chosen_records(format, count, tmp_path):
    paths = []
    for place in range(count):
        folder = tmp_path / str(place)
        folder.mkdir()
        paths.append(raw_file(folder, format))
    source = open_records(paths, decode="image")
    chosen = [len(source) - 1, 3, 5, 3]
    images, labels = batch_of(plan_of(source.select(chosen), 4))
    for row, number in enumerate(chosen):
        np.testing.assert_array_equal(images[row], source[number][0])
        assert labels[row] == source[number][1]


def test_a_damaged_record_is_named_as_it_stands_in_its_file(tmp_path):
    contents = [
        irheader.pack(n, n, encoded(picture(9, 9), "JPEG")[: -5 if n == 4 else None])
        for n in range(6)
    ]
    path = write(tmp_path / "a.rec", "recordio", contents)
    source = open_records(path, decode=ImageDecoder(8)).select([5, 4])
    for ask in (lambda: source[1], lambda: batch_of(plan_of(source, 2))):
        with pytest.raises(RecordError, match="record 4, ") as caught:
            ask()
        assert caught.value.offset == sum(len(c) + 8 + (-len(c) % 4) for c in contents[:4])


# --- insightface ---


@pytest.fixture
def faces(tmp_path):
    """A header, seven images, three identities."""
    jpeg = encoded(picture(9, 9), "JPEG")
    records = [irheader.pack([8.0, 11.0], 0, b"")]
    records += [irheader.pack(n // 2, n, jpeg) for n in range(1, 8)]
    records += [irheader.pack([n, n + 2], n, b"") for n in range(3)]
    return write(tmp_path / "train.rec", "recordio", records)


@pytest.mark.parametrize("decode", ["image", ImageDecoder(8)])
@pytest.mark.parametrize("number", [0, 8, 10])
def test_a_record_without_an_image_is_named(faces, decode, number):
    source = open_records(faces, decode=decode).select([number])
    for ask in (lambda: source[0], lambda: batch_of(plan_of(source, 1))):
        with pytest.raises(RecordError, match=rf"record {number}, .*found 0 bytes"):
            ask()


def test_the_header_says_which_records_are_images(faces):
    label = open_records(faces, decode={"label": Feature("float32", (None,))})[0]["label"]
    source = open_records(faces, decode=ImageDecoder(8)).select(range(1, int(label[0])))
    images, labels = batch_of(plan_of(source, 7))
    assert (images.shape, labels.tolist()) == ((7, 8, 8, 3), [0, 1, 1, 2, 2, 3, 3])


def test_a_file_that_begins_with_a_header_is_still_taken_for_images(faces):
    assert as_source(faces).holds_images
