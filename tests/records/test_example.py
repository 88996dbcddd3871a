"""tf.train.Example: golden bytes, TensorFlow's own, packed or not, damage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import ContentError
from adapters.records import example
from tests.records.materials import flips

# Example { Features { entry { name "a", Feature { ... } } } }
GOLDEN = {
    "bytes": ({"a": [b"xy"]}, "0a0d 0a0b 0a0161 1206 0a04 0a027879"),
    "floats": ({"a": [1.0, -2.0]}, "0a13 0a11 0a0161 120c 120a 0a08 0000803f 000000c0"),
    "integers": ({"a": [1, 300]}, "0a0e 0a0c 0a0161 1207 1a05 0a03 01 ac02"),
    "a negative one": ({"a": [-1]}, "0a15 0a13 0a0161 120e 1a0c 0a0a ffffffffffffffffff01"),
    "none": ({"a": []}, "0a07 0a05 0a0161 1200"),
    "no feature": ({}, "0a00"),
}
golden = pytest.mark.parametrize(
    ("features", "content"),
    [(features, bytes.fromhex(content)) for features, content in GOLDEN.values()],
    ids=list(GOLDEN),
)
_INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1, -1, 0])
_VALUES = (
    st.lists(st.binary(max_size=20), min_size=1, max_size=5)
    | st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=5)
    | st.lists(_INT64, min_size=1, max_size=5)
)
any_features = st.dictionaries(st.text(max_size=8), _VALUES, max_size=5)


def plain(features: Any) -> dict[str, list[Any]]:
    """Python's own values."""
    return {
        name: values if isinstance(values, list) else values.tolist()
        for name, values in features.items()
    }


def nested(feature: bytes) -> bytes:
    """An Example of one feature "a", of fewer than 100 bytes."""
    for head in (b"\x0a\x01a\x12", b"\x0a", b"\x0a"):
        feature = head + bytes([len(feature)]) + feature
    return feature


@golden
def test_features_are_written_as_these_bytes(features, content):
    assert example.encode(features) == content


@golden
def test_features_are_read_from_these_bytes(features, content):
    assert plain(example.decode(content)) == features


@given(any_features)
def test_any_features_come_back(features):
    assert plain(example.decode(example.encode(features))) == features


@given(features=any_features)
def test_tensorflow_reads_what_we_write(tf, features):
    message = tf.train.Example.FromString(example.encode(features))
    found = {
        name: list(getattr(feature, feature.WhichOneof("kind")).value)
        for name, feature in message.features.feature.items()
    }
    assert found == features


@given(features=any_features)
def test_we_read_what_tensorflow_writes(tf, features):
    lists = {bytes: "bytes_list", float: "float_list", int: "int64_list"}
    message = tf.train.Example()
    for name, values in features.items():
        getattr(message.features.feature[name], lists[type(values[0])]).value.extend(values)
    assert plain(example.decode(message.SerializeToString())) == features


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        ("120a 0d0000803f 0d000000c0", [1.0, -2.0]),
        ("1205 0d0000803f", [1.0]),
        ("1a05 0801 08ac02", [1, 300]),
        ("1a0b 08ffffffffffffffffff01", [-1]),
        ("1a0b 0880808080808080808001", [-(2**63)]),
        ("1a0a 08ffffffffffffffff7f", [2**63 - 1]),
    ],
)
def test_numbers_that_are_not_packed_are_read(feature, expected):
    assert plain(example.decode(nested(bytes.fromhex(feature)))) == {"a": expected}


UNKNOWN = ["1005", "19 0102030405060708", "22 03 010203", "2d 01020304", "fa01 00"]
UNKNOWN_IDS = ["varint", "64 bits", "bytes", "32 bits", "a number of two bytes"]


@pytest.mark.parametrize("unknown", UNKNOWN, ids=UNKNOWN_IDS)
def test_unknown_fields_beside_features_are_skipped(unknown):
    extra = bytes.fromhex(unknown)
    content = extra + nested(bytes.fromhex("0a03 0a0178")) + extra
    assert example.decode(content) == {"a": [b"x"]}


@pytest.mark.parametrize(
    "feature",
    [
        "120b 0a040000803f 0d000000c0",
        "1a06 0a0101 08ac02",
        "1a06 0a0101 0a0102",
        "1a03 0a0101 1a03 0a0102",
        *(f"0a03 0a0178 {unknown}" for unknown in UNKNOWN),
    ],
)
def test_what_protobuf_would_merge_or_skip_and_tensorflow_reads_otherwise_is_an_error(feature):
    with pytest.raises(ContentError):
        example.decode(nested(bytes.fromhex(feature)))


def test_a_name_whose_last_entry_is_empty_is_an_error():
    features = b"".join(nested(bytes.fromhex(each)) for each in ("1a03 0a0101", ""))
    with pytest.raises(ContentError, match="values in the last entry of b'a'"):
        example.decode(features)


def test_the_last_of_two_features_of_one_name_counts():
    one, two = (bytes.fromhex(f"0a0161 1205 0a03 0a01{value}") for value in ("78", "79"))
    both = b"".join(b"\x0a" + bytes([len(entry)]) + entry for entry in (one, two))
    assert example.decode(b"\x0a" + bytes([len(both)]) + both) == {"a": [b"y"]}


@pytest.mark.parametrize(
    ("value", "kind"),
    [(b"x", list), ("é", list), (1, np.int64), (True, np.int64), (0.5, np.float32)],
)
def test_a_single_value_is_a_list_of_one(value, kind):
    values = example.decode(example.encode({"a": value}))["a"]
    assert len(values) == 1
    assert getattr(values, "dtype", list) == kind


def test_the_order_of_names_does_not_change_the_bytes():
    assert example.encode({"b": 1, "a": 2}) == example.encode({"a": 2, "b": 1})


def test_a_value_of_another_kind_is_refused():
    with pytest.raises(TypeError, match=r"feature 'a' must be .* got complex128"):
        example.encode({"a": 1j})


@pytest.mark.parametrize(
    "content",
    ["0b", "0a", "0a05", "0a80", "0affffffffffffffffffff01", "02", "0e00", "0a0103"],
)
def test_what_is_no_message_is_an_error(content):
    with pytest.raises(ContentError):
        example.decode(bytes.fromhex(content))


def test_floats_that_are_not_whole_are_an_error():
    with pytest.raises(ContentError, match="floats of 4 bytes each, found 3 bytes"):
        example.decode(nested(bytes.fromhex("1205 0a03 010203")))


MANY = example.encode({"a": [b"xy", b""], "b": [1, -1], "c": [0.5]})


def test_an_example_cut_anywhere_is_an_error():
    for size in range(1, len(MANY)):
        with pytest.raises(ContentError):
            example.decode(MANY[:size])


def test_an_example_with_any_bit_flipped_is_one_or_an_error():
    """No checksum covers it; numbers of one byte may even be as right unpacked as packed."""
    for _, flipped in flips(MANY):
        assert _outcome(flipped) in (dict, ContentError)


@given(st.binary(max_size=60))
def test_any_bytes_are_an_example_or_an_error(content):
    assert _outcome(content) in (dict, ContentError)


def _outcome(content: bytes) -> type:
    try:
        return type(example.decode(content))
    except ContentError as error:
        return type(error)


@pytest.mark.parametrize(
    ("feature", "value"),
    [
        ("1a02 0807", 7),
        ("1a03 08ac02", 300),
        ("1a0b 08ffffffffffffffffff01", -1),
        ("1a03 0a0107", 7),
    ],
)
def test_one_integer_may_be_written_by_itself(feature, value):
    """Not packed, as protobuf has it where a schema doesn't ask for it."""
    assert plain(example.decode(nested(bytes.fromhex(feature)))) == {"a": [value]}


@pytest.mark.parametrize("feature", ["1a01 08", "1a01 0a", "1a02 0a05", "0a02 0aff", "0a03 0a0561"])
def test_a_list_whose_size_is_cut_or_too_large_is_an_error(feature):
    with pytest.raises(ContentError):
        example.decode(nested(bytes.fromhex(feature)))


@pytest.mark.parametrize("tag", [b"\x8a\x00", b"\x8a\x80\x00"])
def test_a_tag_that_is_longer_than_it_need_be_is_an_error(tag):
    """TensorFlow takes it for another field, Protocol Buffers doesn't."""
    with pytest.raises(ContentError, match="shortest form"):
        example.decode(tag + example.encode({"a": [1]})[1:])


def test_a_field_that_only_looks_like_a_size_is_skipped():
    fixed64 = b"\x09" + b"\xff" * 8
    of_a_large_number = b"\x81\x80\x01" + b"\xff" * 8
    content = fixed64 + of_a_large_number + example.encode({"a": [1]})
    assert example.decode(content)["a"].tolist() == [1]
