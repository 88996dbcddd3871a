"""What whole batches may hold, and how unlike each other they may be."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from tests.keras.py_datasets import Given
from tests.keras.recording import BACKEND, INLINE, PROCESSES, TWO_THREADS
from tests.keras.samples import numbered

Y = numbered(4)[1]


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
