"""MXNet's records by name: an IRHeader's label and numbers, and the payload behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters import Feature, ImageDecoder, RecordError, open_records
from adapters.records import irheader
from tests.images.pictures import encoded as picture_file
from tests.images.pictures import picture
from tests.plans import batch_of, epoch_of, plan_of
from tests.sources.example_files import encoded
from tests.sources.record_files import write

DIGIT = {"image": Feature("uint8", (2, 3), stored="raw"), "label": Feature("float32")}
SIZE = 40


pytestmark = pytest.mark.usefixtures("gatherer")


def file_of(folder: Path, payloads: Iterable[bytes], name: str = "a.rec") -> Path:
    return write(folder / name, "recordio", payloads)


def outcome(read: Callable[[], Any]) -> Any:
    """What is read, or what is said instead."""
    try:
        return read()
    except RecordError as error:
        return str(error)


def digit(number: int, label: Any = None) -> bytes:
    pixels = (np.arange(6) * 7 + number).astype(np.uint8)
    return irheader.pack(number % 10 if label is None else label, number, pixels.tobytes())


def test_a_sample_is_what_the_record_holds(tmp_path):
    spec = {**DIGIT, "id": Feature("int64"), "id2": Feature("uint64")}
    found = open_records(file_of(tmp_path, map(digit, range(9))), decode=spec)[7]
    expected = (np.arange(6) * 7 + 7).astype(np.uint8).reshape(2, 3)
    np.testing.assert_array_equal(found["image"], expected, strict=True)
    assert (found["label"], found["id"], found["id2"]) == (7, 7, 0)
    assert type(found["label"]) is np.float32
    assert type(found["id"]) is np.int64


@pytest.mark.parametrize(
    ("label", "feature", "expected"),
    [
        (3, Feature("int64"), np.int64(3)),
        ([3], Feature("uint8"), np.uint8(3)),
        (0.5, Feature("float64"), np.float64(0.5)),
        ([1, 2], Feature("float32", 2), np.array([1, 2], np.float32)),
        (
            np.arange(10),
            Feature("float32", (None, 5)),
            np.arange(10, dtype=np.float32).reshape(2, 5),
        ),
        (np.zeros(0), Feature("float32", (None, 5)), np.zeros((0, 5), np.float32)),
        (4, Feature("int32", (None,)), np.array([4], np.int32)),
    ],
)
def test_labels_are_of_the_dtype_and_shape_that_is_asked_for(tmp_path, label, feature, expected):
    source = open_records(file_of(tmp_path, [digit(1, label)]), decode={"label": feature})
    np.testing.assert_array_equal(source[0]["label"], expected, strict=True)


@pytest.mark.parametrize(
    ("label", "spec", "expected", "found"),
    [
        (0.5, {"label": Feature("int64")}, "feature 'label' with values of int64", "0.5"),
        (256, {"label": Feature("uint8")}, "values of uint8", "256.0"),
        ([1, 2], {"label": Feature("float32")}, "1 values, float32 ()", "2 values"),
        ([1, 2], {"label": Feature("float32", (None, 5))}, "a multiple of 5 values", "2 values"),
        (1, {"a": Feature("uint8", 5, stored="raw")}, "5 bytes, uint8 (5,)", "6 bytes"),
        (1, {"a": Feature("int64")}, "feature 'a' as bytes", "int64"),
        (1, {"id": Feature("int32")}, "'id' as one int64 or uint64", "int32"),
        (1, {"label": Feature(bytes)}, "numbers as 'label'", "bytes"),
    ],
)
def test_another_record_is_an_error_that_says_which(tmp_path, label, spec, expected, found):
    source = open_records(file_of(tmp_path, [digit(1, label)] * 2), decode=spec)
    for read in (lambda: source[1], lambda: batch_of(plan_of(source, 2))):
        with pytest.raises(RecordError) as raised:
            read()
        assert expected in raised.value.expected
        assert found in raised.value.found


@pytest.mark.parametrize("name", ["id", "id2"])
@pytest.mark.parametrize("number", [2**63, 2**64 - 1])
def test_a_number_that_no_int64_holds_is_an_error_that_says_what_does(tmp_path, name, number):
    numbers = [2**63 - 1, 5, number]
    ids = [(0, each) if name == "id2" else (each, 0) for each in numbers]
    payloads = [irheader.HEADER.pack(0, 1.0, *pair) + b"a" for pair in ids]
    path = file_of(tmp_path, payloads)
    source = open_records(path, decode={name: Feature("int64")})
    assert batch_of(plan_of(source, 2))[name].tolist() == numbers[:2]
    for read in (lambda: source[2], lambda: batch_of(plan_of(source, 3))):
        with pytest.raises(RecordError) as raised:
            read()
        assert raised.value.record == 2
        assert f'feature {name!r} with values of int64 (Feature("uint64")' in raised.value.expected
        assert raised.value.found == str(number)
    wide = open_records(path, decode={name: Feature("uint64")})
    assert [wide[2][name], *batch_of(plan_of(wide, 3))[name].tolist()] == [number, *numbers]


def test_fields_say_what_is_the_label(tmp_path):
    spec = {"pixels": DIGIT["image"], "y": Feature("int64")}
    path = file_of(tmp_path, map(digit, range(3)))
    source = open_records(path, decode=spec, fields={"y": "label"}, outputs=("pixels", "y"))
    assert batch_of(plan_of(source, 3))[1].tolist() == [0, 1, 2]


@pytest.mark.parametrize("label", [Feature("float32"), Feature("int64")])
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_are_the_samples(tmp_path, label, shuffle):
    """Also where labels are written in two ways."""
    payloads = [digit(number, [number % 7] if number % 3 else number % 7) for number in range(SIZE)]
    spec = {**DIGIT, "label": label, "id": Feature("uint64")}
    source = open_records(file_of(tmp_path, payloads), decode=spec)
    plan = plan_of(source, 16, shuffle=shuffle)
    for _ in range(2):
        batches = epoch_of(plan)
        for index, batch in enumerate(batches):
            for row, number in enumerate(plan.order.batch(0, index).tolist()):
                for name, value in source[number].items():
                    np.testing.assert_array_equal(batch[name][row], value, strict=True)


def test_images_and_boxes(tmp_path, safe_sequence):
    """Detection: as many boxes as there are, filled up to the most of a batch."""
    image = picture_file(picture(20, 30), "JPEG")
    boxes = [np.arange(5 * count, dtype=np.float32) for count in (1, 3, 0)]
    path = file_of(tmp_path, [irheader.pack(label, 0, image) for label in boxes])
    spec = {"image": ImageDecoder(16), "label": Feature("float32", (None, 5), default=-1)}
    with safe_sequence(open_records(path, decode=spec), 3) as sequence:
        batch = sequence[0]
    assert batch["image"].shape == (3, 16, 16, 3)
    assert batch["label"].shape == (3, 3, 5)
    assert batch["label"][0, 0].tolist() == [0, 1, 2, 3, 4]
    assert (batch["label"][0, 1:] == -1).all()
    assert (batch["label"][2] == -1).all()


def test_examples_in_recordio_are_examples_all_the_same(tmp_path):
    payloads = [encoded({"label": [number], "image": [bytes(6)]}) for number in range(3)]
    spec = {**DIGIT, "label": Feature("int64")}
    source = open_records(file_of(tmp_path, payloads), decode=spec)
    assert batch_of(plan_of(source, 3))["label"].tolist() == [0, 1, 2]


def test_a_payload_in_parts_is_put_together(tmp_path):
    """As it holds RecordIO's magic number."""
    magic = (0xCED7230A).to_bytes(4, "little")
    payloads = [irheader.pack(1, 0, b"abcd" + magic), irheader.pack(2, 0, b"abcdefgh")]
    spec = {"a": Feature("uint8", 8, stored="raw"), "label": Feature("float32")}
    batch = batch_of(plan_of(open_records(file_of(tmp_path, payloads), decode=spec), 2))
    assert batch["a"].tobytes() == b"abcd" + magic + b"abcdefgh"
    assert batch["label"].tolist() == [1, 2]


def test_files_of_both_formats_are_one_source(tmp_path):
    path = write(
        tmp_path / "a.tfrecord", "tfrecord", [encoded({"image": [bytes(6)], "label": [5]})]
    )
    other = file_of(tmp_path, map(digit, range(3)))
    source = open_records([path, other], decode={**DIGIT, "label": Feature("int64")})
    assert batch_of(plan_of(source, 4))["label"].tolist() == [5, 0, 1, 2]


@given(data=st.data())
def test_whatever_is_damaged_is_a_record_error_or_the_same_both_ways(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged")
    path = file_of(folder, [digit(number, [number, 1]) for number in range(3)])
    spec = {**DIGIT, "label": Feature("float32", 2), "id": Feature("int64")}
    content = bytearray(path.read_bytes())
    open_records(path)  # Whose index stays.
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        source = open_records(path, decode=spec)
    except RecordError:
        return
    expected: Any = outcome(lambda: source[:])
    if isinstance(expected, str):
        assert outcome(lambda: batch_of(plan_of(open_records(path, decode=spec), 3))) == expected
        return
    batch = batch_of(plan_of(open_records(path, decode=spec), len(source)))
    for row, sample in enumerate(expected):
        for name, value in sample.items():
            np.testing.assert_array_equal(batch[name][row], value)
