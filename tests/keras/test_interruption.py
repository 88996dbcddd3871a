"""Training that stops, goes on, or is looked into: no batch of an epoch is lost or repeated."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

import keras
import pytest

from adapters import SafeSequence
from tests.keras.programs import run_program
from tests.keras.recording import (
    KINDS_OF_WORKERS,
    TWO_THREADS,
    AfterBatch,
    Recorder,
    built_recorder,
    epochs_of,
    samples_of,
    sequence_of,
)
from tests.keras.versions import TAKES_THE_BUILD_FOR_AN_EPOCH

BATCHES = 10
# Keras expects as many batches of an epoch that is resumed as of any other.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning"),
    pytest.mark.usefixtures("sent_by_value"),
]


class Boom(Exception):
    """What a callback may raise."""


def stop_after(count: int) -> AfterBatch:
    def stop(model: keras.Model, batches: int) -> None:
        if batches == count:
            model.stop_training = True

    return AfterBatch(stop)


def fail_after(count: int) -> AfterBatch:
    def fail(model: keras.Model, batches: int) -> None:
        if batches == count:
            raise Boom

    return AfterBatch(fail)


def state_after(sequence: SafeSequence, count: int, states: list[Any]) -> AfterBatch:
    def look(model: keras.Model, batches: int) -> None:
        if batches == count:
            states.append(sequence.state_dict())

    return AfterBatch(look)


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_a_callback_that_handles_ctrl_c_itself_is_given_the_rest_of_the_epoch(workers):
    recorder, came = built_recorder(), []

    def interrupt(model: keras.Model, batches: int) -> None:
        if batches == 3:
            signal.signal(signal.SIGINT, lambda *_: came.append(batches))
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)  # For whoever might take it for an end.

    handled = signal.getsignal(signal.SIGINT)
    try:
        with sequence_of(BATCHES, **workers) as sequence:
            recorder.fit(sequence, callbacks=[AfterBatch(interrupt)], verbose=0)
    finally:
        signal.signal(signal.SIGINT, handled)
    assert (came, len(recorder.trained)) == ([3], BATCHES)


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_an_epoch_that_was_stopped_is_replayed_whole(workers):
    recorder = built_recorder()
    with sequence_of(BATCHES, shuffle=True, **workers) as sequence:
        recorder.fit(sequence, epochs=3, callbacks=[stop_after(14)], verbose=0)
        recorder.fit(sequence, epochs=2, verbose=0)
        epochs = epochs_of(sequence, 3)
        assert recorder.trained == epochs[:14] + epochs[BATCHES:]


def test_an_epoch_is_replayed_whole_after_a_callbacks_error():
    recorder = built_recorder()
    with sequence_of(BATCHES, shuffle=True, **TWO_THREADS) as sequence:
        with pytest.raises(Boom):
            built_recorder().fit(sequence, epochs=3, callbacks=[fail_after(14)], verbose=0)
        recorder.fit(sequence, verbose=0)
        assert recorder.trained == epochs_of(sequence, 1, first=1)


def test_early_stopping_ends_with_a_whole_epoch():
    recorder, sequence = Recorder(), sequence_of(BATCHES, shuffle=True, **TWO_THREADS)
    # A recorder's loss never gets better.
    stop = keras.callbacks.EarlyStopping(monitor="loss", patience=2)
    recorder.fit(sequence, epochs=9, callbacks=[stop], verbose=0)
    assert recorder.trained == epochs_of(sequence, 3)


@pytest.mark.parametrize("after", [5, BATCHES], ids=["in an epoch", "at its end"])
def test_a_callback_may_evaluate_on_the_training_sequence(after):
    recorder = built_recorder()
    with sequence_of(BATCHES, shuffle=True, **TWO_THREADS) as sequence:

        def look(model: keras.Model, batches: int) -> None:
            if batches % BATCHES == after % BATCHES:
                model.evaluate(sequence, verbose=0)

        recorder.fit(sequence, epochs=3, callbacks=[AfterBatch(look)], verbose=0)
        assert recorder.trained == epochs_of(sequence, 3)


def test_evaluating_on_the_training_sequence_sees_whole_epochs():
    recorder = built_recorder()
    with sequence_of(BATCHES, shuffle=True, **TWO_THREADS) as sequence:
        look = AfterBatch(lambda model, batches: model.evaluate(sequence, verbose=0))
        recorder.fit(sequence, steps_per_epoch=3, callbacks=[look], verbose=0)
    tested = recorder.tested
    looks = [tested[start : start + BATCHES] for start in range(0, len(tested), BATCHES)]
    assert [samples_of(look) for look in looks] == 3 * [list(range(4 * BATCHES))]


@pytest.mark.parametrize(
    ("model", "batch"),
    [
        (built_recorder, 4),
        (built_recorder, 9),
        (Recorder, 4),
        pytest.param(Recorder, 9, marks=TAKES_THE_BUILD_FOR_AN_EPOCH),
    ],
)
def test_a_loaded_state_is_where_training_goes_on(model, batch):
    recorder, sequence = model(), sequence_of(BATCHES, shuffle=True, **TWO_THREADS)
    sequence.load_state_dict({"epoch": 1, "batch": batch})
    recorder.fit(sequence, epochs=2, verbose=0)
    assert recorder.trained == epochs_of(sequence, 2, first=1)[batch:]


@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_training_goes_on_in_a_new_sequence_at_the_very_batch(workers):
    first, second, states = built_recorder(), built_recorder(), []
    with sequence_of(BATCHES, shuffle=True, **workers) as sequence:
        callbacks = [state_after(sequence, 14, states), stop_after(14)]
        first.fit(sequence, epochs=3, callbacks=callbacks, verbose=0)
    sequence = sequence_of(BATCHES, shuffle=True, **workers)
    sequence.load_state_dict(states[0])
    second.fit(sequence, epochs=2, verbose=0)
    assert first.trained + second.trained == epochs_of(sequence, 3)


@pytest.mark.one_keras
@pytest.mark.parametrize("shuffle", [pytest.param(False, marks=pytest.mark.full), True])
def test_training_goes_on_in_a_new_process_at_the_very_batch(shuffle):
    whole = built_recorder()
    with sequence_of(BATCHES, shuffle=shuffle, **TWO_THREADS) as sequence:
        whole.fit(sequence, epochs=3, verbose=0)
    state = {"epoch": 1, "batch": 4}
    continued = run_program("continued", json.dumps({"shuffle": shuffle, "state": state}))
    assert json.loads(continued.output) == whole.trained[14:]


def test_a_state_with_steps_per_epoch_goes_on_at_the_very_batch():
    recorder, sequence = built_recorder(), sequence_of(BATCHES, shuffle=True, **TWO_THREADS)
    sequence.load_state_dict({"epoch": 0, "batch": 9})
    recorder.fit(sequence, epochs=2, steps_per_epoch=4, verbose=0)
    assert recorder.trained == epochs_of(sequence, 2)[9:17]


def test_another_fit_goes_on_where_steps_per_epoch_stopped_if_it_is_given_the_state():
    recorder, sequence = built_recorder(), sequence_of(BATCHES, shuffle=True, **TWO_THREADS)
    for _ in range(3):
        sequence.load_state_dict(sequence.state_dict())
        recorder.fit(sequence, steps_per_epoch=4, verbose=0)
    assert recorder.trained == epochs_of(sequence, 2)[:12]


def test_the_order_of_whole_batches_is_resumed_too():
    whole, resumed = built_recorder(), built_recorder()
    with sequence_of(BATCHES, **TWO_THREADS) as sequence:
        whole.fit(sequence, epochs=2, verbose=0)
    with sequence_of(BATCHES, **TWO_THREADS) as sequence:
        sequence.load_state_dict({"epoch": 0, "batch": 7})
        resumed.fit(sequence, epochs=2, verbose=0)
    assert resumed.trained == whole.trained[7:]


@pytest.mark.parametrize("as_list", [False, True], ids=["one callback", "a CallbackList"])
def test_callbacks_that_are_no_list_are_called(as_list):
    recorder, counts = built_recorder(), []
    callback = AfterBatch(lambda model, count: counts.append(count))
    with sequence_of(BATCHES, **TWO_THREADS) as sequence:
        given = (
            keras.callbacks.CallbackList([callback], add_history=True, model=recorder)
            if as_list
            else callback
        )
        recorder.fit(sequence, epochs=2, callbacks=given, verbose=0)
        epochs = [recorder.trained[:BATCHES], recorder.trained[BATCHES:]]
        assert [samples_of(epoch) for epoch in epochs] == 2 * [list(range(4 * BATCHES))]
        assert (counts, sequence.epoch) == (list(range(1, 2 * BATCHES + 1)), 2)
