"""Features and SequenceExamples as TensorFlow's own parsers read them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import Feature, RecordError, open_records
from adapters.records import example
from adapters.sources.suggestion import suggested
from tests.plans import batch_of, plan_of
from tests.sources.example_files import (
    assert_batch_is_its_outcomes,
    entry,
    file_of,
    listed,
    message,
    outcome,
    varint,
)

_LISTS = {bytes: "bytes_list", float: "float_list", int: "int64_list"}


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


def assert_read_alike(path: Path, spec: dict[str, Any], expected: dict[str, Any] | None) -> None:
    """The first sample is what TensorFlow reads, or an error if it is one there."""
    source = open_records(path, decode=spec)
    if expected is None:
        with pytest.raises(RecordError):
            source[0]
        return
    found = source[0]
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert_same(found[name], value)


# None of them, as many as there may be, one that is alike, and one of another type.
VALUES: dict[str, list[list[Any]]] = {
    "int64": [[7], [], [-1], [2**62, 128], [1, 2, 3, 4], [0.5]],
    "float32": [[0.5], [], [-0.0], [1.5, float("inf")], [1.0, 2.0, 3.0, 4.0], [1]],
    "string": [[b"none"], [], [b""], [b"a", b"\xff"], [b"a", b"b", b"c", b"d"], [1]],
}


@pytest.mark.parametrize("dtype", VALUES)
def test_example_is_what_tensorflow_reads(tf, tmp_path, dtype):
    kind, default = getattr(tf, dtype), VALUES[dtype][0]
    specs = [tf.io.VarLenFeature(kind), tf.io.RaggedFeature(kind)]
    for shape in ([], [1], [2, 2]):
        specs.append(tf.io.FixedLenFeature(shape, kind))
        specs.append(tf.io.FixedLenFeature(shape, kind, default * int(np.prod(shape))))
        specs.append(tf.io.FixedLenSequenceFeature(shape, kind, True))
        specs.append(tf.io.FixedLenSequenceFeature(shape, kind, True, default[0]))
    features = [{"é": [1]}, *({"é": [1], "": values} for values in VALUES[dtype])]
    for number, (spec, given) in enumerate(itertools.product(specs, features)):
        payload, spec = written(tf, given), {"": spec}
        path = file_of(tmp_path, [payload], f"{number}.tfrecord")
        assert_read_alike(path, spec, theirs(tf, payload, spec))


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


every_hostile = pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE.keys())


@every_hostile
def test_hostile_example_is_what_tensorflow_reads_or_an_error(tf, tmp_path, payload):
    spec = {"a": tf.io.FixedLenFeature([], tf.int64)}
    try:
        found = of(tmp_path, payload, spec)
    except RecordError:
        return
    expected = theirs(tf, payload, spec)
    assert expected is not None
    assert_same(found["a"], expected["a"])


@every_hostile
def test_hostile_example_is_the_same_in_a_batch(tmp_path, payload):
    """Also between records that are written as usual."""
    usual = message(1, entry("a", listed([1])))
    path = file_of(tmp_path, [usual, payload, usual, payload])
    for default in (None, 9):
        source = open_records(path, decode={"a": Feature("int64", default=default)})
        assert outcome(source, 2) == {"a": 1}
        assert_batch_is_its_outcomes(source, 4)


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


ONE = message(1, b"a")
LENGTH = sequence({"length": [1]}, {})


@pytest.mark.parametrize(
    ("payload", "expected", "found"),
    [
        (sequence({}, {"frames": [[1.0, 2.0], [1.0]]}), "step 1 of its list, 2 values", "1 values"),
        (sequence({}, {"frames": [[]]}), "step 0 of its list, a float_list", "no values"),
        (sequence({}, {"frames": [[b"1", b"2"]]}), "a float_list", "a bytes_list"),
        (sequence({}, {"frames": []}), "feature 'length' with values", "the features frames"),
        (LENGTH + message(2, b""), "one FeatureLists", "several"),
        (message(2, b"\x0a" + varint(2**63)), "a field of 9223372036854775808 bytes", "0 before"),
        (message(2, message(1, ONE)), "a feature's name and its values", "the tags 10"),
        (
            message(2, message(1, ONE + message(2, message(2, b"")))),
            "a feature in a feature list",
            "the tag 18",
        ),
        (message(2, 2 * message(1, ONE + message(2, b""))), "one feature list b'a'", "several"),
    ],
)
def test_damaged_sequence_says_where(tmp_path, payload, expected, found):
    with pytest.raises(RecordError) as raised:
        of(tmp_path, payload, {"frames": SPEC["frames"], "length": SPEC["length"]})
    assert expected in raised.value.expected
    assert found in raised.value.found


def test_sequence_is_what_tensorflow_reads(tf, tmp_path):
    context = {"c": tf.io.FixedLenFeature([], tf.int64, 5)}
    lists = {
        "a": tf.io.FixedLenSequenceFeature([2], tf.int64),
        "b": tf.io.FixedLenSequenceFeature([], tf.string),
        "absent": tf.io.FixedLenSequenceFeature([1, 2], tf.float32, True),
    }
    payload = sequence({"e": [1]}, {"a": [[1, 2], [-3, 4]], "b": [[b"x"], [b""]], "d": [[1]]})
    expected = tf.io.parse_single_sequence_example(payload, context, lists)
    read = {name: value.numpy() for part in expected for name, value in part.items()}
    assert_read_alike(file_of(tmp_path, [payload]), {**context, **lists}, read)
    lists["absent"] = tf.io.FixedLenSequenceFeature([1, 2], tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.parse_single_sequence_example(payload, context, lists)
    with pytest.raises(RecordError):
        of(tmp_path, payload, {**context, **lists})


def suggested_of(payloads: Iterable[bytes]) -> Any:
    """What is suggested for these records, as it is pasted."""
    lines = suggested(map(memoryview, payloads))
    return eval("\n".join(lines).removeprefix("decode = "), {"Feature": Feature})


def test_suggested_specification_reads_the_file(tmp_path):
    steps = {
        "frames": [[1.0, 2.0]],
        "words": [[b"a"], [b"b"]],
        "raw": [[b"\xff\0"]],
        "odd": [[1], []],
    }
    payloads = [sequence({"length": [3]}, steps), sequence({"length": [4]}, {})]
    spec = suggested_of(payloads)
    assert set(spec) == {"length", "frames", "words", "raw"}
    found = of(tmp_path, payloads[0], spec)
    assert found["length"] == 3
    assert found["frames"].tolist() == [[1.0, 2.0]]
    assert found["words"].tolist() == ["a", "b"]
    assert found["raw"].tolist() == [[255, 0]]


def test_suggested_specification_leaves_out_several_types(tmp_path):
    payloads = [example.encode({"x": each, "y": 1}) for each in ([1], [0.5], [2])]
    assert '    # "x" is of several types' in suggested(map(memoryview, payloads))
    assert of(tmp_path, payloads[1], suggested_of(payloads)) == {"y": 1}
