"""A Keras ``PyDataset`` of whole batches as the source of a ``SafeSequence``."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pytest

from adapters import SafeSequence
from adapters.engine import usable_cpus
from tests.keras.py_datasets import (
    Gaps,
    Hooked,
    Meeting,
    MeetingOfProcesses,
    Numbered,
    Overlapping,
    Shuffling,
)
from tests.keras.recording import (
    AUTO,
    FOUR_THREADS,
    INLINE,
    KINDS_OF_WORKERS,
    PROCESSES,
    TWO_THREADS,
    AfterBatch,
    Options,
    Recorder,
    built_recorder,
    numbers,
    samples_of,
)
from tests.keras.samples import Unreadable, numbered
from tests.keras.versions import TAKES_THE_BUILD_FOR_AN_EPOCH

BATCHES = 10
IN_ORDER = [list(range(start, start + 4)) for start in range(0, 4 * BATCHES, 4)]
# Each worker process imports Keras, as its part of the source needs it: that takes seconds.
WORKERS = [
    pytest.param(INLINE, id="inline"),
    pytest.param(FOUR_THREADS, id="threads"),
    pytest.param(AUTO, id="auto"),
    pytest.param(PROCESSES, id="processes"),
]
IN_THIS_PROCESS = WORKERS[:3]
pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")


@pytest.fixture(autouse=True)
def light_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes import Keras without a framework behind it."""
    monkeypatch.setenv("KERAS_BACKEND", "numpy")


def trained_on(source: Any, workers: Options, epochs: int = 3, **fit: Any) -> Recorder:
    recorder = Recorder()
    with SafeSequence(source, **workers) as sequence:
        recorder.fit(sequence, epochs=epochs, verbose=0, **fit)
    return recorder


def epochs_seen(recorder: Recorder) -> list[int]:
    """What a ``Shuffling`` source took to be the epoch of each batch."""
    return [int(labels[0, 0]) for _, labels in recorder.lists.trained]


@pytest.mark.parametrize("workers", IN_THIS_PROCESS)
def test_every_batch_comes_in_order(workers):
    recorder = trained_on(Numbered(BATCHES), workers, epochs=2, shuffle=False)
    assert recorder.trained == 2 * IN_ORDER


@pytest.mark.parametrize("workers", IN_THIS_PROCESS)
def test_fit_permutes_whole_batches_at_its_defaults(workers):
    recorder = trained_on(Numbered(6), workers, epochs=2)
    assert [batch[0] // 4 for batch in recorder.trained] == [0, 3, 1, 2, 4, 5, 3, 5, 1, 0, 2, 4]


@pytest.mark.parametrize("workers", IN_THIS_PROCESS)
def test_one_thread_asks_at_a_time(workers):
    source = Overlapping(BATCHES)
    trained_on(source, workers)
    assert source.overlaps == 0


@pytest.mark.one_backend
def test_overlapping_calls_would_have_been_noticed():
    source = Overlapping(BATCHES)
    source.thread_safe = True
    with SafeSequence(source, **FOUR_THREADS) as sequence:
        list(sequence)
    assert source.overlaps > 0


def test_several_threads_ask_one_that_says_it_is_thread_safe():
    source = Meeting(4)
    with SafeSequence(source, **TWO_THREADS) as sequence:
        batches = [numbers(batch) for batch in sequence]
        source.barrier.abort()  # A thread may be waiting in the next epoch.
    assert batches == IN_ORDER[:4]


@pytest.mark.one_backend
@pytest.mark.skipif(usable_cpus() < 2, reason="one CPU has one process that computes")
def test_several_processes_ask_at_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with SafeSequence(MeetingOfProcesses(pipe), **PROCESSES) as sequence:
        assert [numbers(batch) for batch in sequence] == IN_ORDER[:2]


@pytest.mark.parametrize("model", [Recorder, built_recorder])
@pytest.mark.parametrize("workers", IN_THIS_PROCESS)
def test_three_epochs_of_fit_are_three_calls_of_each_hook(workers, model):
    source = Hooked(BATCHES)
    with SafeSequence(source, **workers) as sequence:
        model().fit(sequence, epochs=3, verbose=0)
    # The fourth epoch has been begun, or not yet.
    assert source.calls in (3 * ["begin", "end"], [*(3 * ["begin", "end"]), "begin"])


def test_a_hook_of_an_instance_is_called_like_one_of_its_class():
    source, calls = Numbered(BATCHES), []
    source.on_epoch_end = lambda: calls.append("end")
    with SafeSequence(source, **TWO_THREADS) as sequence:
        built_recorder().fit(sequence, epochs=2, verbose=0)
    assert calls == ["end", "end"]


class Changing(Numbered):
    """Has other batches after each epoch."""

    def __init__(self, added: int) -> None:
        super().__init__(BATCHES)
        self.added = added

    def on_epoch_end(self) -> None:
        self.batches += self.added


@pytest.mark.parametrize("workers", IN_THIS_PROCESS)
def test_a_source_that_becomes_shorter_is_refused_where_its_next_epoch_begins(workers):
    recorder = built_recorder()
    with SafeSequence(Changing(-1), **workers) as sequence:
        recorder.fit(sequence, verbose=0)
        with pytest.raises(ValueError, match="Changing had 10 batches and has 9; make a new"):
            recorder.fit(sequence, verbose=0)
    assert len(recorder.trained) == BATCHES


def test_what_a_source_adds_is_not_read_which_is_said_once(caplog):
    with SafeSequence(Changing(1), **INLINE) as sequence:
        recorder = built_recorder()
        recorder.fit(sequence, epochs=3, verbose=0)
    assert len(recorder.trained) == 3 * BATCHES
    assert caplog.text.count("Changing had 10 batches and has 11; make a new") == 1


class Looking(Shuffling):
    """Looks at a batch of the sequence that wraps it at the end of each epoch."""

    wrapping: SafeSequence
    seen: tuple[int, ...] = ()

    def on_epoch_end(self) -> None:
        super().on_epoch_end()
        self.seen += (int(self.wrapping[0][1][0, 0]),)


@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS])
def test_a_hook_may_look_at_a_batch_of_the_sequence_around_it(workers):
    source = Looking(BATCHES)
    with SafeSequence(source, **workers) as source.wrapping:
        recorder = built_recorder()
        recorder.fit(source.wrapping, epochs=3, verbose=0)
    assert epochs_seen(recorder) == [0] * BATCHES + [1] * BATCHES + [2] * BATCHES
    assert source.seen == (1, 2, 3)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("batches", [pytest.param(1, marks=TAKES_THE_BUILD_FOR_AN_EPOCH), BATCHES])
def test_a_batch_is_of_the_epoch_that_it_is_delivered_in(workers, batches):
    recorder = trained_on(Shuffling(batches), workers)
    assert epochs_seen(recorder) == [0] * batches + [1] * batches + [2] * batches


@pytest.mark.parametrize("workers", WORKERS[1:])
def test_the_order_of_a_source_that_shuffles_itself_does_not_depend_on_the_workers(workers):
    expected = trained_on(Shuffling(BATCHES), INLINE).trained
    assert trained_on(Shuffling(BATCHES), workers).trained == expected
    epochs = [samples_of(expected[start : start + BATCHES]) for start in (0, 10, 20)]
    assert epochs == 3 * [list(range(4 * BATCHES))]


def slowly(batch: Any) -> Any:
    """So slow that it is tried whether two threads are of use."""
    until = time.perf_counter() + 0.003
    while time.perf_counter() < until:
        pass
    return batch


@pytest.mark.parametrize("batches", [3, 4, 5])
def test_what_is_tried_for_auto_is_of_the_epoch_that_is_read(batches):
    inner = SafeSequence(numbered(4 * batches), 4, shuffle=True)
    with SafeSequence(inner, batch_transform=slowly, **AUTO) as sequence:
        epochs = [samples_of([numbers(batch) for batch in sequence]) for _ in range(3)]
    assert epochs == 3 * [list(range(4 * batches))]


@pytest.mark.parametrize("workers", IN_THIS_PROCESS)
def test_steps_per_epoch_are_not_the_epochs_of_the_source(workers):
    recorder = built_recorder()
    with SafeSequence(Shuffling(BATCHES), **workers) as sequence:
        recorder.fit(sequence, epochs=4, steps_per_epoch=3, verbose=0)
    assert epochs_seen(recorder) == [0] * 10 + [1] * 2


@pytest.mark.parametrize("workers", IN_THIS_PROCESS)
def test_steps_that_end_just_before_an_epoch_does_have_not_begun_the_next(workers):
    with SafeSequence(Shuffling(BATCHES), **workers) as sequence:
        built_recorder().fit(sequence, epochs=3, steps_per_epoch=3, verbose=0)
        assert sequence.state_dict() == {"epoch": 0, "batch": 9}
        assert [int(labels[0, 0]) for _, labels in sequence] == BATCHES * [0]


def test_an_epoch_that_the_source_has_left_is_refused():
    with SafeSequence(Shuffling(BATCHES), **INLINE) as sequence:
        for _ in range(2):
            list(sequence)
        next(iter(sequence))
        for go_back in (
            lambda: sequence.set_epoch(1),
            lambda: sequence.load_state_dict({"epoch": 0, "batch": 3}),
        ):
            with pytest.raises(ValueError, match=r"epoch must be 2 or a later one, got [01]: on_"):
                go_back()
        sequence.set_epoch(2)
        sequence.load_state_dict({"epoch": 3, "batch": 0})
        assert [int(labels[0, 0]) for _, labels in sequence] == BATCHES * [3]


def test_an_epoch_that_was_stopped_is_replayed_in_the_same_epoch_of_the_source():
    recorder = built_recorder()

    def stop(model: Any, batches: int) -> None:
        model.stop_training = batches == 14

    with SafeSequence(Shuffling(BATCHES), **TWO_THREADS) as sequence:
        recorder.fit(sequence, epochs=3, callbacks=[AfterBatch(stop)], verbose=0)
        recorder.forget()
        recorder.fit(sequence, epochs=2, verbose=0)
    assert epochs_seen(recorder) == [1] * 10 + [2] * 10


@pytest.mark.parametrize(
    ("workers", "missing"),
    [(INLINE, 0), (INLINE, 7), (TWO_THREADS, 0), (TWO_THREADS, 7), (PROCESSES, 7)],
)
def test_none_for_a_batch_is_an_error_and_neither_skipped_nor_a_hang(workers, missing):
    with pytest.raises(ValueError, match=f"must return a batch for number {missing}, got None"):
        trained_on(Gaps(BATCHES, missing), workers)


def test_an_exception_arrives_as_its_own_type_with_the_items_number():
    class Broken(Numbered):
        def __getitem__(self, index: int) -> Any:
            if index == 7:
                raise Unreadable("batch", line=index)
            return super().__getitem__(index)

    with pytest.raises(Unreadable) as raised:
        trained_on(Broken(BATCHES), TWO_THREADS)
    assert any("item 7 of the source" in note for note in raised.value.__notes__)


def test_batch_transform_works_on_its_batches():
    with SafeSequence(
        Numbered(2), batch_transform=lambda batch: (batch[0] + 1, batch[1]), **TWO_THREADS
    ) as sequence:
        assert [numbers(batch) for batch in sequence] == [[1, 2, 3, 4], [5, 6, 7, 8]]


def test_transform_is_refused_as_there_are_no_single_samples():
    with pytest.raises(ValueError, match=r"transform works on single samples.*use batch_transform"):
        SafeSequence(Numbered(2), transform=lambda sample: sample)


def test_a_safe_sequence_may_be_a_source():
    features = np.arange(8, dtype=np.float32).reshape(-1, 1)
    with SafeSequence(SafeSequence(features, 4), **TWO_THREADS) as sequence:
        assert [numbers(batch) for batch in sequence] == IN_ORDER[:2]


@pytest.mark.one_backend
@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_the_epochs_of_a_safe_sequence_inside_go_along(workers):
    features = np.arange(8, dtype=np.float32).reshape(-1, 1)
    inner = SafeSequence(features, 4, shuffle=True)
    inner.set_epoch(2)
    expected = [numbers(batch) for _ in range(2) for batch in inner]
    with SafeSequence(SafeSequence(features, 4, shuffle=True), **workers) as sequence:
        sequence.load_state_dict({"epoch": 2, "batch": 0})
        assert [numbers(batch) for _ in range(2) for batch in sequence] == expected
