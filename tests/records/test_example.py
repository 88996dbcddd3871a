"""tf.train.Example and IRHeader: golden bytes, the frameworks' own, packed or not, damage."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import ContentError
from adapters.records import example, irheader
from tests.records.materials import flips

# Example { Features { entry { name "a", Feature { ... } } } }
EXAMPLES = {
    "bytes": ({"a": [b"xy"]}, "0a0d 0a0b 0a0161 1206 0a04 0a027879"),
    "floats": ({"a": [1.0, -2.0]}, "0a13 0a11 0a0161 120c 120a 0a08 0000803f 000000c0"),
    "integers": ({"a": [1, 300]}, "0a0e 0a0c 0a0161 1207 1a05 0a03 01 ac02"),
    "a negative one": ({"a": [-1]}, "0a15 0a13 0a0161 120e 1a0c 0a0a ffffffffffffffffff01"),
    "none": ({"a": []}, "0a07 0a05 0a0161 1200"),
    "no feature": ({}, "0a00"),
}
_INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1, -1, 0])
_VALUES = (
    st.lists(st.binary(max_size=20), min_size=1, max_size=5)
    | st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=5)
    | st.lists(_INT64, min_size=1, max_size=5)
)
any_features = st.dictionaries(st.text(max_size=8), _VALUES, max_size=5)


def plain(features: Any) -> dict[str, list[Any]]:
    return {
        name: values if isinstance(values, list) else values.tolist()
        for name, values in features.items()
    }


def nested(feature: bytes) -> bytes:
    """An Example of one feature "a", of fewer than 100 bytes."""
    for head in (b"\x0a\x01a\x12", b"\x0a", b"\x0a"):
        feature = head + bytes([len(feature)]) + feature
    return feature


@pytest.mark.parametrize(("features", "content"), list(EXAMPLES.values()), ids=list(EXAMPLES))
def test_example_golden_bytes(features, content):
    assert example.encode(features) == bytes.fromhex(content)
    assert plain(example.decode(bytes.fromhex(content))) == features


@given(any_features)
def test_example_comes_back(features):
    assert plain(example.decode(example.encode(features))) == features


@given(features=any_features)
def test_example_is_tensorflows(tf, features):
    message = tf.train.Example.FromString(example.encode(features))
    kinds = {name: each.WhichOneof("kind") for name, each in message.features.feature.items()}
    read = {name: getattr(message.features.feature[name], kinds[name]).value for name in kinds}
    assert {name: list(values) for name, values in read.items()} == features
    assert plain(example.decode(message.SerializeToString())) == features


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        ("120a 0d0000803f 0d000000c0", [1.0, -2.0]),
        ("1205 0d0000803f", [1.0]),
        ("1a05 0801 08ac02", [1, 300]),
        ("1a02 0807", [7]),
        ("1a0b 08ffffffffffffffffff01", [-1]),
        ("1a0b 0880808080808080808001", [-(2**63)]),
        ("1a0a 08ffffffffffffffff7f", [2**63 - 1]),
    ],
)
def test_example_of_numbers_not_packed(feature, expected):
    assert plain(example.decode(nested(bytes.fromhex(feature)))) == {"a": expected}


UNKNOWN = {
    "varint": "1005",
    "64 bits": "19 0102030405060708",
    "bytes": "22 03 010203",
    "32 bits": "2d 01020304",
    "a number of two bytes": "fa01 00",
    "64 bits that look like a size": "09 ffffffffffffffff",
    "of a large number": "818001 ffffffffffffffff",
}


@pytest.mark.parametrize("unknown", list(UNKNOWN.values()), ids=list(UNKNOWN))
def test_example_skips_unknown_fields(unknown):
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
        "0a03 0a0178 0a03 0a0179",
        *(f"0a03 0a0178 {unknown}" for unknown in UNKNOWN.values()),
    ],
)
def test_example_that_tensorflow_reads_otherwise_is_an_error(feature):
    with pytest.raises(ContentError):
        example.decode(nested(bytes.fromhex(feature)))


def test_example_last_entry_counts():
    one, two = (nested(bytes.fromhex(f"0a03 0a01{value}")) for value in ("78", "79"))
    assert example.decode(one + two) == {"a": [b"y"]}
    with pytest.raises(ContentError, match="values in the last entry of b'a'"):
        example.decode(one + nested(b""))


@pytest.mark.parametrize(
    ("value", "kind"),
    [(b"x", list), ("é", list), (1, np.int64), (True, np.int64), (0.5, np.float32)],
)
def test_example_single_values(value, kind):
    values = example.decode(example.encode({"a": value}))["a"]
    assert len(values) == 1
    assert getattr(values, "dtype", list) == kind
    assert example.encode({"b": 1, "a": value}) == example.encode({"a": value, "b": 1})
    with pytest.raises(TypeError, match=r"feature 'a' must be .* got complex128"):
        example.encode({"a": 1j})


@pytest.mark.parametrize(
    "content",
    [
        *("0b", "0a", "0a05", "0a80", "0affffffffffffffffffff01", "02", "0e00", "0a0103"),
        # Floats that aren't whole; lists whose size is cut or too large.
        *("a 1205 0a03 010203", "a 1a01 08", "a 1a01 0a", "a 1a02 0a05", "a 0a02 0aff"),
        "a 0a03 0a0561",
    ],
)
def test_what_is_no_example_is_an_error(content):
    name, _, feature = content.partition(" ")
    record = nested(bytes.fromhex(feature)) if feature else bytes.fromhex(name)
    with pytest.raises(ContentError):
        example.decode(record)


MANY = example.encode({"a": [b"xy", b""], "b": [1, -1], "c": [0.5]})


def test_example_damage_is_an_error_or_an_example():
    """No checksum covers it; numbers of one byte may even be as right unpacked as packed."""
    for size in range(1, len(MANY)):
        with pytest.raises(ContentError):
            example.decode(MANY[:size])
    for _, flipped in flips(MANY):
        with contextlib.suppress(ContentError):
            assert isinstance(example.decode(flipped), dict)


@pytest.mark.parametrize("tag", [b"\x8a\x00", b"\x8a\x80\x00"])
def test_example_long_tag_is_an_error(tag):
    """TensorFlow takes it for another field, Protocol Buffers doesn't."""
    with pytest.raises(ContentError, match="shortest form"):
        example.decode(tag + example.encode({"a": [1]})[1:])


GOLDEN = [
    (3.0, 7, "00000000 00004040 0700000000000000 0000000000000000"),
    ([3.0], 7, "01000000 00000000 0700000000000000 0000000000000000 00004040"),
    ([1.0, -2.0], 2**64 - 1, f"02000000 00000000 {'ff' * 8} {'00' * 8} 0000803f 000000c0"),
]


@pytest.mark.parametrize(("label", "number", "content"), GOLDEN)
def test_header_golden_bytes(label, number, content):
    payload = memoryview(bytes.fromhex(content) + b"image")
    assert irheader.pack(label, number, b"image") == payload
    found = irheader.unpack(payload)
    assert np.array(found.label).tolist() == label
    assert (found.id, bytes(found.content)) == (number, b"image")
    assert found.content.obj is payload.obj  # Not copied.
    if isinstance(label, float):
        assert type(found.label) is float
    else:
        assert (found.label.dtype, found.label.shape) == (np.float32, (len(label),))


# MXNet is as old as that.
@pytest.mark.filterwarnings("ignore:tostring:DeprecationWarning")
@pytest.mark.parametrize("label", [0.5, [0.5], [1.0, 2.0, 3.0], np.arange(100.0)])
def test_header_is_mxnets(label, mx_recordio):
    header, content = mx_recordio.unpack(irheader.pack(label, 5, b"image"))
    assert np.array_equal(header.label, label)
    assert (header.id, content) == (5, b"image")
    theirs = mx_recordio.pack(mx_recordio.IRHeader(0, label, 5, 0), b"image")
    found = irheader.unpack(memoryview(theirs))
    assert np.array_equal(found.label, label)
    assert (found.id, bytes(found.content)) == (5, b"image")


@pytest.mark.parametrize("label", [3.0, [1.0, 2.0]])
def test_header_cut_anywhere_is_an_error(label):
    content = irheader.pack(label, 0, b"")
    for size in range(len(content)):
        with pytest.raises(ContentError, match=f"found {size} bytes"):
            irheader.unpack(memoryview(content[:size]))
    with pytest.raises(ContentError, match="4294967295 labels"):
        irheader.unpack(memoryview(irheader.HEADER.pack(2**32 - 1, 0.0, 0, 0)))
