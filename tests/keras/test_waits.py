"""``WaitReport``: what the trainer waited for its batches, epoch by epoch."""

from __future__ import annotations

import copy
import logging
import time
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.keras import WaitReport, waits
from tests.keras.recording import BACKEND, KINDS_OF_WORKERS, AfterBatch, sequence_of
from tests.keras.samples import BATCH_SIZE, numbered

BATCHES = 10
SLOW = 0.02
# Keras 3.6 says so on TensorFlow where the last execution of an epoch has fewer steps.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning"),
    pytest.mark.one_keras,
]


def slow(item: Any) -> Any:
    time.sleep(SLOW)
    return item


def model_of(**options: Any) -> keras.Model:
    """A built model, whose second epoch has nothing left to trace on TensorFlow either."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", **options)
    model.fit(*numbered(4 * BATCH_SIZE), batch_size=BATCH_SIZE, verbose=0)
    return model


def reported(sequence: SafeSequence, *callbacks: Any, model: Any = None, **fit: Any) -> WaitReport:
    report = WaitReport(sequence)
    with sequence:
        (model or model_of()).fit(sequence, callbacks=[report, *callbacks], verbose=0, **fit)
    return report


def slow_step() -> AfterBatch:
    """A callback that takes its time after each batch."""
    return AfterBatch(lambda model, count: time.sleep(SLOW))


@pytest.mark.serial
def test_a_trainer_of_slow_batches_waits_most_of_the_time():
    report = reported(sequence_of(BATCHES, workers=0, batch_transform=slow), epochs=2)
    assert report.shares[1] > 0.5


def test_a_deep_copy_reports_on_the_same_sequence():
    with sequence_of(BATCHES, workers=0) as sequence:
        report = copy.deepcopy(WaitReport(sequence))
        model_of().fit(sequence, callbacks=[report], verbose=0)
    assert len(report.waits_seconds) == BATCHES


@pytest.mark.serial
@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_a_slow_trainer_of_quick_batches_does_not(workers):
    report = reported(sequence_of(BATCHES, **workers), slow_step(), epochs=2)
    assert report.shares[1] < 0.2


@pytest.mark.serial
def test_batches_that_are_read_ahead_cost_the_trainer_no_wait():
    sequence = sequence_of(BATCHES, workers=4, batch_transform=lambda batch: batch)
    report = reported(sequence, slow_step(), epochs=2)
    assert np.median(report.waits_seconds) < SLOW / 5


def test_a_wait_is_kept_for_every_batch_of_the_latest_epoch():
    report = reported(sequence_of(BATCHES, workers=0, batch_transform=slow), epochs=2)
    assert len(report.waits_seconds) == BATCHES
    assert len(report.shares) == 2


@pytest.mark.serial
def test_the_waits_of_slow_batches_are_what_they_take():
    report = reported(sequence_of(BATCHES, workers=0, batch_transform=slow))
    # TensorFlow reads ahead while the trainer is busy, if only with its callbacks.
    assert SLOW / 2 < np.median(report.waits_seconds) < 3 * SLOW


def test_an_epoch_of_some_steps_has_as_many_waits():
    report = reported(sequence_of(BATCHES, workers=0), epochs=3, steps_per_epoch=4)
    assert (len(report.waits_seconds), len(report.shares)) == (4, 3)


def test_an_epoch_of_steps_beyond_the_end_has_as_many_waits():
    report = reported(sequence_of(BATCHES, workers=0), steps_per_epoch=BATCHES + 4)
    assert len(report.waits_seconds) == BATCHES + 4


@pytest.mark.serial
@pytest.mark.skipif(BACKEND == "torch", reason="Keras runs one step at a time on PyTorch")
def test_all_batches_of_an_execution_of_several_steps_count():
    sequence = sequence_of(BATCHES, workers=0, batch_transform=slow)
    report = reported(sequence, model=model_of(steps_per_execution=5), epochs=2)
    assert len(report.waits_seconds) == BATCHES
    assert report.shares[1] > 0.5


def test_more_batches_than_are_kept_are_looked_up_in_time(monkeypatch):
    monkeypatch.setattr(waits, "_LOOKED_UP", 3)
    report = reported(sequence_of(BATCHES, workers=0, batch_transform=slow))
    assert len(report.waits_seconds) == BATCHES


@pytest.mark.serial
def test_validation_does_not_count():
    sequence = sequence_of(BATCHES, workers=0, batch_transform=slow)
    validation = sequence_of(2 * BATCHES, workers=0, batch_transform=slow)
    with validation:
        report = reported(sequence, epochs=2, validation_data=validation)
    assert len(report.waits_seconds) == BATCHES
    assert report.shares[1] > 0.5


def test_an_epoch_that_is_continued_has_the_rest_of_the_waits():
    sequence = sequence_of(BATCHES, workers=0)
    sequence.load_state_dict({"epoch": 2, "batch": 7})
    assert len(reported(sequence, epochs=1).waits_seconds) == 3


def test_a_line_is_logged_for_each_epoch(caplog):
    with caplog.at_level(logging.INFO, "adapters"):
        reported(sequence_of(BATCHES, workers=0), epochs=2)
    lines = [record.getMessage() for record in caplog.records if ": waited " in record.getMessage()]
    assert [line[:16] for line in lines] == ["epoch 0: waited ", "epoch 1: waited "]
    assert "99% of them within" in lines[0]


def test_the_sequence_itself_keeps_the_waits_of_its_reader():
    sequence = sequence_of(BATCHES, workers=0, batch_transform=slow)
    reported(sequence)
    assert sequence.waits.batches == BATCHES
    assert sequence.waits.seconds[-1] >= SLOW


def test_waits_of_a_loop_of_ones_own_are_kept():
    with sequence_of(BATCHES, workers=0, batch_transform=slow) as sequence:
        for _ in sequence:
            pass
        assert sequence.waits.share > 0.5
        assert [(wait.epoch, wait.step) for wait in sequence.waits.latest()] == [
            (0, step) for step in range(BATCHES)
        ]


def test_only_a_safe_sequence_can_be_reported_on():
    with pytest.raises(TypeError, match=r"sequence must be the SafeSequence .* got list"):
        WaitReport([1, 2])


class Endless(keras.utils.PyDataset):
    """Batches without an end."""

    num_batches = None

    def __getitem__(self, index: int) -> Any:
        return numbered(BATCH_SIZE)


def test_a_source_without_an_end_is_reported_too():
    fit = {"epochs": 2, "steps_per_epoch": BATCHES, "shuffle": False}
    report = reported(SafeSequence(Endless(), workers=0), **fit)
    assert (len(report.waits_seconds), len(report.shares)) == (BATCHES, 2)


def test_a_shard_is_reported_too():
    x, y = numbered(2 * BATCHES * BATCH_SIZE)
    sequence = SafeSequence((x, y), BATCH_SIZE, shuffle=True, shard=(1, 2), workers=0)
    report = reported(sequence, epochs=2)
    assert (len(report.waits_seconds), len(report.shares)) == (BATCHES, 2)
