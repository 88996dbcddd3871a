"""``validation_data``, ``evaluate`` and ``predict``: every batch, in order, from the first."""

from __future__ import annotations

import numpy as np
import pytest

from adapters import SafeSequence
from tests.keras.recording import (
    ALL_WORKERS,
    KINDS_OF_WORKERS,
    TWO_THREADS,
    Recorder,
    echo,
    epochs_of,
    sequence_of,
)
from tests.keras.samples import numbered
from tests.keras.versions import (
    LOSES_THE_FIRST_BATCH,
    TAKES_THE_BUILD_FOR_AN_EPOCH,
    VALIDATES_ON_WHERE_IT_STOPPED,
)

BATCHES = 10
IN_ORDER = [list(range(start, start + 4)) for start in range(0, 4 * BATCHES, 4)]


@VALIDATES_ON_WHERE_IT_STOPPED
@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_validation_steps_start_at_batch_0_each_time(workers):
    recorder, validation = Recorder(), sequence_of(BATCHES, **workers)
    with validation:
        recorder.fit(
            sequence_of(2), epochs=3, validation_data=validation, validation_steps=4, verbose=0
        )
    assert recorder.tested == 3 * IN_ORDER[:4]


@pytest.mark.parametrize("steps", [None, 1])
def test_a_validation_of_one_batch_is_an_epoch_whoever_counts_its_steps(steps):
    recorder, validation = Recorder(), sequence_of(1, shuffle=True, **TWO_THREADS)
    recorder.fit(
        sequence_of(2), epochs=3, validation_data=validation, validation_steps=steps, verbose=0
    )
    assert validation.epoch == 3
    assert recorder.tested == epochs_of(validation, 3)


def test_every_validation_sees_every_batch_in_order_and_leaves_the_epochs_of_training_alone():
    recorder, training = Recorder(), sequence_of(3, shuffle=True, **TWO_THREADS)
    with sequence_of(BATCHES, **TWO_THREADS) as validation:
        recorder.fit(training, epochs=3, validation_data=validation, verbose=0)
    assert recorder.tested == 3 * IN_ORDER
    assert recorder.trained == epochs_of(training, 3)


def test_evaluate_sees_every_batch_in_order_each_time():
    recorder = Recorder()
    with sequence_of(BATCHES, **TWO_THREADS) as sequence:
        for _ in range(3):
            recorder.evaluate(sequence, verbose=0)
    assert recorder.tested == 3 * IN_ORDER


@LOSES_THE_FIRST_BATCH
def test_evaluate_with_steps_starts_at_batch_0_each_time():
    recorder = Recorder()
    with sequence_of(BATCHES, **TWO_THREADS) as sequence:
        for _ in range(2):
            recorder.evaluate(sequence, steps=3, verbose=0)
    assert recorder.tested == 2 * IN_ORDER[:3]


@TAKES_THE_BUILD_FOR_AN_EPOCH
@pytest.mark.parametrize("steps", [None, 1])
def test_evaluate_over_one_batch(steps):
    recorder, sequence = Recorder(), sequence_of(1, shuffle=True, **TWO_THREADS)
    recorder.evaluate(sequence, steps=steps, verbose=0)
    assert recorder.tested == epochs_of(sequence, 1)


@pytest.mark.parametrize("workers", ALL_WORKERS)
def test_predict_on_an_unbuilt_model_keeps_the_order(workers):
    features, _ = numbered(20 * 4)
    with SafeSequence(features, 4, **workers) as sequence:
        np.testing.assert_array_equal(echo().predict(sequence, verbose=0), features)


def test_predict_keeps_the_order_each_time_and_takes_labels_and_a_last_batch_that_is_not_full():
    model, (features, labels) = echo(), numbered(18)
    with SafeSequence((features, labels), 4, **TWO_THREADS) as sequence:
        for _ in range(3):
            np.testing.assert_array_equal(model.predict(sequence, verbose=0), features)


@TAKES_THE_BUILD_FOR_AN_EPOCH
def test_predict_over_one_shuffled_batch_is_epoch_0():
    features, _ = numbered(8)
    sequence = SafeSequence(features, 8, shuffle=True, **TWO_THREADS)
    predicted = echo().predict(sequence, verbose=0)
    assert predicted.ravel().astype(int).tolist() == epochs_of(sequence, 1)[0]
