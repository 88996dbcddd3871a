"""Typed features, ``decode={name: Feature}``: of one record, and in batches; what is refused."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from collections import namedtuple
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters import Feature, ImageDecoder, RecordError, open_records
from adapters.records import irheader
from tests.batches import exact
from tests.fuzzing import examples
from tests.images.pictures import encoded as picture_file
from tests.images.pictures import picture
from tests.plans import batch_of, epoch_of, plan_of
from tests.sources.example_files import (
    assembled,
    assert_batch_is_its_outcomes,
    encoded,
    entry,
    file_of,
    listed,
    message,
    outcome,
    sample,
)
from tests.sources.record_files import assert_batches_are_samples, write

# As TensorFlow has it.
FixedLenFeature = namedtuple("FixedLenFeature", "shape dtype default_value", defaults=[None])
RaggedFeature = namedtuple("RaggedFeature", "dtype value_key partitions", defaults=[None, ()])
SparseFeature = namedtuple("SparseFeature", "index_key value_key dtype size")
INT64 = Feature("int64")
ONE = {"a": INT64}


def one(folder: Path, features: dict[str, Any], spec: Any, **options: Any) -> Any:
    """The one sample of a file of one Example."""
    return open_records(file_of(folder, [encoded(features)]), decode=spec, **options)[0]


def error_of(folder: Path, features: dict[str, Any], spec: Any) -> RecordError:
    """What is said of such an Example, the second one of a file."""
    path = file_of(folder, [encoded({}), encoded(features)])
    with pytest.raises(RecordError) as raised:
        open_records(path, decode=spec)[1]
    assert raised.value.file == str(path)
    assert (raised.value.record, raised.value.offset) == (1, 18)
    return raised.value


@pytest.mark.parametrize(
    ("values", "feature", "expected"),
    [
        ([3], Feature("int64"), np.int64(3)),
        ([1], Feature("bool"), np.bool_(True)),
        ([2.5], Feature("float32"), np.float32(2.5)),
        ([1, 300, -1, 0], Feature("int32", (2, 2)), np.array([[1, 300], [-1, 0]], np.int32)),
        ([1, 2, 3, 4], Feature("int64", (None, 2)), np.array([[1, 2], [3, 4]])),
        ([b"\1\2\3\4"], Feature("uint8", (2, 2), stored="raw"), np.array([[1, 2], [3, 4]], "u1")),
        ([b"\1\2\3\4"], Feature(">u2", 2, stored="raw"), np.array([258, 772], np.uint16)),
        ([b"\0" * 8], Feature("complex64", stored="raw"), np.complex64(0)),
        ([b"\1\0\2\0"], Feature("u2", None, stored="raw"), np.array([1, 2], np.uint16)),
        ([b"xy"], Feature(bytes), b"xy"),
        (["é".encode()], Feature(str), "é"),
        ([b"x", b"y"], Feature("bytes", 2), np.array([b"x", b"y"], object)),
        ([b"x", b"y"], Feature("str", None), np.array(["x", "y"], object)),
    ],
)
def test_values_become_numbers_texts_and_arrays(tmp_path, values, feature, expected):
    found = one(tmp_path, {"a": values, "other": [b"x"]}, {"a": feature})["a"]
    assert exact(found) == exact(expected)


def test_outputs_order_a_tuple(tmp_path):
    spec = {"b": Feature("int64"), "a": Feature("float32")}
    features = {"a": [1.0], "b": [2]}
    assert list(one(tmp_path, features, spec).items()) == [("b", 2), ("a", 1.0)]
    spec = {**spec, "absent": Feature("int64")}
    assert one(tmp_path, features, spec, outputs=["a", "b"]) == (1.0, 2)


def test_arrays_are_ones_own(tmp_path):
    spec = {"a": Feature("uint8", 4, stored="raw"), "b": Feature("int64", 2, default=(1, 2))}
    source = open_records(file_of(tmp_path, [encoded({"a": [b"abcd"]})]), decode=spec)
    first = source[0]
    first["a"][:] = first["b"][:] = 0
    np.testing.assert_array_equal(source[0]["a"], np.frombuffer(b"abcd", np.uint8))
    np.testing.assert_array_equal(source[0]["b"], [1, 2])


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        (Feature("int32", default=-1), np.int32(-1)),
        (Feature("float32", (2,), default=0.5), np.array([0.5, 0.5], np.float32)),
        (Feature("uint8", (2,), stored="raw", default=[1, 2]), np.array([1, 2], np.uint8)),
        (Feature("int64", (None, 2), default=7), np.zeros((0, 2), np.int64)),
        (Feature(str, default="none"), "none"),
        (FixedLenFeature([2], "string", ["a", "b"]), np.array([b"a", b"b"], object)),
        (FixedLenFeature(2, "int64", [1, 2]), np.array([1, 2])),
        (FixedLenFeature([], "string", "a"), b"a"),
    ],
)
@pytest.mark.parametrize("features", [{}, {"a": []}], ids=["no feature", "one without a list"])
def test_default_of_a_missing_feature(tmp_path, features, feature, expected):
    assert exact(one(tmp_path, features, {"a": feature})["a"]) == exact(expected)


@pytest.mark.parametrize(
    ("features", "feature", "expected", "found"),
    [
        ({"b": [1]}, Feature("int64"), "feature 'a' with values", "the features b"),
        ({"a": []}, Feature("int64"), "feature 'a' with values", "one without values"),
        ({"a": [1.0]}, Feature("int64"), "'a' with an int64_list", "a float_list"),
        ({"a": [1]}, Feature("u1", stored="raw"), "'a' with a bytes_list", "an int64_list"),
        ({"a": [1, 2]}, Feature("int64"), "1 values, int64 ()", "2 values"),
        ({"a": [1, 2, 3]}, Feature("int64", (None, 2)), "a multiple of 2 values", "3 values"),
        ({"a": [b"xyz"]}, Feature("<u2", stored="raw"), "2 bytes, uint16 ()", "3 bytes"),
        ({"a": [b"x", b"y"]}, Feature("u1", stored="raw"), "one value", "2 values"),
        ({"a": [256]}, Feature("uint8"), "with values of uint8", "256"),
        ({"a": [b"\xff"]}, Feature(str), "with UTF-8", "invalid start byte"),
        ({"a": [b"\xff"]}, ImageDecoder(), "feature 'a' with", ""),
        ({}, ImageDecoder(), "feature 'a' with values", "the features none"),
    ],
)
def test_another_feature_is_an_error(tmp_path, features, feature, expected, found):
    error = error_of(tmp_path, features, {"a": feature})
    assert expected in error.expected
    assert found in error.found


def test_error_names_a_renamed_feature(tmp_path):
    with pytest.raises(RecordError, match=r"feature 'a' \(stored as 'b/c'\)"):
        one(tmp_path, {}, {"a": Feature("int64")}, fields={"a": "b/c"})


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "message"),
    [
        (("object",), {}, TypeError, "dtype must be of numbers.*got 'object'"),
        (("complex64",), {}, ValueError, 'dtype must be .*stored="raw" takes them'),
        (("int64", (1.5,)), {}, TypeError, "shape must be whole numbers"),
        (("int64", (2, None)), {}, ValueError, "shape may have None, .* only first"),
        (("int64", (2, 0)), {}, ValueError, "shape must have numbers >= 1"),
        (("int64", (2**20, 2**40)), {}, ValueError, "shape must be of at most 2 GiB"),
        (("int64",), {"stored": "bytes"}, ValueError, "stored must be .* got 'bytes'"),
        ((bytes,), {"stored": "raw"}, ValueError, 'stored="raw" must have a dtype of numbers'),
        (("uint8",), {"default": 256}, ValueError, "default must be of uint8 .* got 256"),
        (("float32",), {"default": 1e300}, ValueError, "default must be of float32"),
        ((bytes,), {"default": "x"}, TypeError, "default must be of bytes .* got 'x'"),
        (("int64", 3), {"default": [1, 2]}, ValueError, r"default must be of \(3,\), got"),
        (("int64", None), {"default": [1, 2]}, ValueError, "default must be one value"),
    ],
)
def test_wrong_features_are_refused(arguments, options, kind, message):
    with pytest.raises(kind, match=message):
        Feature(*arguments, **options)


@pytest.mark.parametrize(
    ("decode", "options", "kind", "message"),
    [
        ({}, {}, ValueError, "decode must name at least one feature"),
        ({1: INT64}, {}, TypeError, "decode must have strings"),
        ({"a": "int64"}, {}, TypeError, r"decode\['a'\] must say what the feature is"),
        ({"a": FixedLenFeature([], "int32")}, {}, ValueError, "of float32, int64 or string"),
        ({"a": FixedLenFeature([None], "int64")}, {}, ValueError, "must have a shape of numbers"),
        ({"a": RaggedFeature("int64", "v", ["p"])}, {}, ValueError, "without partitions"),
        ({"a": SparseFeature("i", "v", "int64", 3)}, {}, ValueError, "Feature: give its index"),
        (ONE, {"outputs": ("a", "a")}, ValueError, "outputs must name features, each once"),
        (ONE, {"outputs": ("b",)}, ValueError, r"outputs must be names of decode \('a'\), got 'b'"),
        (ONE, {"outputs": "a"}, TypeError, "outputs must be names in the order of a sample"),
        (ONE, {"fields": {"b": "c"}}, ValueError, "must rename features of decode, got 'b'"),
        (ONE, {"fields": ["b"]}, TypeError, "fields must map names"),
        (ONE, {"fields": {"a": "\ud800"}}, ValueError, r"UTF-8 has.* got '\\ud800'"),
        ("example", {"outputs": ("a",)}, ValueError, "outputs must go with decode={"),
        ("images", {}, ValueError, "decode must be None, \"image\", .* got 'images'"),
        (5, {}, ValueError, "decode must be .* got 5"),
        (None, {"fields": {"a": "b"}}, ValueError, 'fields are for "image", "example" .* got None'),
        (len, {"fields": {"a": "b"}}, ValueError, "fields are for .* got <built-in"),
        ("example", {"fields": ["a"]}, TypeError, r"fields must map names .* \['a'\]"),
        ("image", {"fields": {"text": "b"}}, ValueError, "fields must rename .* 'text'"),
        (None, {"verify": "no"}, TypeError, r"verify must be True or False, got 'no'"),
        (None, {"format": "rec"}, ValueError, r'format must be "auto", "recordio" or .* got'),
    ],
)
def test_wrong_arguments_are_refused_before_opening(decode, options, kind, message):
    with pytest.raises(kind, match=message):
        open_records("no such file", decode=decode, **options)


def test_features_compare_and_pickle():
    feature = Feature(np.uint8, [2, 2], stored="raw", default=[[1, 2], [3, 4]])
    assert feature == Feature("uint8", (2, 2), stored="raw", default=np.arange(1, 5).reshape(2, 2))
    assert pickle.loads(pickle.dumps(feature)) == feature
    assert hash(feature) == hash(dataclasses.replace(feature))
    assert feature != Feature("uint8", (2, 2), stored="raw")


def test_ragged_feature_is_renamed_once(tmp_path):
    spec = {"a": RaggedFeature("int64", "v")}
    assert one(tmp_path, {"v": [1, 2]}, spec)["a"].tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"fields must not rename 'a'.* value_key='v', got 'w'"):
        one(tmp_path, {}, spec, fields={"a": "w"})


def test_default_of_64_bits_stays():
    assert Feature("uint64", 2, default=[1, 2**63 + 1]).default == (1, 2**63 + 1)


RANDOM = ImageDecoder(16, crop="random_resized", flip=True)


@pytest.mark.parametrize("decoder", [ImageDecoder(16), RANDOM])
def test_images_batch_is_its_samples(tmp_path, decoder):
    """One feature may be two images, which are cropped alike."""
    images = [picture_file(picture(20 + number, 30), "JPEG") for number in range(6)]
    path = file_of(tmp_path, [encoded({"image": [each], "label": [1]}) for each in images])
    spec = {"image": decoder, "again": decoder, "label": Feature("int64")}
    source = open_records(path, decode=spec, fields={"again": "image"})
    assert_batches_are_samples(source, 4)
    batch = batch_of(plan_of(source, 6))
    np.testing.assert_array_equal(batch["image"], batch["again"])


def test_damaged_image_of_a_batch_is_named(tmp_path):
    path = file_of(tmp_path, [encoded({"image": [b"\xff\xd8\xff no"]})])
    with pytest.raises(RecordError, match="record 0, byte 0: expected feature 'image' with"):
        batch_of(plan_of(open_records(path, decode={"image": ImageDecoder(16)}), 1))


def test_varying_lengths_are_filled_up(tmp_path):
    path = file_of(tmp_path, [encoded({"a": list(range(n)), "b": [n]}) for n in range(4)])
    spec = {"a": Feature("int32", (None,), default=-1), "b": Feature("int64")}
    first, last = epoch_of(plan_of(open_records(path, decode=spec), 3))
    assert first["a"].tolist() == [[-1, -1], [0, -1], [0, 1]]
    assert first["a"].dtype == np.int32
    assert last["a"].tolist() == [[0, 1, 2]]


# --- batches ---


# Without the kernel, a batch is put together of samples, whatever these hold.
with_and_without_kernel = pytest.mark.usefixtures("gatherer")
SPEC: dict[str, Any] = {
    "image": Feature("uint8", (2, 3, 4), stored="raw"),
    "label": Feature("int32"),
    "weight": Feature("float32"),
    "marks": Feature("int64", (3,)),
}


def usual(number: int) -> bytes:
    return encoded(sample(number))


def long_size(number: int) -> bytes:
    """A size in more bytes than it needs."""
    features = b"".join(entry(name, listed(values)) for name, values in sample(number).items())
    return b"\x0a" + bytes([len(features) & 127 | 128, len(features) >> 7 | 128, 0]) + features


# Others are in test_hostile_example_is_the_same_in_a_batch.
WAYS: dict[str, Callable[[int], bytes]] = {
    "usual": usual,
    "in two orders": lambda n: encoded(dict(sorted(sample(n).items(), reverse=n % 3 == 0))),
    "with others": lambda n: encoded({**sample(n), "name": [b"n" * (n % 7)], "size": [n]}),
    "not packed": lambda n: encoded(sample(n), packed=False),
    "with an unknown field": lambda n: usual(n) + message(9, b"xyz"),
    "with a long size": long_size,
}


@with_and_without_kernel
@pytest.mark.parametrize("way", WAYS)
def test_batches_are_their_samples(tmp_path, way):
    source = open_records(file_of(tmp_path, map(WAYS[way], range(90))), decode=SPEC)
    for number, found in enumerate(source):
        expected = sample(number)
        assert found["image"].tobytes() == expected["image"][0]
        assert found["marks"].tolist() == expected["marks"]
        assert (found["label"], found["weight"]) == (*expected["label"], *expected["weight"])
    assert_batches_are_samples(source)


@with_and_without_kernel
def test_missing_feature_has_its_default(tmp_path):
    marked = ({"marks": [n, 2, 3]} if n % 3 else {} for n in range(40))
    path = file_of(tmp_path, [encoded({"label": [n], **each}) for n, each in enumerate(marked)])
    marks, none = Feature("int64", (3,), default=(1, -1, 0)), Feature("float32", 2, default=0.5)
    source = open_records(path, decode={"marks": marks, "label": Feature("int64"), "none": none})
    assert source[3]["marks"].tolist() == [1, -1, 0]
    assert source[3]["none"].tolist() == [0.5, 0.5]
    assert_batches_are_samples(source)
    assert_batches_are_samples(open_records(path, decode={"none": none}))


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
    answered = plan_of(source, 2, on_error=lambda error, number: {"a": 9})
    assert batch_of(answered, 0, 1)["a"].tolist() == [255, 9]


@with_and_without_kernel
@pytest.mark.parametrize("sample", [(1, 2), {"a": 1, "c": 2}])
def test_on_error_gives_a_sample_of_the_same_names(tmp_path, sample):
    path = file_of(tmp_path, [encoded({"a": [300], "b": [2]})])
    source = open_records(path, decode={"b": Feature("uint8"), "a": Feature("uint8")})
    plan = plan_of(source, 1, on_error=lambda error, number: sample)
    with pytest.raises(ValueError, match=r"others, \{'b': uint8\(\), 'a': uint8\(\)\}, got"):
        batch_of(plan)


def test_damaged_byte_makes_what_it_makes_one_by_one(tmp_path):
    """Without a CRC: what is gathered is what is read by itself, or both are errors."""
    payload = usual(1)
    records = []
    for place, mask in itertools.product(range(len(payload)), (1, 8, 128)):
        changed = bytearray(payload)
        changed[place] ^= mask
        records += [payload, bytes(changed), payload]
    source = open_records(file_of(tmp_path, records), decode=SPEC, verify=False)
    for index in range(len(records) // 3):
        assert_batch_is_its_outcomes(source, 3, index)


@pytest.mark.parametrize("asked", ["label", "another"])
def test_empty_last_entry_is_refused(tmp_path, asked):
    """TensorFlow passes over that entry, and Protocol Buffers takes it; whoever asked for it."""
    payload = assembled([entry("label", listed([7])), entry("label", b"")])
    source = open_records(file_of(tmp_path, [payload]), decode={asked: Feature("int64", default=5)})
    with pytest.raises(RecordError, match="values in the last entry of b'label'"):
        source[0]
    with pytest.raises(RecordError, match="values in the last entry of b'label'"):
        batch_of(plan_of(source, 1))


@pytest.mark.parametrize(
    ("second", "is_an_error"),
    [
        (Feature("int16", default=7), False),
        (Feature("int64", 1, default=3), False),
        (Feature("float32", default=0.5), False),
        (Feature(bytes, default=b""), True),
        (Feature("int64", 2, default=(1, 2)), True),
    ],
)
def test_two_names_of_one_feature(tmp_path, second, is_an_error):
    spec, fields = {"x": Feature("int64", default=-1), "y": second}, {"x": "a", "y": "a"}
    path = file_of(tmp_path, [encoded({}), encoded({"a": [202]}), encoded({})])
    source = open_records(path, decode=spec, fields=fields)
    np.testing.assert_array_equal(source[0]["y"], second.default)
    assert isinstance(outcome(source, 1), str) == is_an_error
    assert_batch_is_its_outcomes(source, 3)


@pytest.mark.parametrize(("dtype", "last"), [("float32", 2**24), ("float64", 2**53)])
def test_integers_are_floats_if_these_hold_them(tmp_path, dtype, last):
    path = file_of(tmp_path, [encoded({"a": [last]}), encoded({"a": [last + 1]})])
    source = open_records(path, decode={"a": Feature(dtype)})
    assert (source[0]["a"], source[0]["a"].dtype) == (last, dtype)
    assert f"values of {dtype}, found {last + 1}" in outcome(source, 1)
    assert_batch_is_its_outcomes(source, 2)


DIGIT = {"image": Feature("uint8", (2, 3), stored="raw"), "label": Feature("float32")}


def digit(number: int, label: Any) -> bytes:
    return irheader.pack(label, number, bytes(range(number, number + 6)))


def headers(folder: Path, payloads: Iterable[bytes], spec: Any) -> Any:
    """A source of records with an IRHeader."""
    return open_records(write(folder / "a.rec", "recordio", payloads), decode=spec)


@pytest.mark.parametrize(
    ("label", "feature", "expected"),
    [
        (3, Feature("int64"), np.int64(3)),
        ([3], Feature("uint8"), np.uint8(3)),
        (0.5, Feature("float64"), np.float64(0.5)),
        ([1, 2], Feature("float32", 2), np.array([1, 2], np.float32)),
        ([1, 2, 3, 4], Feature("float32", (None, 2)), np.array([[1, 2], [3, 4]], np.float32)),
        (np.zeros(0), Feature("float32", (None, 5)), np.zeros((0, 5), np.float32)),
        (4, Feature("int32", (None,)), np.array([4], np.int32)),
    ],
)
def test_header_labels_of_dtype_and_shape(tmp_path, label, feature, expected):
    source = headers(tmp_path, [digit(1, label)], {"label": feature})
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
    source = headers(tmp_path, [digit(1, label)] * 2, spec)
    for read in (lambda: source[1], lambda: batch_of(plan_of(source, 2))):
        with pytest.raises(RecordError) as raised:
            read()
        assert expected in raised.value.expected
        assert found in raised.value.found


@pytest.mark.parametrize(("name", "number"), [("id", 2**63), ("id2", 2**64 - 1)])
def test_header_id_that_no_int64_holds(tmp_path, name, number):
    numbers = [2**63 - 1, 5, number]
    payloads = [irheader.HEADER.pack(0, 1.0, each, each) + b"a" for each in numbers]
    source = headers(tmp_path, payloads, {name: Feature("int64")})
    assert batch_of(plan_of(source, 2))[name].tolist() == numbers[:2]
    for read in (lambda: source[2], lambda: batch_of(plan_of(source, 3))):
        with pytest.raises(RecordError) as raised:
            read()
        assert raised.value.record == 2
        assert f'feature {name!r} with values of int64 (Feature("uint64")' in raised.value.expected
        assert raised.value.found == str(number)
    wide = headers(tmp_path, payloads, {name: Feature("uint64")})
    assert [wide[2][name], *batch_of(plan_of(wide, 3))[name].tolist()] == [number, *numbers]


@with_and_without_kernel
@pytest.mark.parametrize("label", [Feature("float32"), Feature("int64")])
def test_header_batches_are_their_samples(tmp_path, label):
    """Also where labels are written in two ways."""
    payloads = [digit(number, [number % 7] if number % 3 else number % 7) for number in range(40)]
    source = headers(tmp_path, payloads, {**DIGIT, "label": label, "id": Feature("uint64")})
    assert source[9]["image"].tolist() == [[9, 10, 11], [12, 13, 14]]
    assert (source[9]["label"], source[9]["id"]) == (2, 9)
    assert_batches_are_samples(source)


def test_examples_in_recordio(tmp_path):
    payloads = [encoded({"label": [number], "image": [bytes(6)]}) for number in range(3)]
    source = headers(tmp_path, payloads, {**DIGIT, "label": Feature("int64")})
    assert batch_of(plan_of(source, 3))["label"].tolist() == [0, 1, 2]


@with_and_without_kernel
def test_files_of_both_formats(tmp_path):
    path = file_of(tmp_path, [encoded({"image": [bytes(6)], "label": [5]})])
    other = write(tmp_path / "a.rec", "recordio", [digit(n, n) for n in range(3)])
    source = open_records([path, other], decode={**DIGIT, "label": Feature("int64")})
    assert batch_of(plan_of(source, 4))["label"].tolist() == [5, 0, 1, 2]


@settings(max_examples=examples(100))
@given(data=st.data())
def test_header_damage_is_an_error_or_the_same(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged")
    path = write(folder / "a.rec", "recordio", [digit(number, [number, 1]) for number in range(3)])
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
    assert_batch_is_its_outcomes(source, len(source))
