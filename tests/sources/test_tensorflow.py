"""Features as TensorFlow's own parser reads them, with TensorFlow's own specifications."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters import Feature, RecordError, open_records
from tests.plans import batch_of, plan_of
from tests.sources.example_files import entry, file_of, listed, message, outcome, varint

_INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, -1, 127, 128, 2**31])
_FLOATS = st.floats(width=32)
_BYTES = st.binary(max_size=5)
_KINDS = {"int64": _INTEGERS, "float32": _FLOATS, "string": _BYTES}
_DEFAULTS: dict[str, Any] = {"int64": 7, "float32": 0.5, "string": b"none"}
_LISTS = {bytes: "bytes_list", float: "float_list", int: "int64_list"}


@st.composite
def specifications(draw: st.DrawFn) -> tuple[dict[str, tuple[Any, ...]], dict[str, Any]]:
    """What features are, and an Example of most of them, and of others."""
    spec: dict[str, tuple[Any, ...]] = {}
    features: dict[str, Any] = {}
    for name in draw(st.lists(st.text(max_size=3), min_size=1, max_size=4, unique=True)):
        kind = draw(st.sampled_from(["fixed", "fixed", "varying", "ragged", "sequence"]))
        dtype = draw(st.sampled_from(list(_KINDS)))
        shape = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
        count = int(np.prod(shape))
        if kind in ("varying", "ragged"):
            count = draw(st.integers(0, 4))
        elif kind == "sequence":
            count *= draw(st.integers(0, 3))
        default = draw(st.sampled_from([None, _DEFAULTS[dtype]]))
        spec[name] = kind, dtype, shape, default
        there = draw(st.integers(0, 9))
        if there or (kind == "fixed" and default is None and there < 9):
            values = st.lists(_KINDS[dtype], min_size=count, max_size=count)
            features[name] = draw(values)
    for name in draw(st.lists(st.text(max_size=4), max_size=2)):
        values = st.sampled_from(list(_KINDS.values())).flatmap(lambda k: st.lists(k, max_size=2))
        features.setdefault(name, draw(values))
    return spec, features


def given_to(tf: Any, spec: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """TensorFlow's specification."""
    made = {}
    for name, (kind, dtype_name, shape, default) in spec.items():
        dtype = getattr(tf, dtype_name)
        if kind == "fixed":
            value = None if default is None else [default] * int(np.prod(shape))
            made[name] = tf.io.FixedLenFeature(shape, dtype, value)
        elif kind == "varying":
            made[name] = tf.io.VarLenFeature(dtype)
        elif kind == "ragged":
            made[name] = tf.io.RaggedFeature(dtype)
        else:
            made[name] = tf.io.FixedLenSequenceFeature(shape, dtype, True, default)
    return made


def written(tf: Any, features: dict[str, Any]) -> bytes:
    """TensorFlow's Example."""
    message = tf.train.Example()
    for name, values in features.items():
        feature = message.features.feature[name]
        if values:
            getattr(feature, _LISTS[type(values[0])]).value.extend(values)
    return message.SerializeToString()


def theirs(tf: Any, payload: bytes, spec: dict[str, Any]) -> dict[str, Any] | None:
    """What TensorFlow makes of it; None if that is an error."""
    try:
        parsed = tf.io.parse_single_example(payload, spec)
    except tf.errors.InvalidArgumentError:
        return None
    return {
        name: (value.values if isinstance(value, tf.SparseTensor) else value).numpy()
        for name, value in parsed.items()
    }


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, (bytes, np.ndarray)) and np.asarray(expected).dtype.kind in "SO":
        assert np.asarray(found, object).tolist() == np.asarray(expected, object).tolist()
        assert np.shape(found) == np.shape(expected)
        return
    np.testing.assert_array_equal(found, expected, strict=True)


@settings(deadline=None)
@given(both=specifications())
def test_what_tensorflow_writes_is_what_tensorflow_reads(tf, both, tmp_path_factory):
    spec, features = given_to(tf, both[0]), both[1]
    path = tmp_path_factory.mktemp("tf") / "a.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(written(tf, features))
    expected = theirs(tf, written(tf, features), spec)
    source = open_records(path, decode=spec)
    if expected is None:
        with pytest.raises(RecordError):
            source[0]
        return
    found = source[0]
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert_same(found[name], value)


HOSTILE = {
    "a length of 2^63": b"\x0a" + varint(2**63),
    "a length of 2^63 in an entry": message(1, b"\x0a" + varint(2**63)),
    "a length of 2^32 more than it is": b"\x0a" + varint(2**32 + 3) + message(1, b"\x0a\x00"),
    "an entry without a name": message(1, message(1, message(2, listed([1])))),
    "an entry without values": message(1, message(1, message(1, b"a"))),
    "two names": message(1, message(1, message(1, b"b") + message(1, b"a"))),
    "a third field in an entry": message(
        1, message(1, message(1, b"a") + message(2, listed([1])) + message(3, b""))
    ),
    "two lists in a feature": message(1, entry("a", listed([1]) + listed([2]))),
    "two runs in a list": message(1, entry("a", message(3, message(1, b"\1") + message(1, b"\2")))),
    "both kinds of numbers": message(1, entry("a", message(3, b"\x08\x01" + message(1, b"\2")))),
    "an unknown list": message(1, entry("a", message(4, b""))),
    "an empty list": message(1, entry("a", message(3, b""))),
    "an empty run": message(1, entry("a", message(3, message(1, b"")))),
    "a varint of 10 bytes and more": message(
        1, entry("a", message(3, message(1, b"\xff" * 10 + b"\1")))
    ),
    "a varint of 70 bits": message(1, entry("a", message(3, message(1, b"\xff" * 9 + b"\x7f")))),
    "a varint that does not end": message(1, entry("a", message(3, message(1, b"\x80")))),
    "a group": b"\x0b",
    "field 0": b"\x02\x00",
    "an unknown field in Features": message(1, message(2, b"") + entry("a", listed([1]))),
    "the last of two": message(1, entry("a", listed([1])) + entry("a", listed([2]))),
    "the last of two, of another kind": message(1, entry("a", listed([1])) + entry("a", b"")),
    "two Features": message(1, entry("a", listed([1]))) + message(1, entry("b", listed([2]))),
    "values before the name": message(1, entry("a", listed([5]), True)),
}


@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_nobody_writes_is_what_tensorflow_reads_or_an_error(tf, tmp_path, payload):
    spec = {"a": tf.io.FixedLenFeature([], tf.int64)}
    assert_theirs_or_an_error(tf, tmp_path, payload, spec)


@pytest.mark.parametrize("default", [None, 9])
@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_nobody_writes_is_in_a_batch_what_it_is_by_itself(tmp_path, payload, default):
    """Also between records that are written as usual."""
    usual = message(1, entry("a", listed([1])))
    path = file_of(tmp_path, [usual, payload, usual, payload])
    source = open_records(path, decode={"a": Feature("int64", default=default)})
    expected = outcome(source, 1)
    if isinstance(expected, str):
        with pytest.raises(RecordError) as raised:
            batch_of(plan_of(source, 4))
        assert str(raised.value) == expected
        return
    assert batch_of(plan_of(source, 4))["a"].tolist() == [1, expected["a"], 1, expected["a"]]


@settings(deadline=None)
@given(data=st.data())
def test_whatever_is_damaged_is_what_tensorflow_reads_or_an_error(tf, data, tmp_path_factory):
    spec = {
        "a": tf.io.FixedLenFeature([2], tf.int64),
        "b": tf.io.FixedLenFeature([], tf.float32),
        "c": tf.io.VarLenFeature(tf.string),
        "d": tf.io.FixedLenFeature([], tf.int64, 3),
    }
    content = bytearray(written(tf, {"a": [300, -1], "b": [0.5], "c": [b"xyz", b""], "e": [1]}))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    assert_theirs_or_an_error(tf, tmp_path_factory.mktemp("tf"), bytes(content), spec)


def assert_theirs_or_an_error(tf: Any, folder: Path, payload: bytes, spec: Any) -> None:
    try:
        found = open_records(file_of(folder, [payload]), decode=spec)[0]
    except RecordError:
        return
    expected = theirs(tf, payload, spec)
    assert expected is not None
    for name, value in expected.items():
        assert_same(found[name], value)


def test_batches_are_those_of_parse_example_and_decode_raw(tf, tmp_path, safe_sequence):
    """The pipeline that users have, beside ours: digits as raw bytes, and a label."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (40, 784), dtype=np.uint8)
    path = tmp_path / "digits.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number, image in enumerate(images):
            writer.write(written(tf, {"image": [image.tobytes()], "label": [number * 10]}))
    spec = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    parsed = tf.data.TFRecordDataset(str(path)).batch(16)
    parsed = parsed.map(lambda records: tf.io.parse_example(records, spec))
    ours = {"image": Feature("uint8", (28, 28, 1), stored="raw"), "label": spec["label"]}
    source = open_records(path, decode=ours, outputs=("image", "label"))
    with safe_sequence(source, 16) as sequence:
        for (found, labels), batch in zip(sequence, parsed):
            expected = tf.reshape(tf.io.decode_raw(batch["image"], tf.uint8), (-1, 28, 28, 1))
            np.testing.assert_array_equal(found, expected.numpy(), strict=True)
            np.testing.assert_array_equal(labels, batch["label"].numpy(), strict=True)
