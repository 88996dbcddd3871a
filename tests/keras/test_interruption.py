"""Training that stops, goes on, or is looked into: no batch of an epoch is lost or repeated."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.keras import internals
from tests.forking import forks
from tests.keras import recording
from tests.keras.py_datasets import Shuffling
from tests.keras.recording import INLINE, TWO_THREADS, after, built_recorder, epochs_of, sequence_of

BATCHES = 6
# Keras 3.6 expects as many batches of an epoch that is resumed as of any other.
_REMARK = "ignore" if internals.missing_to_continue() else "error"
pytestmark = [
    pytest.mark.filterwarnings(f"{_REMARK}:Your input ran out of data:UserWarning"),
    pytest.mark.usefixtures("sent_by_value"),
]


class Looks(keras.callbacks.Callback):
    def __init__(self, sequence: SafeSequence, *hooks: str, then: Any = None) -> None:
        super().__init__()
        self.seen: list[tuple[int, int]] = []

        def look(*_: Any, **__: Any) -> None:
            self.seen.append(tuple(sequence.state_dict().values()))  # type: ignore[arg-type]
            if then is not None:
                then()

        for hook in hooks:
            setattr(self, hook, look)


@forks
def test_forked_process_that_lives_on_holds_up_no_fit():
    recorder, children = built_recorder(), []

    def fork(model: keras.Model, batches: int) -> None:
        if batches == 3:
            children.append(os.fork())
            if not children[0]:
                time.sleep(20)
                os._exit(0)

    began = time.monotonic()
    try:
        with sequence_of(BATCHES) as sequence:
            recorder.fit(sequence, callbacks=[recording.AfterBatch(fork)], verbose=0)
    finally:
        took = time.monotonic() - began
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)
    assert took < 15


def test_ctrl_c_handled_by_callback():
    recorder, came = built_recorder(), []

    def interrupt(model: keras.Model, batches: int) -> None:
        if batches == 3:
            signal.signal(signal.SIGINT, lambda *_: came.append(batches))
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)  # For whoever might take it for an end.

    handled = signal.getsignal(signal.SIGINT)
    try:
        with sequence_of(BATCHES, **TWO_THREADS) as sequence:
            recorder.fit(sequence, callbacks=[recording.AfterBatch(interrupt)], verbose=0)
    finally:
        signal.signal(signal.SIGINT, handled)
    assert (came, len(recorder.trained)) == ([3], BATCHES)


@pytest.mark.parametrize(
    ("workers", "end"), [(TWO_THREADS, recording.fail), (recording.PROCESSES, recording.stop)]
)
def test_epoch_is_replayed_whole(workers, end):
    recorder = built_recorder()
    with sequence_of(BATCHES, shuffle=True, **workers) as sequence:
        with contextlib.suppress(recording.Boom):
            recorder.fit(sequence, epochs=3, callbacks=[after(8, end)], verbose=0)
        recorder.fit(sequence, epochs=2, verbose=0)
        epochs = epochs_of(sequence, 3)
        assert recorder.trained == epochs[:8] + epochs[BATCHES:]


@pytest.mark.parametrize(("count", "steps"), [(4, None), (2, 3)])
def test_callback_evaluates_what_is_trained_on(count, steps):
    recorder = built_recorder()
    with sequence_of(BATCHES, shuffle=True, **TWO_THREADS) as sequence:
        look = after(count, lambda model: model.evaluate(sequence, verbose=0))
        fit = {"epochs": 3, "steps_per_epoch": steps, "callbacks": [look], "verbose": 0}
        recorder.fit(sequence, **fit)
        assert recorder.trained == epochs_of(sequence, 3)[: 3 * (steps or BATCHES)]
    assert recording.samples_of(recorder.tested) == list(range(4 * BATCHES))


@pytest.mark.parametrize(
    ("model", "place"),
    [
        pytest.param(recording.Recorder, (2, 0), marks=recording.LOSES_THE_FIRST_BATCH),
        pytest.param(
            recording.Recorder, (1, BATCHES - 1), marks=recording.TAKES_THE_BUILD_FOR_AN_EPOCH
        ),
        (built_recorder, (1, 4)),
    ],
)
def test_fit_from_loaded_state(model, place):
    recorder, sequence = model(), sequence_of(BATCHES, shuffle=True, **TWO_THREADS)
    sequence.load_state_dict({"epoch": place[0], "batch": place[1]})
    looks = Looks(sequence, "on_train_begin", "on_epoch_begin", "on_train_batch_begin")
    recorder.fit(sequence, epochs=2, callbacks=[looks], verbose=0)
    assert looks.seen[:3] == [place, place, place]
    assert recorder.trained == epochs_of(sequence, 2, first=place[0])[place[1] :]


def test_fit_goes_on_given_the_state():
    recorder, sequence = built_recorder(), sequence_of(BATCHES, shuffle=True, **TWO_THREADS)
    for _ in range(3):
        sequence.load_state_dict(sequence.state_dict())
        recorder.fit(sequence, steps_per_epoch=4, verbose=0)
    assert recorder.trained == epochs_of(sequence, 2)[:12]


def test_fit_from_state_permuted():
    whole, resumed = built_recorder(), built_recorder()
    with sequence_of(BATCHES, **TWO_THREADS) as sequence:
        whole.fit(sequence, epochs=2, verbose=0)
        sequence.load_state_dict({"epoch": 0, "batch": 4})
        resumed.fit(sequence, epochs=2, verbose=0)
    assert resumed.trained == whole.trained[4:]


# --- who else reads the sequence ---


@pytest.mark.parametrize(
    ("steps", "ends"), [(None, [(1, 0), (2, 0), (3, 0)]), (4, [(0, 4), (1, 2), (2, 0)])]
)
def test_validation_on_what_is_trained_on(steps, ends):
    recorder = built_recorder()
    with sequence_of(BATCHES, shuffle=True, **TWO_THREADS) as sequence:
        looks = Looks(sequence, "on_epoch_end")
        recorder.fit(
            sequence,
            epochs=3,
            steps_per_epoch=steps,
            validation_data=sequence,
            callbacks=[looks],
            verbose=0,
        )
        trained = len(recorder.trained)
        recorder.fit(sequence, verbose=0)
    assert looks.seen == ends
    epochs = epochs_of(sequence_of(BATCHES, shuffle=True, workers=0), 4)
    assert trained == (12 if steps else 18)
    assert recorder.trained == epochs[: trained + BATCHES]
    tested = [epochs[BATCHES * epoch : BATCHES * (epoch + 1)] for epoch, _ in ends]
    assert recorder.tested == [batch for epoch in tested for batch in epoch]


def test_fit_within_fit():
    """As one that looks for a learning rate."""
    outer, inner = built_recorder(), built_recorder()
    with sequence_of(BATCHES, shuffle=True, **INLINE) as sequence:
        fits = keras.callbacks.LambdaCallback(
            on_train_begin=lambda logs: inner.fit(sequence, epochs=2, verbose=0)
        )
        outer.fit(sequence, callbacks=[fits], verbose=0)
        assert sequence.state_dict() == {"epoch": 1, "batch": 0}
    epochs = epochs_of(sequence_of(BATCHES, shuffle=True, workers=0), 2)
    assert outer.trained == epochs[:BATCHES]
    assert inner.trained == epochs


def test_another_thread_evaluates():
    recorder, other = built_recorder(), built_recorder()
    with sequence_of(BATCHES, shuffle=True, **INLINE) as sequence:
        begun, trained = threading.Event(), threading.Event()

        class Waits(keras.callbacks.Callback):
            def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
                begun.set()
                assert trained.wait(60)

        arguments = {"callbacks": [Waits()], "verbose": 0}
        thread = threading.Thread(target=other.evaluate, args=(sequence,), kwargs=arguments)
        thread.start()
        assert begun.wait(60)
        looks = Looks(sequence, "on_epoch_end")
        recorder.fit(sequence, epochs=2, callbacks=[looks], verbose=0)
        trained.set()
        thread.join()
    assert looks.seen == [(1, 0), (2, 0)]
    assert recorder.trained == epochs_of(sequence_of(BATCHES, shuffle=True, workers=0), 2)


def test_loop_in_callback():
    recorder, looped = built_recorder(), []
    with sequence_of(BATCHES, shuffle=True, **INLINE) as sequence:
        looks = Looks(
            sequence, "on_train_batch_end", "on_epoch_end", then=lambda: looped.extend(sequence)
        )
        recorder.fit(sequence, epochs=2, callbacks=[looks], verbose=0)
        places = [(0, step) for step in range(1, BATCHES)] + [(1, 0)]
        assert [*dict.fromkeys(looks.seen)] == [*places, *((e + 1, step) for e, step in places)]
        assert recorder.trained == epochs_of(sequence, 2)
        assert len(looped) == BATCHES * 2 * (BATCHES + 1)


@pytest.mark.parametrize(
    "model",
    [pytest.param(recording.Recorder, marks=recording.LOSES_THE_FIRST_BATCH), built_recorder],
)
def test_state_of_fit_that_failed_to_start(model):
    failing = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: {}["no disk"])
    with sequence_of(BATCHES, shuffle=True, **TWO_THREADS) as sequence:
        with pytest.raises(KeyError, match="no disk"):
            model().fit(sequence, steps_per_epoch=1, callbacks=[failing], verbose=0)
        assert sequence.state_dict() == {"epoch": 0, "batch": 0}


def test_hooks_of_source_read_aside():
    recorder = built_recorder()
    with SafeSequence(Shuffling(BATCHES), **TWO_THREADS) as sequence:
        recorder.fit(sequence, epochs=3, validation_data=sequence, shuffle=False, verbose=0)
    epochs = [int(labels[0, 0]) for _, labels in recorder.lists.trained]
    assert epochs == [epoch for epoch in range(3) for _ in range(BATCHES)]


class Drawing(Shuffling):
    def on_epoch_end(self) -> None:
        np.random.shuffle(self.order)


def test_epochs_that_hooks_draw_cannot_be_resumed_in_silence(caplog):
    with SafeSequence(Drawing(BATCHES)) as sequence:
        sequence.load_state_dict({"epoch": 1, "batch": 2})
    assert "draws from numpy.random, so its epochs differ" in caplog.text
