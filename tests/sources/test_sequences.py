"""SequenceExamples: feature lists beside a context, as TensorFlow's own parser reads them."""

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
from adapters.sources import suggested
from tests.plans import batch_of, plan_of
from tests.sources.example_files import entry, file_of, listed, message, varint

_KINDS: dict[str, Any] = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float32": st.floats(width=32),
    "string": st.binary(max_size=5),
}
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


def test_context_and_steps_are_one_sample(tmp_path):
    steps = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    found = of(tmp_path, sequence({"length": [3]}, {"frames": steps}), SPEC)
    assert found["length"] == 3
    np.testing.assert_array_equal(found["frames"], np.array(steps, np.float32), strict=True)


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
def test_a_step_has_the_rest_of_the_shape(tmp_path, feature, steps, expected):
    found = of(tmp_path, sequence({}, {"a": steps}), {"a": feature})["a"]
    np.testing.assert_array_equal(found, expected, strict=True)


def test_what_is_in_both_is_the_list_where_lengths_vary(tmp_path):
    payload = sequence({"a": [7]}, {"a": [[1], [2]]})
    assert of(tmp_path, payload, {"a": Feature("int64", (None,))})["a"].tolist() == [1, 2]
    assert of(tmp_path, payload, {"a": Feature("int64")})["a"] == 7


def test_what_is_in_no_list_is_looked_for_in_the_context(tmp_path):
    payload = sequence({"a": [7, 8]}, {"b": []})
    assert of(tmp_path, payload, {"a": Feature("int64", (None,))})["a"].tolist() == [7, 8]


def test_batches_are_filled_up(tmp_path):
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
def test_what_is_damaged_is_an_error_that_says_where(tmp_path, payload, expected, found):
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


def theirs(tf: Any, payload: bytes, spec: dict[str, Any], context: dict[str, Any]) -> Any:
    """What TensorFlow makes of it; None if that is an error."""
    try:
        both = tf.io.parse_single_sequence_example(payload, context, spec)
    except tf.errors.InvalidArgumentError:
        return None
    return {name: value.numpy() for part in both for name, value in part.items()}


def assert_same(found: Any, expected: Any) -> None:
    if np.asarray(expected).dtype.kind in "SO":
        assert np.asarray(found, object).tolist() == np.asarray(expected, object).tolist()
        return
    np.testing.assert_array_equal(found, expected, strict=True)


@settings(deadline=None)
@given(given_sequence=sequences())
def test_what_tensorflow_reads_is_what_is_read(tf, given_sequence, tmp_path_factory):
    names, context, lists = given_sequence
    spec = {
        name: tf.io.FixedLenSequenceFeature(shape, getattr(tf, dtype), allow_missing)
        for name, (dtype, shape, allow_missing) in names.items()
    }
    own = {"context": tf.io.FixedLenFeature([], tf.int64, 5)}
    example = tf.train.SequenceExample.FromString(sequence(context, lists))
    payload = example.SerializeToString()
    expected = theirs(tf, payload, spec, own)
    folder = tmp_path_factory.mktemp("sequences")
    if expected is None:
        with pytest.raises(RecordError):
            of(folder, payload, {**spec, **own})
        return
    found = of(folder, payload, {**spec, **own})
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert_same(found[name], value)


@settings(deadline=None)
@given(data=st.data())
def test_whatever_is_damaged_is_what_tensorflow_reads_or_an_error(tf, data, tmp_path_factory):
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
    expected = theirs(tf, bytes(content), spec, context)
    assert expected is not None
    for name, value in expected.items():
        assert_same(found[name], value)


def test_the_specification_of_a_file_reads_it(tmp_path):
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


def test_the_specification_of_texts_that_some_records_lack_reads_them(tmp_path):
    kinds = {"words": ([b"a", b"b"], [b"c"]), "bytes": ([b"\xff", b"\xfe\xff"], [b"\xff"])}
    payloads = [example.encode({name: each[row] for name, each in kinds.items()}) for row in (0, 1)]
    lines = suggested(map(memoryview, [*payloads, example.encode({"id": 1})]))
    spec = eval("\n".join(lines).removeprefix("decode = "), {"Feature": Feature})
    found = of(tmp_path, example.encode({"id": 1}), spec)
    assert [len(found[name]) for name in kinds] == [0, 0]
    assert of(tmp_path, payloads[0], spec)["words"].tolist() == ["a", "b"]


def test_the_specification_leaves_out_what_is_of_several_types(tmp_path):
    payloads = [example.encode({"x": each, "y": 1}) for each in ([1], [0.5], [2])]
    lines = suggested(map(memoryview, payloads))
    assert '    # "x" is of several types' in lines
    spec = eval("\n".join(lines).removeprefix("decode = "), {"Feature": Feature})
    assert [of(tmp_path, each, spec) for each in payloads] == [{"y": 1}] * 3
