"""Typed features gathered a batch at a time are what they are one by one, in any file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters import Feature, ImageDecoder, RecordError, open_records
from adapters.records import irheader
from tests.fuzzing import examples
from tests.images.pictures import encoded as picture_file
from tests.images.pictures import picture
from tests.plans import batch_of, plan_of
from tests.sources.example_files import (
    assembled,
    encoded,
    entry,
    file_of,
    listed,
    message,
    outcome,
    sample,
    shuffled,
)
from tests.sources.record_files import assert_batches_are_samples, damage, write

# Without the kernel, a batch is put together of samples, whatever these hold.
with_and_without_kernel = pytest.mark.usefixtures("gatherer")
SPEC: dict[str, Any] = {
    "image": Feature("uint8", (2, 3, 4), stored="raw"),
    "label": Feature("int32"),
    "weight": Feature("float32"),
    "marks": Feature("int64", (3,)),
}
COUNT = 90


def usual(number: int) -> bytes:
    return encoded(sample(number))


def in_any_order(number: int) -> bytes:
    return encoded(shuffled(sample(number), number))


def with_others(number: int) -> bytes:
    """Beside features that nobody asked for, of several lengths."""
    return encoded({**sample(number), "name": [b"n" * (number % 7)], "size": [number]})


def not_packed(number: int) -> bytes:
    return encoded(sample(number), packed=False)


def unknown_fields(number: int) -> bytes:
    return usual(number) + message(9, b"xyz")


def long_sizes(number: int) -> bytes:
    """A size in more bytes than it needs."""
    features = b"".join(entry(name, listed(values)) for name, values in sample(number).items())
    return b"\x0a" + bytes([len(features) & 127 | 128, len(features) >> 7 | 128, 0]) + features


# Others are in test_hostile_example_is_the_same_in_a_batch.
WAYS = [usual, in_any_order, with_others, not_packed, unknown_fields, long_sizes]


def mixed(number: int) -> bytes:
    return WAYS[number * 7 % len(WAYS)](number)


def source_of(folder: Path, payloads: Iterable[bytes], spec: Any = None, **options: Any) -> Any:
    return open_records(file_of(folder, payloads), decode=spec or SPEC, **options)


@with_and_without_kernel
@pytest.mark.parametrize("way", [*WAYS, mixed], ids=lambda way: way.__name__)
def test_batches_are_their_samples(tmp_path, way):
    source = source_of(tmp_path, map(way, range(COUNT)))
    for number, found in enumerate(source):
        expected = sample(number)
        assert found["image"].tobytes() == expected["image"][0]
        assert found["marks"].tolist() == expected["marks"]
        assert (found["label"], found["weight"]) == (*expected["label"], *expected["weight"])
    assert_batches_are_samples(source)


@with_and_without_kernel
def test_missing_feature_has_its_default(tmp_path):
    def payload(number: int) -> bytes:
        features = sample(number)
        return encoded({k: v for k, v in features.items() if k != "marks" or number % 3})

    spec = {**SPEC, "marks": Feature("int64", (3,), default=(1, -1, 0))}
    source = source_of(tmp_path, map(payload, range(COUNT)), spec)
    assert source[3]["marks"].tolist() == [1, -1, 0]
    assert_batches_are_samples(source)


def test_feature_that_no_record_has(tmp_path):
    label, none = Feature("int64"), Feature("float32", 2, default=0.5)
    for spec in ({"label": label, "none": none}, {"none": none}):
        assert_batches_are_samples(source_of(tmp_path, map(usual, range(COUNT)), spec))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool", "uint64", "float64", "float16"])
def test_numbers_of_other_dtypes(tmp_path, dtype):
    value = 0.1 if "float" in dtype else 1
    payloads = [encoded({"a": [value] * (number % 2 + 1)}) for number in range(4)]
    source = open_records(file_of(tmp_path, payloads), decode={"a": Feature(dtype)})
    assert_batches_are_samples(source.select([0, 2]))


@with_and_without_kernel
def test_value_that_does_not_fit_is_an_error(tmp_path):
    path = file_of(tmp_path, [encoded({"a": [value]}) for value in (1, 300, 255, -1)])
    source = open_records(path, decode={"a": Feature("uint8")})
    with pytest.raises(RecordError, match=r"record 1, .*values of uint8, found 300"):
        batch_of(plan_of(source, 4))
    assert batch_of(plan_of(source, 2, on_error="skip"), 0, 0)["a"].tolist() == [1, 255]
    assert batch_of(plan_of(source, 2, on_error=lambda error, number: {"a": 9}), 0, 1)[
        "a"
    ].tolist() == [255, 9]


@with_and_without_kernel
@pytest.mark.parametrize("sample", [(1, 2), {"a": 1, "c": 2}])
def test_on_error_gives_a_sample_of_the_same_names(tmp_path, sample):
    path = file_of(tmp_path, [encoded({"a": [300], "b": [2]})])
    source = open_records(path, decode={"b": Feature("uint8"), "a": Feature("uint8")})
    plan = plan_of(source, 1, on_error=lambda error, number: sample)
    with pytest.raises(ValueError, match=r"of the structure \{'b': 1, 'a': 0\}, got"):
        batch_of(plan)


@with_and_without_kernel
@pytest.mark.parametrize("verify", [True, False])
def test_damaged_record_is_noticed_unless_unverified(tmp_path, verify):
    path = file_of(tmp_path, map(usual, range(8)))
    open_records(path).close()  # Writes the index.
    damage(path, path.read_bytes().index(sample(3)["image"][0]))
    plan = plan_of(open_records(path, decode=SPEC, verify=verify), 8)
    for _ in range(2):
        if verify:
            with pytest.raises(RecordError, match=r"record 3, .* the CRC of the data"):
                batch_of(plan)
        else:
            found = batch_of(plan)["image"][3].ravel()[0]
            assert found == sample(3)["image"][0][0] ^ 255


def test_damaged_byte_makes_what_it_makes_one_by_one(tmp_path):
    """Without a CRC: what is gathered is what is read by itself, or both are errors."""
    payload = usual(1)
    records = []
    for place, mask in itertools.product(range(len(payload)), (1, 8, 128)):
        changed = bytearray(payload)
        changed[place] ^= mask
        records += [payload, bytes(changed), payload]
    source = source_of(tmp_path, records, verify=False)
    plan = plan_of(source, 3)
    for number in range(1, len(records), 3):
        expected = outcome(source, number)
        if isinstance(expected, str):
            with pytest.raises(RecordError) as raised:
                batch_of(plan, 0, number // 3)
            assert str(raised.value) == expected
            continue
        batch = batch_of(plan, 0, number // 3)
        for name, value in expected.items():
            np.testing.assert_array_equal(batch[name][1], value)


@pytest.mark.parametrize("asked", ["label", "another"])
def test_empty_last_entry_is_refused(tmp_path, asked):
    """TensorFlow passes over that entry, and Protocol Buffers takes it; whoever asked for it."""
    payload = assembled([entry("label", listed([7])), entry("label", b"")])
    source = open_records(file_of(tmp_path, [payload]), decode={asked: Feature("int64", default=5)})
    with pytest.raises(RecordError, match="values in the last entry of b'label'"):
        source[0]
    with pytest.raises(RecordError, match="values in the last entry of b'label'"):
        batch_of(plan_of(source, 1))


def stored(number: int) -> bytes:
    """In two orders; one record in eight lacks the feature that has two names."""
    features: dict[str, Any] = {"a": [200 + number], "b": [bytes([number, 1, 0, 128])]}
    if number % 8 == 5:
        features = {"b": features["b"]}
    return encoded(dict(reversed(features.items())) if number % 3 else features)


def named_twice(folder: Path, payloads: Any, key: str, first: Any, second: Any) -> Any:
    """A source whose x and y are both called ``key`` in its records."""
    decode, fields = {"x": first, "y": second}, {"x": key, "y": key}
    return open_records(file_of(folder, payloads), decode=decode, fields=fields)


@pytest.mark.parametrize(
    ("key", "first", "second"),
    [
        ("a", Feature("int64", default=-1), Feature("int64", default=-2)),
        ("a", Feature("int64", default=-1), Feature("int16", default=7)),
        ("a", Feature("int64", default=-1), Feature("int64", (1,), default=3)),
        ("b", Feature("uint8", 4, stored="raw"), Feature("<u2", 2, stored="raw", default=1)),
    ],
)
def test_two_names_of_one_feature(tmp_path, key, first, second):
    source = named_twice(tmp_path, map(stored, range(40)), key, first, second)
    if key == "a":
        assert source[2] == {"x": 202, "y": 202}
    assert_batches_are_samples(source)


@pytest.mark.parametrize(
    "features",
    [
        (Feature("int64", default=-1), Feature("float32", default=0.5)),
        (Feature("float32", default=0.5), Feature("int64", default=-1)),
        (Feature("int64", default=-1), Feature("int64", 2, default=(1, 2))),
    ],
)
def test_two_names_of_other_kinds_are_an_error(tmp_path, features):
    source = named_twice(tmp_path, [encoded({"a": [7]})] * 3, "a", *features)
    expected = outcome(source, 0)
    assert isinstance(expected, str)
    with pytest.raises(RecordError) as raised:
        batch_of(plan_of(source, 3))
    assert str(raised.value) == expected


@with_and_without_kernel
def test_two_names_of_one_image(tmp_path):
    payloads = [
        encoded({"a": [picture_file(picture(20 + number, 30), "PNG")], "b": [number]})
        for number in range(9)
    ]
    decoders = ImageDecoder(8), ImageDecoder(12)
    assert_batches_are_samples(named_twice(tmp_path, payloads, "a", *decoders))


DIGIT = {"image": Feature("uint8", (2, 3), stored="raw"), "label": Feature("float32")}


def headers_of(folder: Path, payloads: Iterable[bytes], name: str = "a.rec") -> Path:
    return write(folder / name, "recordio", payloads)


def outcome_of(read: Callable[[], Any]) -> Any:
    """What is read, or what is said instead."""
    try:
        return read()
    except RecordError as error:
        return str(error)


def digit(number: int, label: Any = None) -> bytes:
    pixels = (np.arange(6) * 7 + number).astype(np.uint8)
    return irheader.pack(number % 10 if label is None else label, number, pixels.tobytes())


def test_header_sample_is_what_the_record_holds(tmp_path):
    spec = {**DIGIT, "id": Feature("int64"), "id2": Feature("uint64")}
    found = open_records(headers_of(tmp_path, map(digit, range(9))), decode=spec)[7]
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
def test_header_labels_of_dtype_and_shape(tmp_path, label, feature, expected):
    source = open_records(headers_of(tmp_path, [digit(1, label)]), decode={"label": feature})
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
def test_header_that_does_not_fit_is_an_error(tmp_path, label, spec, expected, found):
    source = open_records(headers_of(tmp_path, [digit(1, label)] * 2), decode=spec)
    for read in (lambda: source[1], lambda: batch_of(plan_of(source, 2))):
        with pytest.raises(RecordError) as raised:
            read()
        assert expected in raised.value.expected
        assert found in raised.value.found


@pytest.mark.parametrize("name", ["id", "id2"])
@pytest.mark.parametrize("number", [2**63, 2**64 - 1])
def test_header_id_that_no_int64_holds(tmp_path, name, number):
    numbers = [2**63 - 1, 5, number]
    ids = [(0, each) if name == "id2" else (each, 0) for each in numbers]
    payloads = [irheader.HEADER.pack(0, 1.0, *pair) + b"a" for pair in ids]
    path = headers_of(tmp_path, payloads)
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


@with_and_without_kernel
@pytest.mark.parametrize("label", [Feature("float32"), Feature("int64")])
def test_header_batches_are_their_samples(tmp_path, label):
    """Also where labels are written in two ways."""
    payloads = [digit(number, [number % 7] if number % 3 else number % 7) for number in range(40)]
    spec = {**DIGIT, "label": label, "id": Feature("uint64")}
    assert_batches_are_samples(open_records(headers_of(tmp_path, payloads), decode=spec))


def test_examples_in_recordio(tmp_path):
    payloads = [encoded({"label": [number], "image": [bytes(6)]}) for number in range(3)]
    spec = {**DIGIT, "label": Feature("int64")}
    source = open_records(headers_of(tmp_path, payloads), decode=spec)
    assert batch_of(plan_of(source, 3))["label"].tolist() == [0, 1, 2]


def test_header_payload_in_parts(tmp_path):
    """As it holds RecordIO's magic number."""
    magic = (0xCED7230A).to_bytes(4, "little")
    payloads = [irheader.pack(1, 0, b"abcd" + magic), irheader.pack(2, 0, b"abcdefgh")]
    spec = {"a": Feature("uint8", 8, stored="raw"), "label": Feature("float32")}
    batch = batch_of(plan_of(open_records(headers_of(tmp_path, payloads), decode=spec), 2))
    assert batch["a"].tobytes() == b"abcd" + magic + b"abcdefgh"
    assert batch["label"].tolist() == [1, 2]


@with_and_without_kernel
def test_files_of_both_formats(tmp_path):
    path = write(
        tmp_path / "a.tfrecord", "tfrecord", [encoded({"image": [bytes(6)], "label": [5]})]
    )
    other = headers_of(tmp_path, map(digit, range(3)))
    source = open_records([path, other], decode={**DIGIT, "label": Feature("int64")})
    assert batch_of(plan_of(source, 4))["label"].tolist() == [5, 0, 1, 2]


@settings(max_examples=examples(100))
@given(data=st.data())
def test_header_damage_is_an_error_or_the_same(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged")
    path = headers_of(folder, [digit(number, [number, 1]) for number in range(3)])
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
    expected: Any = outcome_of(lambda: source[:])
    if isinstance(expected, str):
        assert outcome_of(lambda: batch_of(plan_of(open_records(path, decode=spec), 3))) == expected
        return
    batch = batch_of(plan_of(open_records(path, decode=spec), len(source)))
    for row, found in enumerate(expected):
        for name, value in found.items():
            np.testing.assert_array_equal(batch[name][row], value)
