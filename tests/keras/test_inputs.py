"""What batches may hold: weights, dicts, nested inputs, texts, dtypes, shapes that vary, tensors.

Also ``transform``, ``collate`` and ``batch_transform`` in their order, and what ``fit`` refuses.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import numpy as np
import pytest

from adapters import SafeSequence, pad, ragged
from tests.keras.py_datasets import Given
from tests.keras.recording import (
    BACKEND,
    INLINE,
    KINDS_OF_WORKERS,
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


def trained_on(source: Any, workers: Any = TWO_THREADS, **fit: Any) -> list[Any]:
    recorder = Recorder()
    with SafeSequence(source, 4, **workers) as sequence:
        recorder.fit(sequence, shuffle=False, verbose=0, **fit)
    return recorder.lists.trained


def joined(parts: list[Any]) -> np.ndarray:
    return np.concatenate([np.asarray(part) for part in parts])


ON_TENSORFLOW = pytest.mark.skipif(BACKEND != "tensorflow", reason="others take each as it is")
WORKERS = pytest.mark.parametrize("workers", [INLINE, TWO_THREADS], ids=["inline", "threads"])
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
        *(pytest.param((X.astype(d), Y), id=d) for d in ("uint8", "int32", "float16")),
    ],
)
def test_structures_and_dtypes(source):
    batches = trained_on(source)
    keras.tree.assert_same_structure(batches[0][0], source[0])
    columns = zip(*(keras.tree.flatten(batch) for batch in batches))
    for column, given in zip(columns, keras.tree.flatten(source), strict=True):
        found = joined(column)
        np.testing.assert_array_equal(found, given)
        assert found.dtype == given.dtype


def test_none_at_the_end():
    features, labels = numbered(SAMPLES)
    batches = trained_on((features, labels, None))
    np.testing.assert_array_equal(joined([batch[1] for batch in batches]), labels)
    assert [len(batch) for batch in SafeSequence((features, None, None), 4)] == [1, 1, 1]


def test_class_weight():
    features, _ = numbered(SAMPLES)
    batches = trained_on((features, CLASSES), class_weight={0: 1.0, 1: 5.0, 2: 9.0})
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
        trained_on(source, **fit)


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_random_transforms(workers):
    """The first draw of each batch, as it was written down once."""

    def draw(sample: Any, rng: np.random.Generator) -> Any:
        return np.float32([rng.integers(1000)]), sample[1]

    recorder = Recorder()
    with SafeSequence(numbered(8), 4, transform=draw, seed=3, **workers) as sequence:
        recorder.fit(sequence, epochs=2, shuffle=False, verbose=0)
    assert [batch[0] for batch in recorder.trained] == [657, 231, 986, 192]


@pytest.mark.skipif(BACKEND != "tensorflow", reason="the other backends know no texts")
@pytest.mark.parametrize(("kind", "workers"), [(object, 2), (str, 0), (bytes, 2)])
def test_texts(kind, workers):
    words = np.array(["a", "bb", "ccc"] * 8).astype("S3" if kind is bytes else kind)
    inputs = keras.Input((), dtype="string")
    numbered = keras.layers.StringLookup(vocabulary=["a", "bb", "ccc"])(inputs)
    outputs = keras.layers.Dense(1)(keras.layers.Embedding(8, 2)(numbered))
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse")
    with SafeSequence((words, np.zeros(24)), 8, workers=workers) as sequence:
        model.fit(sequence, verbose=0)
    with SafeSequence(words, 8, workers=workers) as sequence:
        found = model.predict(sequence, verbose=0)
    np.testing.assert_allclose(found[:3], found[3:6], rtol=1e-6)
    assert len(np.unique(found)) == 3


def test_transform_collate_batch_transform():
    with SafeSequence(
        [1, 2, 3],
        2,
        transform=lambda sample: sample * 10,
        collate=lambda samples: {"sum": np.array(samples).sum(keepdims=True)},
        batch_transform=lambda batch: {"sum": batch["sum"] + 1},
        **TWO_THREADS,
    ) as sequence:
        assert [batch["sum"].tolist() for batch in sequence] == [[31], [31]]


@pytest.mark.one_backend
def test_collate_of_arrays_gets_samples():
    sequence = SafeSequence((np.arange(6), np.arange(6)), 3, collate=list, workers=0)
    assert [tuple(map(int, sample)) for sample in sequence[1]] == [(3, 3), (4, 4), (5, 5)]


# --- whole batches, and how unlike each other they may be ---


def trained_on_batches(batches: list[Any], workers: dict[str, Any]) -> list[Any]:
    """What a model is given of these batches, in order."""
    recorder = built_recorder()
    with SafeSequence(Given(*batches), **workers) as sequence:
        recorder.fit(sequence, shuffle=False, verbose=0)
    return recorder.lists.trained


@pytest.mark.skipif(BACKEND != "jax", reason="Keras takes SciPy's matrices on JAX alone")
@pytest.mark.parametrize("workers", [TWO_THREADS, PROCESSES])
def test_sparse_matrices(workers):
    sparse = pytest.importorskip("scipy.sparse", reason="no dependency of this package")
    inputs = keras.Input((6,), sparse=True)
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse", jit_compile=False)
    dense = np.eye(4, 6, dtype=np.float32)
    batch = sparse.csr_matrix(dense), Y[:4]
    expected = model.evaluate(dense, Y[:4], verbose=0)
    with SafeSequence(Given(batch, batch), **workers) as sequence:
        assert model.evaluate(sequence, verbose=0) == pytest.approx(expected)
        model.fit(sequence, verbose=0)


@ON_TENSORFLOW
@WORKERS
@pytest.mark.parametrize("given", [(X, None), (X, Y, None), (X, None, None)])
def test_none_at_the_end_of_a_batch(given, workers):
    there = sum(member is not None for member in given)
    assert [len(batch) for batch in trained_on_batches([given, given], workers)] == [there, there]


@ON_TENSORFLOW
@pytest.mark.parametrize(
    ("given", "place"), [(({"a": X, "b": None}, Y), r"\[0\]\['b'\]"), ((X, None, Y), r"\[1\]")]
)
def test_none_within_a_batch(given, place):
    with pytest.raises(ValueError, match=rf"got None as batch{place}: leave it out"):
        trained_on_batches([given, given], INLINE)


@ON_TENSORFLOW
@WORKERS
@pytest.mark.parametrize(("first", "later"), [("int64", "float64"), ("bool", "int64")])
def test_dtype_that_would_lose_numbers(first, later, workers):
    batches = [(X, Y.astype(first))] * 3 + [(X, (Y + 0.5).astype(later))]
    message = rf"number 3 of epoch 0 has an array of {later}, the first ones had {first}; give"
    with pytest.raises(ValueError, match=message):
        trained_on_batches(batches, workers)


@ON_TENSORFLOW
@WORKERS
@pytest.mark.parametrize(("first", "later"), [("float32", "float64"), ("int64", "int8")])
def test_dtype_that_means_the_same(first, later, workers):
    trained = trained_on_batches([(X, Y.astype(first))] * 3 + [(X, Y.astype(later))], workers)
    assert [labels.dtype for _, labels in trained] == [np.dtype(first)] * 4
    np.testing.assert_array_equal([labels for _, labels in trained], [Y] * 4)


@pytest.mark.skipif(BACKEND != "torch", reason="its own tensors")
@WORKERS
def test_tensors_of_bfloat16(workers):
    import torch

    features = torch.from_numpy(X[:4]).to(torch.bfloat16)
    recorder = Recorder(on_host=False)
    with SafeSequence(list(zip(features, Y)), 2, **workers) as sequence:
        recorder.fit(sequence, shuffle=False, verbose=0)
    with SafeSequence(Given((features[:1], Y[:1])), **workers) as sequence:
        recorder.fit(sequence, shuffle=False, verbose=0)
    trained = [batch[0] for batch in recorder.lists.trained]
    assert {batch.dtype for batch in trained} == {torch.bfloat16}
    assert torch.cat(trained).ravel().tolist() == [0, 1, 2, 3, 0]


# --- shapes that first differ late, and ragged ones ---


COUNT = 64


def tokens(*lengths: int) -> list[Any]:
    return [(np.full(length, 1 + n % 9), np.float32(n % 2)) for n, length in enumerate(lengths)]


def rarely(length: int, rare: int, at: int = 21) -> list[Any]:
    """Samples of a length, and a longer one that is neither in the first nor the last batch."""
    return tokens(*[rare if n == at else length for n in range(COUNT)])


def bag_of_words() -> keras.Model:
    layers = [keras.layers.Embedding(50, 4), keras.layers.GlobalAveragePooling1D()]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def learnt(model: keras.Model, sequence: SafeSequence) -> None:
    with sequence:
        losses = model.fit(sequence, epochs=2, shuffle=False, verbose=0).history["loss"]
        assert np.isfinite(losses).all()
        assert np.isfinite(model.evaluate(sequence, verbose=0))


def _longest(samples: list[Any]) -> Any:
    width = max(len(row) for row, _ in samples)
    rows = np.stack([np.resize(row, width) for row, _ in samples])
    return rows, np.stack([label for _, label in samples])


def placed(batch: Any) -> Any:
    """Adds an array of the longest length that there can be, which a longer batch wouldn't fit."""
    rows, labels = batch
    assert rows.shape[1] <= 16
    return rows + np.arange(16)[: rows.shape[1]], labels


def model_of_images() -> keras.Model:
    layers = [keras.Input((None, None, 3)), keras.layers.Conv2D(1, 3, padding="same")]
    model = keras.Sequential([*layers, keras.layers.GlobalAveragePooling2D()])
    model.compile("sgd", "mse")
    return model


RARELY = rarely(5, 9)
EQUAL_AT_FIRST = tokens(*[5] * 16, *range(1, COUNT))
LONG = tokens(*[20 + n % 7 for n in range(COUNT)])
IMAGES = [(np.ones((9 if n == 21 else 6, 6, 3), "f4"), np.float32(1)) for n in range(COUNT)]


@pytest.mark.parametrize(
    ("model", "samples", "options"),
    [
        pytest.param(bag_of_words, RARELY, {"collate": pad(), "workers": 2}, id="rarely"),
        pytest.param(bag_of_words, EQUAL_AT_FIRST, {"collate": pad(0, 16)}, id="equal at first"),
        pytest.param(
            bag_of_words,
            LONG,
            {"collate": pad(max_length=16), "batch_transform": placed},
            id="longest",
        ),
        pytest.param(model_of_images, IMAGES, {"collate": pad(axis=(0, 1))}, id="images"),
    ],
)
def test_padded_lengths(model, samples, options):
    learnt(model(), SafeSequence(samples, 8, **{"workers": 0, **options}))


def test_padded_labels_of_one_number():
    """By the length of 1, Keras tells them from one-hot vectors."""
    samples = [(np.full(5, n % 9), np.array([n % 3])) for n in range(COUNT)]
    layers = [keras.layers.Embedding(50, 4), keras.layers.GlobalAveragePooling1D()]
    model = keras.Sequential([*layers, keras.layers.Dense(3, bias_initializer=_sure)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.0), loss, metrics=["accuracy"])
    with SafeSequence(samples, 8, collate=pad(), workers=0) as sequence:
        found = model.evaluate(sequence, verbose=0, return_dict=True)["accuracy"]
    assert found == pytest.approx(sum(n % 3 == 2 for n in range(COUNT)) / COUNT)


def _sure(shape: Any, dtype: Any = None) -> Any:
    return keras.ops.convert_to_tensor([0.0, 0.0, 9.0], dtype)


def _of_two_inputs() -> keras.Model:
    inputs = [keras.Input((None, 1)), keras.Input((None, 1))]
    pooled = [keras.layers.GlobalAveragePooling1D()(each) for each in inputs]
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(pooled)))
    model.compile("sgd", "mse")
    return model


def samples_of_two() -> list[Any]:
    return [
        ((np.ones((3 + n % 4, 1), "f4"), np.ones((2 if n == 21 else 1, 1), "f4")), np.float32(1))
        for n in range(COUNT)
    ]


@pytest.mark.one_keras  # As below.
@ON_TENSORFLOW
def test_padded_member_that_varies_rarely():
    sequence = SafeSequence(samples_of_two(), 8, collate=pad(), workers=0)
    with pytest.raises(ValueError, match=r"number 2 of epoch 0 .*pad\(\(0, 0\)\)"):
        _of_two_inputs().fit(sequence, shuffle=False, verbose=0)


@pytest.mark.one_keras  # Keras 3.6 takes no tuple for a list of inputs.
def test_padded_with_a_value_for_each_member():
    learnt(_of_two_inputs(), SafeSequence(samples_of_two(), 8, collate=pad((0, 0)), workers=0))


@ON_TENSORFLOW
@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        ({"collate": _longest}, r"have collate give .*adapters\.pad\(\)"),
        (
            {"collate": list, "batch_transform": _longest},
            "have batch_transform give all of them equal shapes there; or let one of the first two",
        ),
    ],
)
def test_shapes_that_differ_late(arguments, remedy):
    sequence = SafeSequence(rarely(5, 9), 8, workers=0, **arguments)
    with pytest.raises(ValueError, match=r"shape \(8, 9\), .*\(None, 5\); " + remedy):
        bag_of_words().fit(sequence, shuffle=False, verbose=0)


def summed() -> Any:
    """A model of ragged tokens: a number for each, summed up."""
    import tensorflow as tf

    class Summed(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.table = self.add_weight(shape=(50, 1))

        def call(self, rows: Any) -> Any:
            return tf.reduce_sum(tf.ragged.map_flat_values(tf.gather, self.table, rows), axis=1)

    model = Summed()
    model.compile("sgd", "mse")
    return model


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
        return tf.RaggedTensor.from_row_splits(values[: splits[-1]], splits), labels

    def exact(batch: Any) -> Any:
        (values, splits), labels = batch
        return tf.RaggedTensor.from_row_splits(values, splits), labels

    function = exact if multiple == 1 else rows
    collate = ragged(to_multiple_of=multiple)
    sequence = SafeSequence(
        tokens(*lengths), 8, collate=collate, batch_transform=function, workers=2
    )
    learnt(summed(), sequence)


@ON_TENSORFLOW
def test_sparse_tensors():
    import tensorflow as tf

    def sparse(batch: Any) -> Any:
        return tf.sparse.from_dense(batch[0]), batch[1]

    model = keras.Sequential([keras.Input((5,), sparse=True), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = np.eye(5, dtype="f4")[np.arange(COUNT) % 5], np.ones(COUNT, "f4")
    learnt(model, SafeSequence(data, 8, batch_transform=sparse, workers=0))


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="its layer is written for JAX")
@pytest.mark.one_keras  # Keras 3.6 takes no tuple for a list of inputs.
def test_ragged_batches():
    import jax

    def summed(batch: Any) -> Any:
        values, splits = batch
        place = jax.numpy.searchsorted(splits[1:], jax.numpy.arange(len(values)), side="right")
        return jax.ops.segment_sum(values, place, num_segments=len(splits) - 1)

    values, splits = keras.Input((), dtype="int32"), keras.Input((), dtype="int32")
    embedded = keras.layers.Embedding(50, 1)(values)
    rows = keras.layers.Lambda(summed, output_shape=(1,))([embedded, splits])
    model = keras.Model([values, splits], keras.layers.Dense(1)(rows))
    model.compile("sgd", "mse")
    sequence = SafeSequence(
        tokens(*[1 + n % 29 for n in range(COUNT)]), 8, collate=ragged(0, 64), workers=0
    )
    (batch, row_splits), labels = sequence[0]
    assert (len(batch) % 64, len(row_splits), len(labels)) == (0, 9, 8)
    assert np.isfinite(model.fit(sequence, verbose=0).history["loss"]).all()
