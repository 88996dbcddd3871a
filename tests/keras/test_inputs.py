"""What batches may hold: weights, dicts, nested inputs, dtypes, and what ``fit`` adds to them."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import numpy as np
import pytest

from adapters import SafeSequence
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
    """The batches of one epoch, in order."""
    recorder = Recorder()
    with SafeSequence(source, 4, **workers) as sequence:
        recorder.fit(sequence, shuffle=False, verbose=0, **fit)
    return recorder.lists.trained


def joined(parts: list[Any]) -> np.ndarray:
    return np.concatenate([np.asarray(part) for part in parts])


def test_sample_weights_arrive_beside_their_samples():
    batches = trained_on((*numbered(SAMPLES), WEIGHTS))
    np.testing.assert_array_equal(joined([weights for _, _, weights in batches]), WEIGHTS)


def test_members_that_are_none_at_the_end_are_absent():
    features, labels = numbered(SAMPLES)
    batches = trained_on((features, labels, None))
    np.testing.assert_array_equal(joined([batch[1] for batch in batches]), labels)
    assert [len(batch) for batch in SafeSequence((features, None, None), 4)] == [1, 1, 1]


def test_class_weight_becomes_the_weight_of_each_sample():
    features, _ = numbered(SAMPLES)
    batches = trained_on((features, CLASSES), class_weight={0: 1.0, 1: 5.0, 2: 9.0})
    expected = np.array([1.0, 5.0, 9.0])[CLASSES]
    np.testing.assert_array_equal(joined([weights for _, _, weights in batches]).ravel(), expected)


def test_class_weight_and_sample_weight_are_refused_by_keras():
    features, _ = numbered(SAMPLES)
    with pytest.raises(ValueError, match=r"`class_weight` and `sample_weight`"):
        trained_on((features, CLASSES, WEIGHTS), class_weight={0: 1.0, 1: 5.0, 2: 9.0})


def test_labels_beside_the_sequence_are_refused_by_keras():
    features, labels = numbered(SAMPLES)
    with pytest.raises(ValueError, match=r"`y` should not be passed"):
        Recorder().fit(SafeSequence(features, 4), labels, verbose=0)


def test_inputs_may_be_a_dict():
    features, labels = numbered(SAMPLES)
    batches = trained_on(({"first": features, "second": 2 * features}, labels))
    for name, factor in (("first", 1), ("second", 2)):
        column = joined([inputs[name] for inputs, _ in batches])
        np.testing.assert_array_equal(column, factor * features)


def test_a_batch_may_be_a_named_tuple():
    class Sample(NamedTuple):
        image: Any
        label: Any

    recorder = Recorder()
    features, labels = numbered(12)
    with SafeSequence(Sample(features, labels), 4, **TWO_THREADS) as sequence:
        recorder.fit(sequence, shuffle=False, verbose=0)
    found = [np.concatenate(column) for column in zip(*recorder.lists.trained)]
    np.testing.assert_array_equal(found, [features, labels])


def test_inputs_may_be_nested():
    features, labels = numbered(SAMPLES)
    tree = {"pair": (features, {"inner": features + 1}), "alone": features + 2}
    batches = trained_on((tree, labels))
    for pick, added in (
        (lambda inputs: inputs["pair"][0], 0),
        (lambda inputs: inputs["pair"][1]["inner"], 1),
        (lambda inputs: inputs["alone"], 2),
    ):
        np.testing.assert_array_equal(joined([pick(x) for x, _ in batches]), features + added)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float16"])
def test_dtypes_arrive_as_they_are(dtype):
    features = np.arange(SAMPLES).reshape(-1, 1).astype(dtype)
    batches = trained_on((features, CLASSES.astype("float32")))
    assert {batch.dtype.name for batch, _ in batches} == {dtype}


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_samples_may_come_from_a_list_through_transforms(workers):
    samples = [(np.float32([number]), number % 2) for number in range(SAMPLES)]
    recorder = Recorder()
    with SafeSequence(
        samples,
        4,
        transform=lambda sample: (sample[0] + 1, sample[1]),
        batch_transform=lambda batch: (batch[0] * 10, batch[1]),
        **workers,
    ) as sequence:
        recorder.fit(sequence, shuffle=False, verbose=0)
    features = joined([batch[0] for batch in recorder.lists.trained])
    assert features.ravel().tolist() == [10.0 * number for number in range(1, SAMPLES + 1)]


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_random_transforms_do_not_depend_on_the_workers(workers):
    """The first draw of each batch, as it was written down once."""

    def draw(sample: Any, rng: np.random.Generator) -> Any:
        return np.float32([rng.integers(1000)]), sample[1]

    recorder = Recorder()
    with SafeSequence(numbered(8), 4, transform=draw, seed=3, **workers) as sequence:
        recorder.fit(sequence, epochs=2, shuffle=False, verbose=0)
    assert [batch[0] for batch in recorder.trained] == [657, 231, 986, 192]


# Keras 3.6 says it of a tuple where the model has a list.
@pytest.mark.filterwarnings("ignore:The structure of `inputs`")
def test_several_inputs_in_a_list_arrive_as_keras_takes_them():
    first, second = np.zeros((SAMPLES, 2), np.float32), np.ones((SAMPLES, 3), np.float32)
    left, right = keras.Input((2,)), keras.Input((3,))
    model = keras.Model(
        [left, right], keras.layers.Dense(1)(keras.layers.concatenate([left, right]))
    )
    model.compile(loss="mse")
    with SafeSequence(([first, second], numbered(SAMPLES)[1]), 4, **TWO_THREADS) as sequence:
        losses = model.evaluate(sequence, verbose=0)
        np.testing.assert_allclose(
            losses, model.evaluate([first, second], numbered(SAMPLES)[1], verbose=0), rtol=1e-5
        )
        (a, b), labels = sequence[0]
    assert (a.shape, b.shape, labels.shape) == ((4, 2), (4, 3), (4, 1))


@pytest.fixture(scope="module")
def zarr_array() -> Any:
    """An array that has started all threads that zarr keeps."""
    zarr = pytest.importorskip("zarr", minversion="3", reason="no dependency of this package")
    with zarr.config.set({"threading.max_workers": 1}):
        array = zarr.array(np.arange(SAMPLES * 2).reshape(SAMPLES, 2), chunks=(4, 2))
        assert array[0].tolist() == [0, 1]
    return array


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_zarr_array_is_read_by_rows(shuffle, zarr_array, monkeypatch):
    monkeypatch.setattr(type(zarr_array), "__array__", None)  # Nobody may read it whole.
    expected = np.arange(SAMPLES * 2).reshape(SAMPLES, 2)
    with SafeSequence(zarr_array, 4, shuffle=shuffle, **TWO_THREADS) as sequence:
        rows = np.concatenate(list(sequence))
    np.testing.assert_array_equal(rows[np.argsort(rows[:, 0])], expected)
    assert (rows == expected).all() == (not shuffle)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="the other backends know no texts")
@pytest.mark.parametrize("kind", [object, str, bytes])
@pytest.mark.parametrize("workers", [0, 2])
def test_texts_are_trained_on(kind, workers):
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


# --- whole batches, and how unlike each other they may be ---

X, Y = numbered(4)
WORKERS = pytest.mark.parametrize("workers", [INLINE, TWO_THREADS], ids=["inline", "threads"])
ON_TENSORFLOW = pytest.mark.skipif(BACKEND != "tensorflow", reason="others take each as it is")


def trained_on_batches(batches: list[Any], workers: dict[str, Any]) -> list[Any]:
    """What a model is given of these batches, in order."""
    recorder = built_recorder()
    with SafeSequence(Given(*batches), **workers) as sequence:
        recorder.fit(sequence, shuffle=False, verbose=0)
    return recorder.lists.trained


@pytest.mark.skipif(BACKEND != "jax", reason="Keras takes SciPy's matrices on JAX alone")
@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS, PROCESSES])
def test_sparse_matrices_are_trained_on_batches(workers):
    sparse = pytest.importorskip("scipy.sparse", reason="no dependency of this package")
    inputs = keras.Input((6,), sparse=True)
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse", jit_compile=False)
    dense = np.eye(4, 6, dtype=np.float32)
    batch = sparse.csr_matrix(dense), Y
    expected = model.evaluate(dense, Y, verbose=0)
    with SafeSequence(Given(batch, batch), **workers) as sequence:
        assert model.evaluate(sequence, verbose=0) == pytest.approx(expected)
        model.fit(sequence, verbose=0)


@ON_TENSORFLOW
@WORKERS
@pytest.mark.parametrize("given", [(X, None), (X, Y, None), (X, None, None)])
def test_members_that_are_none_at_the_end_of_a_batch_are_absent(given, workers):
    there = sum(member is not None for member in given)
    assert [len(batch) for batch in trained_on_batches([given, given], workers)] == [there, there]


@ON_TENSORFLOW
@pytest.mark.parametrize(
    ("given", "place"), [(({"a": X, "b": None}, Y), r"\[0\]\['b'\]"), ((X, None, Y), r"\[1\]")]
)
def test_none_within_a_batch_is_refused_by_its_place(given, place):
    with pytest.raises(ValueError, match=rf"got None as batch{place}: leave it out"):
        trained_on_batches([given, given], INLINE)


@ON_TENSORFLOW
@WORKERS
@pytest.mark.parametrize(("first", "later"), [("int64", "float64"), ("bool", "int64")])
def test_a_dtype_that_would_lose_numbers_is_refused_by_the_batches_number(first, later, workers):
    batches = [(X, Y.astype(first))] * 3 + [(X, (Y + 0.5).astype(later))]
    message = rf"number 3 of epoch 0 has an array of {later}, the first ones had {first}; give"
    with pytest.raises(ValueError, match=message):
        trained_on_batches(batches, workers)


@ON_TENSORFLOW
@WORKERS
@pytest.mark.parametrize(("first", "later"), [("float32", "float64"), ("int64", "int8")])
def test_a_dtype_that_means_the_same_numbers_becomes_that_of_the_first_batches(
    first, later, workers
):
    trained = trained_on_batches([(X, Y.astype(first))] * 3 + [(X, Y.astype(later))], workers)
    assert [labels.dtype for _, labels in trained] == [np.dtype(first)] * 4
    np.testing.assert_array_equal([labels for _, labels in trained], [Y] * 4)


@pytest.mark.skipif(BACKEND != "torch", reason="its own tensors")
@WORKERS
def test_tensors_of_bfloat16_arrive_as_they_are(workers):
    import torch

    features = torch.from_numpy(X).to(torch.bfloat16)
    recorder = Recorder(on_host=False)
    with SafeSequence(list(zip(features, Y)), 2, **workers) as sequence:
        recorder.fit(sequence, shuffle=False, verbose=0)
    with SafeSequence(Given((features[:1], Y[:1])), **workers) as sequence:
        recorder.fit(sequence, shuffle=False, verbose=0)
    trained = [batch[0] for batch in recorder.lists.trained]
    assert {batch.dtype for batch in trained} == {torch.bfloat16}
    assert torch.cat(trained).ravel().tolist() == [0, 1, 2, 3, 0]
