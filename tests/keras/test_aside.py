"""While ``fit`` reads a sequence, its state is that of ``fit``, whoever else reads it."""

from __future__ import annotations

import threading
from typing import Any

import keras
import pytest

from adapters import SafeSequence
from adapters.keras import internals
from tests.keras.py_datasets import Shuffling
from tests.keras.recording import (
    INLINE,
    TWO_THREADS,
    Recorder,
    built_recorder,
    epochs_of,
    sequence_of,
)
from tests.keras.versions import LOSES_THE_FIRST_BATCH

BATCHES = 6
UNBUILT = pytest.param(Recorder, marks=LOSES_THE_FIRST_BATCH)
WITHIN_AN_EPOCH = pytest.param(
    (0, 4),
    marks=pytest.mark.skipif(
        bool(internals.missing_to_continue()),
        reason="Keras warns of an epoch of which the first batches are missing",
    ),
)


class Looks(keras.callbacks.Callback):
    """Where a sequence stands, in each hook that is named."""

    def __init__(self, sequence: SafeSequence, *hooks: str, then: Any = None) -> None:
        super().__init__()
        self.seen: list[tuple[int, int]] = []

        def look(*_: Any, **__: Any) -> None:
            self.seen.append(tuple(sequence.state_dict().values()))  # type: ignore[arg-type]
            if then is not None:
                then()

        for hook in hooks:
            setattr(self, hook, look)


@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS])
@pytest.mark.parametrize(
    ("steps", "ends"), [(None, [(1, 0), (2, 0), (3, 0)]), (4, [(0, 4), (1, 2), (2, 0)])]
)
def test_validation_over_what_is_trained_on_moves_nothing(steps, ends, workers):
    recorder = built_recorder()
    with sequence_of(BATCHES, shuffle=True, **workers) as sequence:
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


def test_a_fit_within_another_one_has_epochs_of_its_own():
    """As one that looks for a learning rate."""
    outer, inner = built_recorder(), built_recorder()
    with sequence_of(BATCHES, shuffle=True, **INLINE) as sequence:

        class Fits(keras.callbacks.Callback):
            def on_train_begin(self, logs: Any = None) -> None:
                inner.fit(sequence, epochs=2, verbose=0)

        outer.fit(sequence, callbacks=[Fits()], verbose=0)
        assert sequence.state_dict() == {"epoch": 1, "batch": 0}
    epochs = epochs_of(sequence_of(BATCHES, shuffle=True, workers=0), 2)
    assert outer.trained == epochs[:BATCHES]
    assert inner.trained == epochs


def test_what_another_thread_reads_is_not_aside():
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


def test_a_loop_of_a_callback_moves_nothing():
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


@pytest.mark.parametrize("model", [UNBUILT, built_recorder])
@pytest.mark.parametrize("place", [(0, 0), WITHIN_AN_EPOCH, (2, 0)])
def test_the_state_before_the_first_batch_is_where_it_stood(place, model):
    with sequence_of(BATCHES, shuffle=True, **INLINE) as sequence:
        sequence.load_state_dict({"epoch": place[0], "batch": place[1]})
        looks = Looks(sequence, "on_train_begin", "on_epoch_begin", "on_train_batch_begin")
        recorder = model()
        recorder.fit(sequence, callbacks=[looks], verbose=0)
        assert looks.seen[:2] == [place, place]
        assert recorder.trained == epochs_of(sequence, 1, first=place[0])[place[1] :]


@pytest.mark.parametrize("steps", [None, 1, 2])
@pytest.mark.parametrize("model", [UNBUILT, built_recorder])
def test_a_training_that_ended_before_its_first_batch_has_had_none(model, steps):
    class Failing(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            raise OSError("no disk")

    with sequence_of(BATCHES, shuffle=True, **TWO_THREADS) as sequence:
        with pytest.raises(OSError, match="no disk"):
            model().fit(sequence, steps_per_epoch=steps, callbacks=[Failing()], verbose=0)
        assert sequence.state_dict() == {"epoch": 0, "batch": 0}


@pytest.mark.parametrize("steps", [1, BATCHES, BATCHES + 1, 2 * BATCHES])
@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS])
def test_who_reads_aside_turns_no_data_set_to_its_next_epoch(steps, workers):
    recorder = built_recorder()
    with SafeSequence(Shuffling(BATCHES), **workers) as sequence:
        options = {"validation_data": sequence, "validation_steps": steps, "shuffle": False}
        recorder.fit(sequence, epochs=3, verbose=0, **options)
    epochs = [int(labels[0, 0]) for _, labels in recorder.lists.trained]
    assert epochs == [epoch for epoch in range(3) for _ in range(BATCHES)]
