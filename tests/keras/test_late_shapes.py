"""Batches whose shapes first differ late, and ragged ones, in ``fit``."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence, pad, ragged
from tests.keras.recording import BACKEND

pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")

tensorflow_only = pytest.mark.skipif(
    BACKEND != "tensorflow", reason="TensorFlow alone wants to know shapes ahead"
)
WORKERS = [pytest.param(0, id="inline"), pytest.param(2, id="threads")]
COUNT = 64


def tokens(*lengths: int) -> list[Any]:
    """Samples of these lengths, each with a label."""
    return [(np.full(length, 1 + n % 9), np.float32(n % 2)) for n, length in enumerate(lengths)]


def rarely(length: int, rare: int, at: int = 21) -> list[Any]:
    """Samples of a length, and a longer one that is neither in the first nor the last batch."""
    return tokens(*[rare if n == at else length for n in range(COUNT)])


def bag_of_words() -> keras.Model:
    layers = [keras.layers.Embedding(50, 4), keras.layers.GlobalAveragePooling1D()]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def trained(model: keras.Model, sequence: SafeSequence) -> None:
    with sequence:
        losses = model.fit(sequence, epochs=2, shuffle=False, verbose=0).history["loss"]
        assert np.isfinite(losses).all()
        assert np.isfinite(model.evaluate(sequence, verbose=0))


@pytest.mark.parametrize("workers", WORKERS)
def test_a_rare_longer_sample_is_padded_to(workers):
    trained(bag_of_words(), SafeSequence(rarely(5, 9), 8, collate=pad(), workers=workers))


def test_a_rare_longer_sample_that_a_transform_sees():
    """A transform that gives another structure, and shapes that follow the length."""

    def shifted(batch: Any) -> Any:
        rows, labels = batch
        return {"tokens": rows[:, 1:]}, labels

    inputs = keras.Input((None,), name="tokens", dtype="int32")
    pooled = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(50, 4)(inputs))
    model = keras.Model({"tokens": inputs}, keras.layers.Dense(1)(pooled))
    model.compile("sgd", "mse")
    sequence = SafeSequence(rarely(5, 9), 8, collate=pad(), batch_transform=shifted, workers=0)
    trained(model, sequence)


def test_a_transform_never_sees_more_than_the_longest_that_there_can_be():
    """It adds an array of that length, which a longer batch wouldn't fit."""
    places = np.arange(16)

    def placed(batch: Any) -> Any:
        rows, labels = batch
        assert rows.shape[1] <= 16
        return rows + places[: rows.shape[1]], labels

    samples = tokens(*[20 + n % 7 for n in range(COUNT)])
    collate = pad(max_length=16)
    trained(
        bag_of_words(), SafeSequence(samples, 8, collate=collate, batch_transform=placed, workers=0)
    )


def test_images_of_which_few_are_larger():
    images = [(np.ones((9 if n == 21 else 6, 6, 3), "f4"), np.float32(1)) for n in range(COUNT)]
    model = keras.Sequential(
        [keras.Input((None, None, 3)), keras.layers.Conv2D(1, 3, padding="same")]
    )
    model.add(keras.layers.GlobalAveragePooling2D())
    model.compile("sgd", "mse")
    trained(model, SafeSequence(images, 8, collate=pad(axis=(0, 1)), workers=0))


def test_labels_of_one_number_stay_labels():
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
@tensorflow_only
def test_a_member_that_varies_more_rarely_than_others_is_told_with_a_remedy():
    sequence = SafeSequence(samples_of_two(), 8, collate=pad(), workers=0)
    with pytest.raises(ValueError, match=r"number 2 of epoch 0 .*pad\(\(0, 0\)\)"):
        _of_two_inputs().fit(sequence, shuffle=False, verbose=0)


@pytest.mark.one_keras  # Keras 3.6 takes no tuple for a list of inputs.
def test_a_value_for_each_member_says_that_all_vary():
    trained(_of_two_inputs(), SafeSequence(samples_of_two(), 8, collate=pad((0, 0)), workers=0))


def _longest(samples: list[Any]) -> Any:
    width = max(len(row) for row, _ in samples)
    rows = np.stack([np.resize(row, width) for row, _ in samples])
    return rows, np.stack([label for _, label in samples])


@tensorflow_only
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
def test_others_that_differ_late_are_told_with_the_remedy(arguments, remedy):
    sequence = SafeSequence(rarely(5, 9), 8, workers=0, **arguments)
    with pytest.raises(ValueError, match=r"shape \(8, 9\), .*\(None, 5\); " + remedy):
        bag_of_words().fit(sequence, shuffle=False, verbose=0)


@tensorflow_only
def test_tensors_that_differ_late_are_told_too():
    import tensorflow as tf

    def tensors(batch: Any) -> Any:
        return tuple(map(tf.constant, _longest(batch)))

    arguments: Any = {"collate": list, "batch_transform": tensors}
    sequence = SafeSequence(rarely(5, 9), 8, workers=0, **arguments)
    with pytest.raises(ValueError, match="have batch_transform give all of them equal"):
        bag_of_words().fit(sequence, shuffle=False, verbose=0)


# --- TensorFlow's own ragged tensors ---


def summed() -> Any:
    """A model of ragged tokens: a number for each, summed up."""
    import tensorflow as tf

    class Summed(keras.Model):
        """Of a table of numbers."""

        def __init__(self) -> None:
            super().__init__()
            self.table = self.add_weight(shape=(50, 1))

        def call(self, rows: Any) -> Any:
            return tf.reduce_sum(tf.ragged.map_flat_values(tf.gather, self.table, rows), axis=1)

    model = Summed()
    model.compile("sgd", "mse")
    return model


@tensorflow_only
@pytest.mark.parametrize("multiple", [1, 16])
@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param([1 + n % 7 for n in range(COUNT)], id="several"),
        pytest.param([5] * COUNT, id="one"),
        pytest.param([9 if n == 21 else 5 for n in range(COUNT)], id="rare"),
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
    trained(summed(), sequence)


@tensorflow_only
def test_ragged_rows_of_vectors_and_their_dense_form():
    import tensorflow as tf

    def dense(batch: Any) -> Any:
        (values, splits), labels = batch
        return tf.RaggedTensor.from_row_splits(values, splits).to_tensor(), labels

    trained(
        bag_of_words(),
        SafeSequence(rarely(5, 9), 8, collate=ragged(), batch_transform=dense, workers=0),
    )


@tensorflow_only
def test_sparse_tensors():
    import tensorflow as tf

    def sparse(batch: Any) -> Any:
        return tf.sparse.from_dense(batch[0]), batch[1]

    model = keras.Sequential([keras.Input((5,), sparse=True), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = np.eye(5, dtype="f4")[np.arange(COUNT) % 5], np.ones(COUNT, "f4")
    trained(model, SafeSequence(data, 8, batch_transform=sparse, workers=0))
