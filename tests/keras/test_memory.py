"""Batches that somebody keeps stay what they were, though backends look at them without a copy."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from tests.keras.recording import (
    BACKEND,
    PROCESSES,
    TWO_THREADS,
    Recorder,
    echo,
    numbers,
    sequence_of,
    to_host,
)
from tests.keras.samples import BATCH_SIZE

pytestmark = [pytest.mark.one_keras, pytest.mark.usefixtures("small_blocks")]

# More batches than there are slots of shared memory, wide enough to be aligned and aliased.
BATCHES = 60
WORKERS = [
    pytest.param({**TWO_THREADS, "max_queue_size": 3}, id="threads"),
    pytest.param({**PROCESSES, "max_queue_size": 3}, id="processes"),
]


def wide(batches: int = BATCHES) -> np.ndarray:
    return np.arange(batches * BATCH_SIZE * 64, dtype=np.float32).reshape(-1, 64)


@pytest.mark.parametrize("workers", WORKERS)
def test_predict_over_many_batches(workers):
    with SafeSequence(wide(), BATCH_SIZE, **workers) as sequence:
        np.testing.assert_array_equal(echo().predict(sequence, verbose=0), wide())


@pytest.mark.parametrize("workers", WORKERS)
def test_tensors_of_batches_that_are_kept(workers):
    with SafeSequence(wide(), BATCH_SIZE, **workers) as sequence:
        kept = [keras.ops.convert_to_tensor(batch) for batch in sequence]
    np.testing.assert_array_equal(np.concatenate(to_host(kept)), wide())


@pytest.mark.parametrize("workers", WORKERS)
def test_arrays_of_batches_that_are_kept(workers):
    with SafeSequence(wide(), BATCH_SIZE, **workers) as sequence:
        kept = list(sequence)
    np.testing.assert_array_equal(np.concatenate(kept), wide())


@pytest.mark.parametrize("workers", WORKERS)
def test_batches_that_the_steps_of_fit_keep(workers):
    recorder = Recorder(on_host=False)
    with SafeSequence((wide(), wide()), BATCH_SIZE, **workers) as sequence:
        recorder.fit(sequence, epochs=2, shuffle=False, verbose=0)
    kept = np.concatenate([to_host(batch)[0] for batch in recorder.lists.trained])
    np.testing.assert_array_equal(kept, np.concatenate([wide(), wide()]))


@pytest.mark.skipif(BACKEND != "jax", reason="jax.numpy is for JAX")
@pytest.mark.parametrize("workers", WORKERS)
def test_device_arrays_of_a_loop_of_ones_own(workers):
    import jax

    with SafeSequence(wide(), BATCH_SIZE, **workers) as sequence:
        kept = [put(batch) for batch in sequence for put in (jax.numpy.asarray, jax.device_put)]
    np.testing.assert_array_equal(np.concatenate(to_host(kept[0::2])), wide())
    np.testing.assert_array_equal(np.concatenate(to_host(kept[1::2])), wide())


def test_a_kept_batch_outlives_its_sequence():
    sequence = sequence_of(4, **PROCESSES)
    batches = iter(sequence)
    kept = next(batches)
    del batches
    sequence.close()
    assert numbers(kept) == [0, 1, 2, 3]


def test_writing_into_a_batch_changes_no_other():
    with sequence_of(4, **PROCESSES) as sequence:
        for features, _ in sequence:
            features[...] = -1
        assert next(numbers(batch) for batch in sequence) == [0, 1, 2, 3]
