"""An exception in a source or transform comes out of Keras as itself, with the sample's number."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from adapters import ClosedError, SafeSequence
from tests.keras.recording import (
    AUTO,
    BACKEND,
    INLINE,
    KINDS_OF_WORKERS,
    PROCESSES,
    TWO_THREADS,
    Recorder,
    built_recorder,
    epochs_of,
)
from tests.keras.samples import (
    BATCH_SIZE,
    BrokenList,
    FailsAt,
    Unreadable,
    forget,
    numbered,
    stop_iteration,
)
from tests.keras.versions import READS_A_BATCH_AHEAD, WARNS_BEFORE_IT_RAISES

BATCHES = 10
SAMPLES = BATCHES * BATCH_SIZE
LATER = 3 * BATCH_SIZE + 1
# On TensorFlow the pass ends early and then raises; Keras remarks on the first.
pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")

CALLS: dict[str, Callable[[Recorder, SafeSequence], Any]] = {
    "fit": lambda model, sequence: model.fit(sequence, epochs=2, shuffle=False, verbose=0),
    "evaluate": lambda model, sequence: model.evaluate(sequence, verbose=0),
    "predict": lambda model, sequence: model.predict(sequence, verbose=0),
    "validation": lambda model, sequence: model.fit(
        *numbered(4), validation_data=sequence, verbose=0
    ),
}


def notes_of(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", []))


@WARNS_BEFORE_IT_RAISES
@pytest.mark.parametrize("call", CALLS)
def test_nobody_is_warned_that_the_data_have_ended_where_an_exception_ended_them(call):
    sequence = SafeSequence(numbered(SAMPLES), 4, transform=FailsAt(LATER))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Your input ran out of data")
        with sequence, pytest.raises(Unreadable):
            CALLS[call](Recorder(), sequence)


@pytest.mark.parametrize("number", [0, LATER], ids=["first batch", "later batch"])
@pytest.mark.parametrize(
    ("call", "workers"),
    [(call, TWO_THREADS) for call in CALLS] + [("fit", INLINE), ("fit", PROCESSES)],
)
def test_a_transforms_exception_arrives_with_its_sample(workers, call, number):
    with (
        SafeSequence(numbered(SAMPLES), 4, transform=FailsAt(number), **workers) as sequence,
        pytest.raises(Unreadable) as raised,
    ):
        CALLS[call](Recorder(), sequence)
    assert (raised.value.line, f"sample {number}," in notes_of(raised.value)) == (number, True)


@pytest.mark.parametrize("number", [0, LATER], ids=["first batch", "later batch"])
def test_a_sources_exception_arrives_with_its_sample(number):
    with (
        SafeSequence(BrokenList(SAMPLES, number), 4, **AUTO) as sequence,
        pytest.raises(Unreadable) as raised,
    ):
        CALLS["fit"](Recorder(), sequence)
    assert (raised.value.line, f"sample {number}," in notes_of(raised.value)) == (number, True)


@READS_A_BATCH_AHEAD
@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_the_batches_before_a_failure_are_trained_on(workers):
    recorder = built_recorder()
    with (
        SafeSequence(numbered(SAMPLES), 4, transform=FailsAt(LATER), **workers) as sequence,
        pytest.raises(Unreadable),
    ):
        CALLS["fit"](recorder, sequence)
    assert recorder.trained == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_a_process_sends_its_traceback_along():
    with (
        SafeSequence(numbered(SAMPLES), 4, transform=FailsAt(LATER), **PROCESSES) as sequence,
        pytest.raises(Unreadable) as raised,
    ):
        CALLS["fit"](Recorder(), sequence)
    assert 'raise Unreadable("picture.jpg"' in notes_of(raised.value)


def test_a_batch_transforms_exception_names_its_batch():
    def fail(batch: Any) -> Any:
        raise Unreadable("batch", line=0)

    with (
        SafeSequence(numbered(SAMPLES), 4, batch_transform=fail, **TWO_THREADS) as sequence,
        pytest.raises(Unreadable) as raised,
    ):
        CALLS["fit"](Recorder(), sequence)
    assert "batch 0 of epoch 0" in notes_of(raised.value)


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_stop_iteration_in_a_transform_is_no_end_of_the_data(workers):
    with (
        SafeSequence(numbered(SAMPLES), 4, transform=stop_iteration, **workers) as sequence,
        pytest.raises(RuntimeError, match="raised StopIteration"),
    ):
        CALLS["fit"](Recorder(), sequence)


def test_a_transform_without_a_result_is_said_to_be_one():
    with (
        SafeSequence(numbered(SAMPLES), 4, transform=forget, **TWO_THREADS) as sequence,
        pytest.raises(ValueError, match="transform must return a sample, got None"),
    ):
        CALLS["fit"](Recorder(), sequence)


def test_an_epoch_that_failed_is_replayed_whole():
    recorder, fails = built_recorder(), FailsAt(LATER)
    with SafeSequence(numbered(SAMPLES), 4, transform=fails, **TWO_THREADS) as sequence:
        with pytest.raises(Unreadable):
            built_recorder().fit(sequence, shuffle=False, verbose=0)
        fails.number = -1
        recorder.fit(sequence, shuffle=False, verbose=0)
        assert recorder.trained == epochs_of(sequence, 1)


def test_a_bad_sample_is_replaced_where_that_was_asked_for():
    recorder = Recorder()
    with SafeSequence(BrokenList(8, 5), 4, on_error="skip", **TWO_THREADS) as sequence:
        recorder.fit(sequence, shuffle=False, verbose=0)
    assert recorder.trained == [[0, 1, 2, 3], [4, 6, 6, 7]]


@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS], ids=["inline", "threads"])
def test_samples_of_different_shapes_are_refused_with_the_first_batch(workers):
    samples = [np.zeros(1 + number % 2, np.float32) for number in range(SAMPLES)]
    with (
        SafeSequence(samples, 4, **workers) as sequence,
        pytest.raises(ValueError, match=r"equal shapes: sample 1 has shape \(2,\), sample 0"),
    ):
        Recorder().predict(sequence, verbose=0)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="JAX and PyTorch take batches of any shape")
def test_a_batch_that_tensorflow_can_not_take_is_named():
    samples = [
        (np.zeros(3 if number < 12 else 5, np.float32), np.float32(0)) for number in range(16)
    ]
    with (
        SafeSequence(samples, 4, **TWO_THREADS) as sequence,
        pytest.raises(ValueError, match=r"number 3 of epoch 0 has an array of shape \(4, 5\)"),
    ):
        CALLS["fit"](Recorder(), sequence)


def test_a_batch_of_four_members_is_refused_by_keras():
    samples = [(np.float32([number]),) * 4 for number in range(8)]
    with (
        SafeSequence(samples, 4, **TWO_THREADS) as sequence,
        pytest.raises(ValueError, match=r"\(inputs, targets, sample_weights\)"),
    ):
        CALLS["fit"](Recorder(), sequence)


@pytest.mark.parametrize("call", CALLS)
def test_a_sequence_that_is_closed_says_so(call):
    sequence = SafeSequence(numbered(SAMPLES), 4, **TWO_THREADS)
    sequence.close()
    with pytest.raises(ClosedError, match="closed"):
        CALLS[call](Recorder(), sequence)
