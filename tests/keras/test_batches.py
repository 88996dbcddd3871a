"""What whole batches may hold, and how unlike each other they may be."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from tests.keras.py_datasets import Given
from tests.keras.recording import BACKEND, INLINE, PROCESSES, TWO_THREADS, Recorder, built_recorder
from tests.keras.samples import numbered

X, Y = numbered(4)
WORKERS = pytest.mark.parametrize("workers", [INLINE, TWO_THREADS], ids=["inline", "threads"])
# On TensorFlow the pass ends early and then raises; Keras remarks on the first.
pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
ON_TENSORFLOW = pytest.mark.skipif(BACKEND != "tensorflow", reason="others take each as it is")


def trained_on(batches: list[Any], workers: dict[str, Any]) -> list[Any]:
    """What a model is given of these batches, in order."""
    recorder = built_recorder()
    with SafeSequence(Given(*batches), **workers) as sequence:
        recorder.fit(sequence, shuffle=False, verbose=0)
    return recorder.lists.trained


@pytest.mark.skipif(BACKEND != "jax", reason="Keras takes SciPy's matrices on JAX alone")
@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS, PROCESSES])
def test_sparse_matrices_are_trained_on(workers):
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
    assert [len(batch) for batch in trained_on([given, given], workers)] == [there, there]


@ON_TENSORFLOW
@pytest.mark.parametrize(
    ("given", "place"), [(({"a": X, "b": None}, Y), r"\[0\]\['b'\]"), ((X, None, Y), r"\[1\]")]
)
def test_none_within_a_batch_is_refused_by_its_place(given, place):
    with pytest.raises(ValueError, match=rf"got None as batch{place}: leave it out"):
        trained_on([given, given], INLINE)


@ON_TENSORFLOW
@WORKERS
@pytest.mark.parametrize(("first", "later"), [("int64", "float64"), ("bool", "int64")])
def test_a_dtype_that_would_lose_numbers_is_refused_by_the_batches_number(first, later, workers):
    batches = [(X, Y.astype(first))] * 3 + [(X, (Y + 0.5).astype(later))]
    message = rf"number 3 of epoch 0 has an array of {later}, the first ones had {first}; give"
    with pytest.raises(ValueError, match=message):
        trained_on(batches, workers)


@ON_TENSORFLOW
@WORKERS
@pytest.mark.parametrize(("first", "later"), [("float32", "float64"), ("int64", "int8")])
def test_a_dtype_that_means_the_same_numbers_becomes_that_of_the_first_batches(
    first, later, workers
):
    trained = trained_on([(X, Y.astype(first))] * 3 + [(X, Y.astype(later))], workers)
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
