"""Features and SequenceExamples as TensorFlow's own parsers read them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters import Feature, RecordError, open_records
from adapters.records import example
from adapters.sources.suggestion import suggested
from tests.fuzzing import examples
from tests.plans import batch_of, epoch_of, plan_of
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


@settings(deadline=None, max_examples=examples(100))
@given(both=specifications())
def test_example_is_what_tensorflow_reads(tf, both, tmp_path_factory):
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
def test_hostile_example_is_what_tensorflow_reads_or_an_error(tf, tmp_path, payload):
    spec = {"a": tf.io.FixedLenFeature([], tf.int64)}
    assert_theirs_or_an_error(tf, tmp_path, payload, spec)


@pytest.mark.parametrize("default", [None, 9])
@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_example_is_the_same_in_a_batch(tmp_path, payload, default):
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


@settings(deadline=None, max_examples=examples(100))
@given(data=st.data())
def test_damaged_example_is_what_tensorflow_reads_or_an_error(tf, data, tmp_path_factory):
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


def test_batches_are_those_of_parse_example(tf, tmp_path):
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
    for (found, labels), batch in zip(epoch_of(plan_of(source, 16)), parsed):
        expected = tf.reshape(tf.io.decode_raw(batch["image"], tf.uint8), (-1, 28, 28, 1))
        np.testing.assert_array_equal(found, expected.numpy(), strict=True)
        np.testing.assert_array_equal(labels, batch["label"].numpy(), strict=True)


SPEC = {"length": Feature("int64"), "frames": Feature("float32", (None, 2), default=0)}


def sequence(context: Mapping[str, Any], lists: Mapping[str, list[Any]]) -> bytes:
    """A SequenceExample of these features, and of these lists of a step's values each."""
    first = b"".join(entry(name, listed(values)) for name, values in context.items())
    second = [
        message(1, message(1, name.encode()) + message(2, b"".join(map(_step, steps))))
        for name, steps in lists.items()
    ]
    return message(1, first) + message(2, b"".join(second))


def _step(values: list[Any]) -> bytes:
    return message(1, listed(values))


def of(folder: Path, payload: bytes, spec: Any) -> Any:
    """The one sample of a file of one record."""
    return open_records(file_of(folder, [payload]), decode=spec)[0]


@pytest.mark.parametrize(
    ("feature", "steps", "expected"),
    [
        (Feature("int16", (None,)), [[1], [-2]], np.array([1, -2], np.int16)),
        (Feature("int64", (None, 3)), [], np.zeros((0, 3), np.int64)),
        (
            Feature("uint8", (None, 2), stored="raw"),
            [[b"ab"], [b"cd"]],
            np.array([[97, 98], [99, 100]], "u1"),
        ),
        (Feature(str, (None,)), [[b"a"], [b"bc"]], np.array(["a", "bc"], object)),
        (Feature(bytes, (None, 2)), [[b"a", b"b"]], np.array([[b"a", b"b"]], object)),
    ],
)
def test_sequence_steps_have_the_rest_of_the_shape(tmp_path, feature, steps, expected):
    found = of(tmp_path, sequence({}, {"a": steps}), {"a": feature})["a"]
    np.testing.assert_array_equal(found, expected, strict=True)


def test_sequence_list_or_context(tmp_path):
    varying, fixed = {"a": Feature("int64", (None,))}, {"a": Feature("int64")}
    payload = sequence({"a": [7]}, {"a": [[1], [2]]})
    assert of(tmp_path, payload, varying)["a"].tolist() == [1, 2]
    assert of(tmp_path, payload, fixed)["a"] == 7
    assert of(tmp_path, sequence({"a": [7, 8]}, {"b": []}), varying)["a"].tolist() == [7, 8]


def test_sequence_batches_are_filled_up(tmp_path):
    payloads = [sequence({"length": [n]}, {"frames": [[1.0, n / 2]] * n}) for n in range(4)]
    batch = batch_of(plan_of(open_records(file_of(tmp_path, payloads), decode=SPEC), 4))
    assert batch["frames"].shape == (4, 3, 2)
    assert batch["frames"].sum((1, 2)).tolist() == [n + n * n / 2 for n in range(4)]
    assert batch["length"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("payload", "expected", "found"),
    [
        (
            sequence({"length": [1]}, {"frames": [[1.0, 2.0], [1.0]]}),
            "in step 1 of its list, 2 values",
            "1 values",
        ),
        (
            sequence({"length": [1]}, {"frames": [[]]}),
            "in step 0 of its list, a float_list",
            "no values",
        ),
        (sequence({"length": [1]}, {"frames": [[1, 2]]}), "a float_list", "an int64_list"),
        (sequence({}, {"frames": []}), "feature 'length' with values", "the features frames"),
        (sequence({"length": [1]}, {}) + message(2, b""), "one FeatureLists", "several"),
        (message(2, b"\x0a" + varint(2**63)), "a field of 9223372036854775808 bytes", "0 before"),
        (message(2, message(1, message(1, b"a"))), "a feature's name and its values", "the tag 0"),
        (
            message(2, message(1, message(1, b"a") + message(2, message(2, b"")))),
            "a feature in a feature list",
            "the tag 18",
        ),
        (
            message(2, 2 * message(1, message(1, b"a") + message(2, b""))),
            "one feature list b'a'",
            "several",
        ),
    ],
)
def test_damaged_sequence_says_where(tmp_path, payload, expected, found):
    with pytest.raises(RecordError) as raised:
        of(tmp_path, payload, SPEC)
    assert expected in raised.value.expected
    assert found in raised.value.found


@st.composite
def sequences(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """What the lists are, the context, and the lists."""
    spec: dict[str, Any] = {}
    lists: dict[str, Any] = {}
    for name in draw(st.lists(st.text(max_size=2), min_size=1, max_size=3, unique=True)):
        dtype, shape = (
            draw(st.sampled_from(list(_KINDS))),
            draw(st.sampled_from([(), (2,), (1, 2)])),
        )
        spec[name] = dtype, shape, draw(st.booleans())
        values = st.lists(_KINDS[dtype], min_size=(n := int(np.prod(shape))), max_size=n)
        if draw(st.integers(0, 5)):
            lists[name] = draw(st.lists(values, max_size=3))
    # No list has this name, which TensorFlow would look for in one part, and a source in both.
    context = draw(
        st.dictionaries(st.just("context"), st.lists(_KINDS["int64"], min_size=1, max_size=1))
    )
    return spec, context, lists


def their_sequence(tf: Any, payload: bytes, spec: dict[str, Any], context: dict[str, Any]) -> Any:
    """What TensorFlow makes of it; None if that is an error."""
    try:
        both = tf.io.parse_single_sequence_example(payload, context, spec)
    except tf.errors.InvalidArgumentError:
        return None
    return {name: value.numpy() for part in both for name, value in part.items()}


@settings(deadline=None, max_examples=examples(100))
@given(given_sequence=sequences())
def test_sequence_is_what_tensorflow_reads(tf, given_sequence, tmp_path_factory):
    names, context, lists = given_sequence
    spec = {
        name: tf.io.FixedLenSequenceFeature(shape, getattr(tf, dtype), allow_missing)
        for name, (dtype, shape, allow_missing) in names.items()
    }
    own = {"context": tf.io.FixedLenFeature([], tf.int64, 5)}
    example = tf.train.SequenceExample.FromString(sequence(context, lists))
    payload = example.SerializeToString()
    expected = their_sequence(tf, payload, spec, own)
    folder = tmp_path_factory.mktemp("sequences")
    if expected is None:
        with pytest.raises(RecordError):
            of(folder, payload, {**spec, **own})
        return
    found = of(folder, payload, {**spec, **own})
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert_same(found[name], value)


@settings(deadline=None, max_examples=examples(100))
@given(data=st.data())
def test_damaged_sequence_is_what_tensorflow_reads_or_an_error(tf, data, tmp_path_factory):
    spec = {
        "a": tf.io.FixedLenSequenceFeature([2], tf.int64),
        "b": tf.io.FixedLenSequenceFeature([], tf.string, True),
    }
    context = {"c": tf.io.FixedLenFeature([], tf.float32)}
    lists = {"a": [[300, -1], [5, 6]], "b": [[b"xyz"], [b""]], "d": [[1.5]]}
    content = bytearray(sequence({"c": [0.5], "e": [1]}, lists))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    try:
        found = of(tmp_path_factory.mktemp("damaged"), bytes(content), {**spec, **context})
    except RecordError:
        return
    expected = their_sequence(tf, bytes(content), spec, context)
    assert expected is not None
    for name, value in expected.items():
        assert_same(found[name], value)


def test_suggested_specification_reads_the_file(tmp_path):
    steps = {
        "frames": [[1.0, 2.0]],
        "words": [[b"a"], [b"b"]],
        "raw": [[b"\xff\0"]],
        "odd": [[1], []],
    }
    payloads = [sequence({"length": [3]}, steps), sequence({"length": [4]}, {})]
    lines = suggested(map(memoryview, payloads))
    spec = eval("\n".join(lines).removeprefix("decode = "), {"Feature": Feature})
    assert set(spec) == {"length", "frames", "words", "raw"}
    found = of(tmp_path, payloads[0], spec)
    assert found["length"] == 3
    assert found["frames"].tolist() == [[1.0, 2.0]]
    assert found["words"].tolist() == ["a", "b"]
    assert found["raw"].tolist() == [[255, 0]]


def test_suggested_specification_of_missing_texts(tmp_path):
    kinds = {"words": ([b"a", b"b"], [b"c"]), "bytes": ([b"\xff", b"\xfe\xff"], [b"\xff"])}
    payloads = [example.encode({name: each[row] for name, each in kinds.items()}) for row in (0, 1)]
    lines = suggested(map(memoryview, [*payloads, example.encode({"id": 1})]))
    spec = eval("\n".join(lines).removeprefix("decode = "), {"Feature": Feature})
    found = of(tmp_path, example.encode({"id": 1}), spec)
    assert [len(found[name]) for name in kinds] == [0, 0]
    assert of(tmp_path, payloads[0], spec)["words"].tolist() == ["a", "b"]


def test_suggested_specification_leaves_out_several_types(tmp_path):
    payloads = [example.encode({"x": each, "y": 1}) for each in ([1], [0.5], [2])]
    lines = suggested(map(memoryview, payloads))
    assert '    # "x" is of several types' in lines
    spec = eval("\n".join(lines).removeprefix("decode = "), {"Feature": Feature})
    assert [of(tmp_path, each, spec) for each in payloads] == [{"y": 1}] * 3
