"""Typed features: what ``decode={name: Feature}`` makes of one record, and what it refuses."""

from __future__ import annotations

import dataclasses
import pickle
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import Feature, ImageDecoder, RecordError, open_records
from adapters.sources.features import field_of
from tests.images.pictures import encoded as picture_file
from tests.images.pictures import picture
from tests.plans import batch_of, epoch_of, plan_of
from tests.sources.example_files import encoded, file_of
from tests.sources.record_files import assert_batches_are_samples


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
    ],
)
def test_values_become_an_array(tmp_path, values, feature, expected):
    found = one(tmp_path, {"a": values, "other": [b"x"]}, {"a": feature})["a"]
    np.testing.assert_array_equal(found, expected, strict=True)
    assert found.dtype.isnative
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("values", "feature", "expected"),
    [
        ([b"xy"], Feature(bytes), b"xy"),
        (["é".encode()], Feature(str), "é"),
        ([b"x", b"y"], Feature("bytes", 2), [b"x", b"y"]),
        ([b"x", b"y"], Feature("str", None), ["x", "y"]),
    ],
)
def test_texts_are_pythons_own(tmp_path, values, feature, expected):
    found = one(tmp_path, {"a": values}, {"a": feature})["a"]
    assert (found.tolist() if isinstance(found, np.ndarray) else found) == expected


def test_outputs_order_a_tuple(tmp_path):
    spec = {"b": Feature("int64"), "a": Feature("float32")}
    features = {"a": [1.0], "b": [2], "c": [3]}
    assert list(one(tmp_path, features, spec).items()) == [("b", 2), ("a", 1.0)]
    spec = {**spec, "absent": Feature("int64")}
    assert one(tmp_path, features, spec, outputs=["a", "b"]) == (1.0, 2)


def test_fields_rename_features(tmp_path):
    spec = {"label": Feature("int64")}
    found = one(tmp_path, {"image/class": [2]}, spec, fields={"label": "image/class"})
    assert found == {"label": 2}


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
    ],
)
@pytest.mark.parametrize("features", [{}, {"a": []}], ids=["no feature", "one without a list"])
def test_default_of_a_missing_feature(tmp_path, features, feature, expected):
    found = one(tmp_path, features, {"a": feature})["a"]
    np.testing.assert_array_equal(found, expected, strict=True)


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
    source = open_records(
        file_of(tmp_path, [encoded({})]), decode={"a": Feature("int64")}, fields={"a": "b/c"}
    )
    with pytest.raises(RecordError, match=r"feature 'a' \(stored as 'b/c'\)"):
        source[0]


def test_what_is_no_example_is_an_error(tmp_path):
    with pytest.raises(RecordError, match=r"record 0, byte 0: expected a tf\.train\.Example"):
        open_records(file_of(tmp_path, [b"text"]), decode={"a": Feature("int64")})[0]


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "message"),
    [
        (("object",), {}, TypeError, "dtype must be of numbers.*got 'object'"),
        (("complex64",), {}, ValueError, 'dtype must be .*stored="raw" takes them'),
        (("int64", (1.5,)), {}, TypeError, "shape must be whole numbers"),
        (("int64", (2, None)), {}, ValueError, "shape must have None.* first or not"),
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
    ("options", "kind", "message"),
    [
        ({"decode": {}}, ValueError, "decode must name at least one feature"),
        ({"decode": {1: Feature("int64")}}, TypeError, "decode must have strings"),
        ({"decode": {"a": "int64"}}, TypeError, r"decode\['a'\] must say what the feature is"),
        ({"outputs": ("a", "a")}, ValueError, "outputs must name features, each once"),
        ({"outputs": ("b",)}, ValueError, r"outputs must be names of decode \('a'\), got 'b'"),
        ({"outputs": "a"}, TypeError, "outputs must be names in the order of a sample"),
        ({"fields": {"b": "c"}}, ValueError, "fields must rename features of decode, got 'b'"),
        ({"fields": ["b"]}, TypeError, "fields must map names"),
        ({"fields": {"a": "\ud800"}}, ValueError, r"must be text that UTF-8 has.* got '\\ud800'"),
        ({"decode": "example", "outputs": ("a",)}, ValueError, "outputs must go with decode={"),
    ],
)
def test_wrong_arguments_are_refused(options, kind, message):
    with pytest.raises(kind, match=message):
        open_records("no such file", **{"decode": {"a": Feature("int64")}, **options})


def test_features_compare_and_pickle():
    feature = Feature(np.uint8, [2, 2], stored="raw", default=[[1, 2], [3, 4]])
    assert feature == Feature("uint8", (2, 2), stored="raw", default=np.arange(1, 5).reshape(2, 2))
    assert pickle.loads(pickle.dumps(feature)) == feature
    assert hash(feature) == hash(dataclasses.replace(feature))
    assert feature != Feature("uint8", (2, 2), stored="raw")


FixedLenFeature = namedtuple("FixedLenFeature", "shape dtype default_value", defaults=[None])
RaggedFeature = namedtuple("RaggedFeature", "dtype value_key partitions", defaults=[None, ()])
SparseFeature = namedtuple("SparseFeature", "index_key value_key dtype size")


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (FixedLenFeature([], "int32"), ValueError, "must be of float32, int64 or string"),
        (FixedLenFeature([None], "int64"), ValueError, "must have a shape of numbers"),
        (RaggedFeature("int64", "v", ["p"]), ValueError, "RaggedFeature without partitions"),
        (SparseFeature("i", "v", "int64", 3), ValueError, "got a SparseFeature: give its index"),
    ],
)
def test_tensorflow_specification_is_refused(given, kind, message):
    with pytest.raises(kind, match=message):
        field_of("a", "a", given)


@pytest.mark.parametrize(
    ("given", "default"),
    [
        (FixedLenFeature([2], "string", ["a", "b"]), [b"a", b"b"]),
        (FixedLenFeature(2, "int64", [1, 2]), [1, 2]),
        (FixedLenFeature([], "string", "a"), b"a"),
    ],
)
def test_tensorflow_defaults(given, default):
    found = field_of("a", "a", given).default
    assert found is not None
    assert found.tolist() == default


def test_ragged_feature_is_renamed_once(tmp_path):
    with pytest.raises(ValueError, match=r"fields must not rename 'a'.* value_key='v', got 'w'"):
        field_of("a", "w", RaggedFeature("int64", "v"))
    found = one(tmp_path, {"v": [1, 2]}, {"a": RaggedFeature("int64", "v")})
    assert found["a"].tolist() == [1, 2]


def test_default_of_64_bits_stays():
    assert Feature("uint64", 2, default=[1, 2**63 + 1]).default == (1, 2**63 + 1)


def images_file(folder: Path, count: int = 6) -> Path:
    def features(number: int) -> dict[str, Any]:
        image = picture_file(picture(20 + number, 30), "JPEG")
        mask = picture_file(picture(20 + number, 30) // 2, "PNG")
        return {"image": [image], "mask": [mask], "label": [number]}

    return file_of(folder, [encoded(features(number)) for number in range(count)])


RANDOM = ImageDecoder(16, crop="random_resized", flip=True)


@pytest.mark.parametrize("decoder", [ImageDecoder(16), RANDOM])
def test_images_batch_is_its_samples(tmp_path, decoder):
    spec = {"image": decoder, "label": Feature("int64")}
    assert_batches_are_samples(open_records(images_file(tmp_path), decode=spec), 4)


def test_images_of_a_sample_are_cropped_alike(tmp_path):
    spec = {"image": RANDOM, "mask": RANDOM, "again": RANDOM}
    source = open_records(images_file(tmp_path), decode=spec, fields={"again": "image"})
    batch = batch_of(plan_of(source, 6))
    np.testing.assert_array_equal(batch["image"], batch["again"])
    for number in range(6):
        sample = source[number]
        np.testing.assert_array_equal(sample["image"], sample["again"])
        halves = sample["image"] // 2 - sample["mask"].astype(int)
        assert np.abs(halves).mean() < 5  # JPEG and PNG of the same box.


def test_damaged_image_is_named(tmp_path):
    path = file_of(tmp_path, [encoded({"image": [b"\xff\xd8\xff no"], "label": [1]})])
    source = open_records(path, decode={"image": ImageDecoder(16), "label": Feature("int64")})
    with pytest.raises(RecordError, match="record 0, byte 0: expected feature 'image' with"):
        batch_of(plan_of(source, 1))


def test_varying_lengths_are_filled_up(tmp_path):
    path = file_of(tmp_path, [encoded({"a": list(range(n)), "b": [n]}) for n in range(4)])
    spec = {"a": Feature("int32", (None,), default=-1), "b": Feature("int64")}
    first, last = epoch_of(plan_of(open_records(path, decode=spec), 3))
    assert first["a"].tolist() == [[-1, -1], [0, -1], [0, 1]]
    assert first["a"].dtype == np.int32
    assert last["a"].tolist() == [[0, 1, 2]]


def test_texts_are_batches_of_objects(tmp_path):
    path = file_of(tmp_path, [encoded({"a": [b"x" * n]}) for n in range(3)])
    batch = batch_of(plan_of(open_records(path, decode={"a": Feature(str)}), 3))
    assert batch["a"].tolist() == ["", "x", "xx"]
