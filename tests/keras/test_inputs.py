"""What batches may hold, whose shapes may vary, and what ``fit`` refuses."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest

from adapters import SafeSequence, pad, ragged
from adapters.keras import internals
from tests.keras.py_datasets import Given
from tests.keras.recording import (
    BACKEND,
    ON_TENSORFLOW,
    PROCESSES,
    TWO_THREADS,
    Recorder,
    built_recorder,
)
from tests.keras.samples import numbered

SAMPLES = 12
WEIGHTS = np.linspace(0, 1, SAMPLES, dtype=np.float32)
CLASSES = np.arange(SAMPLES) % 3
# On TensorFlow the pass ends early and then raises; Keras remarks on the first.
pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")


def trained_on(source: Any, *batch_size: int, recorder: Any = None, **fit: Any) -> list[Any]:
    recorder = recorder or built_recorder()
    with SafeSequence(source, *batch_size, **TWO_THREADS) as sequence:
        recorder.fit(sequence, shuffle=False, verbose=0, **fit)
    return recorder.lists.trained


def joined(parts: list[Any]) -> np.ndarray:
    return np.concatenate([np.asarray(part) for part in parts])


X, Y = numbered(SAMPLES)


class Sample(NamedTuple):
    image: Any
    label: Any


@pytest.mark.parametrize(
    "source",
    [
        pytest.param((X, Y, WEIGHTS), id="weights"),
        pytest.param(({"first": X, "second": 2 * X}, Y), id="dict"),
        pytest.param(({"pair": (X, {"inner": X + 1}), "alone": X + 2}, Y), id="nested"),
        pytest.param(Sample(X, Y), id="named tuple"),
        *(pytest.param((X.astype(dtype), Y), id=dtype) for dtype in ("uint8", "float16")),
    ],
)
def test_structures_and_dtypes(source):
    batches = trained_on(source, 4, recorder=Recorder())
    keras.tree.assert_same_structure(batches[0][0], source[0])
    columns = zip(*(keras.tree.flatten(batch) for batch in batches))
    for column, given in zip(columns, keras.tree.flatten(source), strict=True):
        found = joined(column)
        np.testing.assert_array_equal(found, given)
        assert found.dtype == given.dtype


@pytest.mark.parametrize(("given", "count"), [((X, Y, None), 2), ((X, None, None), 1)])
def test_none_at_the_end(given, count):
    assert [len(batch) for batch in SafeSequence(given, 4)] == [count] * 3
    if BACKEND == "tensorflow":  # Others take each as it is.
        assert [len(batch) for batch in trained_on(Given(given, given))] == [count] * 2


def test_class_weight():
    batches = trained_on((X, CLASSES), 4, class_weight={0: 1.0, 1: 5.0, 2: 9.0})
    expected = np.array([1.0, 5.0, 9.0])[CLASSES]
    np.testing.assert_array_equal(joined([weights for _, _, weights in batches]).ravel(), expected)


@pytest.mark.parametrize(
    ("source", "fit", "message"),
    [
        ((X, CLASSES, WEIGHTS), {"class_weight": {0: 1.0}}, r"`class_weight` and `sample_weight`"),
        ((X, Y), {"y": Y}, r"`y` should not be passed"),
    ],
)
def test_fit_refuses(source, fit, message):
    with pytest.raises(ValueError, match=message):
        trained_on(source, 4, **fit)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="the other backends know no texts")
@pytest.mark.parametrize("kind", [object, str, "S3"], ids=str)
def test_texts(kind):
    words = np.array(["a", "bb", "ccc"] * 4).astype(kind)
    found = joined([batch[0] for batch in trained_on((words, Y), 4)])
    np.testing.assert_array_equal(found.astype("S3"), words.astype("S3"))


# --- whole batches, and how unlike each other they may be ---


@pytest.mark.skipif(BACKEND != "jax", reason="Keras takes SciPy's matrices on JAX alone")
def test_sparse_matrices():
    sparse = pytest.importorskip("scipy.sparse", reason="no dependency of this package")
    inputs = keras.Input((6,), sparse=True)
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse", jit_compile=False)
    dense = np.eye(4, 6, dtype=np.float32)
    batch = sparse.csr_matrix(dense), Y[:4]
    expected = model.evaluate(dense, Y[:4], verbose=0)
    with SafeSequence(Given(batch, batch), **PROCESSES) as sequence:
        assert model.evaluate(sequence, verbose=0) == pytest.approx(expected)
        model.fit(sequence, verbose=0)


@ON_TENSORFLOW
@pytest.mark.parametrize(
    ("given", "like"),
    [(({"a": X, "b": None}, Y), "({'a': 0, 'b': None}, 1)"), ((X, None, Y), "(0, None, 1)")],
)
def test_none_within_a_batch(given, like):
    with pytest.raises(ValueError, match=f"one made like {re.escape(like)}: leave"):
        trained_on(Given(given, given))


@ON_TENSORFLOW
@pytest.mark.parametrize(("first", "later"), [("int64", "float64"), ("bool", "int64")])
def test_dtype_that_would_lose_numbers(first, later):
    batches = [(X, Y.astype(first))] * 3 + [(X, (Y + 0.5).astype(later))]
    message = rf"number 3 of epoch 0 has an array of {later}, the first ones had {first}; give"
    with pytest.raises(ValueError, match=message):
        trained_on(Given(*batches))


@ON_TENSORFLOW
@pytest.mark.parametrize(("first", "later"), [("float32", "float64"), ("int64", "int8")])
def test_dtype_that_means_the_same(first, later):
    trained = trained_on(Given(*[(X, Y.astype(first))] * 3, (X, Y.astype(later))))
    assert [labels.dtype for _, labels in trained] == [np.dtype(first)] * 4
    np.testing.assert_array_equal([labels for _, labels in trained], [Y] * 4)


@pytest.mark.skipif(BACKEND != "torch", reason="its own tensors")
def test_tensors_of_bfloat16():
    import torch

    features = torch.from_numpy(X[:4]).to(torch.bfloat16)
    recorder = Recorder(on_host=False)
    trained_on(list(zip(features, Y)), 2, recorder=recorder)
    trained_on(Given((features[:1], Y[:1])), recorder=recorder)
    trained = [batch[0] for batch in recorder.lists.trained]
    assert {batch.dtype for batch in trained} == {torch.bfloat16}
    assert torch.cat(trained).ravel().tolist() == [0, 1, 2, 3, 0]


# --- shapes that first differ late, and ragged ones ---


COUNT = 64


def tokens(*lengths: int) -> list[Any]:
    return [(np.full(length, 1 + n % 9), np.float32(n % 2)) for n, length in enumerate(lengths)]


def placed(batch: Any) -> Any:
    """Adds an array of the longest length that there can be, which a longer batch wouldn't fit."""
    rows, labels = batch
    assert rows.shape[1] <= 16
    return rows + np.arange(16)[: rows.shape[1]], labels


# One is longer that is neither in the first nor the last batch.
RARELY = tokens(*[9 if n == 21 else 5 for n in range(COUNT)])
EQUAL_AT_FIRST = tokens(*[5] * 16, *range(1, COUNT))
LONG = tokens(*[20 + n % 7 for n in range(COUNT)])
IMAGES = [(np.ones((9 if n == 21 else 6, 6, 3), "f4"), np.float32(1)) for n in range(COUNT)]
PAIRS = [
    ((np.ones((3 + n % 4, 1), "f4"), np.ones((2 if n == 21 else 1, 1), "f4")), np.float32(1))
    for n in range(COUNT)
]


@pytest.mark.parametrize(
    ("samples", "options"),
    [
        pytest.param(RARELY, {"collate": pad(), "workers": 2}, id="rarely"),
        pytest.param(EQUAL_AT_FIRST, {"collate": pad(0, 16)}, id="equal at first"),
        pytest.param(LONG, {"collate": pad(max_length=16), "batch_transform": placed}, id="long"),
        pytest.param(IMAGES, {"collate": pad(axis=(0, 1))}, id="images"),
        pytest.param(PAIRS, {"collate": pad((0, 0))}, id="a value for each member"),
    ],
)
def test_padded_lengths(samples, options):
    recorder = built_recorder()
    with SafeSequence(samples, 8, **{"workers": 0, **options}) as sequence:
        recorder.fit(sequence, epochs=2, shuffle=False, verbose=0)
        recorder.evaluate(sequence, verbose=0)
        expected = list(sequence)
    np.testing.assert_equal(recorder.lists.trained, 2 * expected)
    np.testing.assert_equal(recorder.lists.tested, expected)


def test_padded_lengths_compiled():
    layers = [keras.layers.Embedding(50, 4), keras.layers.GlobalAveragePooling1D()]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with SafeSequence(RARELY, 8, collate=pad(), workers=0) as sequence:
        assert np.isfinite(model.fit(sequence, verbose=0).history["loss"]).all()
        assert np.isfinite(model.evaluate(sequence, verbose=0))


def test_padded_labels_of_one_number():
    """By the length of 1, Keras tells them from one-hot vectors."""
    samples = [(np.full(5, n % 9), np.array([n % 3])) for n in range(COUNT)]
    layers = [keras.layers.Embedding(9, 3, "ones"), keras.layers.GlobalAveragePooling1D()]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=["accuracy"])
    with SafeSequence(samples, 8, collate=pad(), workers=0) as sequence:
        found = model.evaluate(sequence, verbose=0, return_dict=True)["accuracy"]
    assert found == pytest.approx(sum(n % 3 == 0 for n in range(COUNT)) / COUNT)


def _longest(samples: list[Any]) -> Any:
    width = max(len(row) for row, _ in samples)
    rows = np.stack([np.resize(row, width) for row, _ in samples])
    return rows, np.stack([label for _, label in samples])


@ON_TENSORFLOW
@pytest.mark.parametrize(
    ("samples", "arguments", "message"),
    [
        (PAIRS, {"collate": pad()}, r"number 2 of epoch 0 .*pad\(\(0, 0\)\)"),
        (
            RARELY,
            {"collate": _longest},
            r"shape \(8, 9\), .*\(None, 5\); pad, crop or resize .* one of the first two",
        ),
    ],
    ids=["pad", "collate"],
)
def test_shapes_that_differ_late(samples, arguments, message):
    with (
        SafeSequence(samples, 8, workers=0, **arguments) as sequence,
        pytest.raises(ValueError, match=message),
    ):
        built_recorder().fit(sequence, shuffle=False, verbose=0)


@ON_TENSORFLOW
@pytest.mark.parametrize(
    ("multiple", "lengths"),
    [
        pytest.param(1, [1 + n % 7 for n in range(COUNT)], id="several"),
        pytest.param(16, [5] * COUNT, id="one"),
        pytest.param(16, [9 if n == 21 else 5 for n in range(COUNT)], id="rare"),
    ],
)
def test_ragged_tensors(multiple, lengths):
    import tensorflow as tf

    def rows(batch: Any) -> Any:
        (values, splits), labels = batch
        values = values if multiple == 1 else values[: splits[-1]]
        return tf.RaggedTensor.from_row_splits(values, splits), labels

    samples, recorder = tokens(*lengths), Recorder(on_host=False)
    options = {"collate": ragged(to_multiple_of=multiple), "batch_transform": rows, "workers": 2}
    internals.build(recorder, numbered(2))
    with SafeSequence(samples, 8, **options) as sequence:
        recorder.fit(sequence, epochs=2, shuffle=False, verbose=0)
    found = [row for batch in recorder.lists.trained for row in batch[0].to_list()]
    assert found == 2 * [row.tolist() for row, _ in samples]


@pytest.mark.skipif(BACKEND != "jax", reason="its layer is written for JAX")
@pytest.mark.one_keras  # Keras 3.6 takes no tuple for a list of inputs.
def test_ragged_batches_compiled():
    import jax

    def summed(batch: Any) -> Any:
        values, splits = batch
        place = jax.numpy.searchsorted(splits[1:], jax.numpy.arange(len(values)), side="right")
        return jax.ops.segment_sum(values, place, num_segments=len(splits) - 1)[:, None]

    inputs = [keras.Input((), dtype="float32"), keras.Input((), dtype="int32")]
    sums = keras.layers.Lambda(summed, output_shape=(1,))(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(sums))
    model.compile(keras.optimizers.SGD(1e-6), "mse", metrics=["mae"])
    samples = tokens(*[1 + n % 29 for n in range(COUNT)])
    with SafeSequence(samples, 8, collate=ragged(0, 64), workers=0) as sequence:
        found = model.evaluate(sequence, verbose=0, return_dict=True)["mae"]
        losses = model.fit(sequence, epochs=2, shuffle=False, verbose=0).history["loss"]
    assert found == pytest.approx(np.mean([abs(row.sum() - label) for row, label in samples]))
    assert losses[1] < losses[0]


@ON_TENSORFLOW
def test_sparse_tensors():
    import tensorflow as tf

    model = keras.Sequential([keras.Input((5,), sparse=True), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    data = np.eye(5, dtype="f4")[np.arange(SAMPLES) % 5], np.ones(SAMPLES, "f4")
    expected = model.evaluate(*data, verbose=0)
    sparse = {"batch_transform": lambda batch: (tf.sparse.from_dense(batch[0]), batch[1])}
    with SafeSequence(data, 4, workers=0, **sparse) as sequence:
        assert model.evaluate(sequence, verbose=0) == pytest.approx(expected)
        model.fit(sequence, verbose=0)
