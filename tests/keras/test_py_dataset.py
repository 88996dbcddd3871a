"""A Keras ``PyDataset`` of whole batches as the source, with and without an end."""

from __future__ import annotations

import time
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from tests.keras import recording
from tests.keras.py_datasets import Gaps, Hooked, Numbered, Shuffling
from tests.keras.recording import AUTO, INLINE, TWO_THREADS, Recorder, built_recorder, numbers, stop
from tests.keras.samples import BATCH_SIZE, Unreadable, numbered, slowly

BATCHES, ROUND = 10, 4
IN_ORDER = [list(range(start, start + 4)) for start in range(0, 4 * BATCHES, 4)]
IN_THIS_PROCESS = [
    pytest.param(INLINE, id="inline"),
    pytest.param(recording.FOUR_THREADS, id="threads"),
    pytest.param(AUTO, id="auto"),
]
pytestmark = [
    pytest.mark.usefixtures("light_workers"),
    pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning"),
    pytest.mark.filterwarnings("ignore:.shuffle=True. was passed:UserWarning"),
]


def trained_on(source: Any, workers: recording.Options, epochs: int = 3, **fit: Any) -> Recorder:
    recorder = Recorder()
    with SafeSequence(source, **workers) as sequence:
        recorder.fit(sequence, epochs=epochs, verbose=0, **fit)
    return recorder


def epochs_seen(recorder: Recorder) -> list[int]:
    return [int(labels[0, 0]) for _, labels in recorder.lists.trained]


@pytest.mark.parametrize(
    ("workers", "model"),
    [(INLINE, Recorder), (recording.FOUR_THREADS, Recorder), (AUTO, built_recorder)],
)
def test_hooks_of_fit(workers, model):
    source = Hooked(BATCHES)
    source.on_epoch_end = lambda: source.calls.append("end")  # One of the instance alone.
    with SafeSequence(source, **workers) as sequence:
        model().fit(sequence, epochs=3, verbose=0)
    # The fourth epoch has been begun, or not yet.
    assert source.calls in (3 * ["begin", "end"], [*(3 * ["begin", "end"]), "begin"])


@pytest.mark.parametrize(
    ("workers", "batches"),
    [
        (recording.FOUR_THREADS, BATCHES),
        (AUTO, BATCHES),
        (recording.PROCESSES, BATCHES),
        pytest.param(recording.FOUR_THREADS, 1, marks=recording.TAKES_THE_BUILD_FOR_AN_EPOCH),
    ],
)
def test_source_shuffles_itself(workers, batches):
    recorder = trained_on(Shuffling(batches), workers)
    assert epochs_seen(recorder) == [0] * batches + [1] * batches + [2] * batches
    epochs = [recorder.trained[start : start + batches] for start in range(0, 3 * batches, batches)]
    assert [recording.samples_of(epoch) for epoch in epochs] == 3 * [list(range(4 * batches))]
    assert recorder.trained == trained_on(Shuffling(batches), INLINE).trained


class Changing(Numbered):
    def __init__(self, added: int) -> None:
        super().__init__(BATCHES)
        self.added = added

    def on_epoch_end(self) -> None:
        self.batches += self.added


@pytest.mark.parametrize("workers", IN_THIS_PROCESS)
def test_source_that_becomes_shorter(workers):
    recorder = built_recorder()
    error = pytest.raises(ValueError, match="Changing had 10 batches and has 9; change its")
    with SafeSequence(Changing(-1), **workers) as sequence, error:
        recorder.fit(sequence, epochs=2, verbose=0)
    assert len(recorder.trained) == BATCHES


@pytest.mark.parametrize("source", [Changing(1), Numbered(BATCHES)])
def test_source_that_becomes_longer(source, caplog):
    grow = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: setattr(source, "batches", 11))
    with SafeSequence(source, **INLINE) as sequence:
        recorder = built_recorder()
        recorder.fit(sequence, epochs=3, callbacks=[grow], verbose=0)
    assert len(recorder.trained) == 3 * BATCHES
    assert caplog.text.count(" had 10 batches and has 11; change its length between passes") == 1


@pytest.mark.parametrize("workers", recording.ALL_WORKERS)
@pytest.mark.parametrize("kind", [Numbered, Hooked])
def test_length_that_changes_between_passes(kind, workers, caplog):
    source, recorder = kind(BATCHES), built_recorder()
    with SafeSequence(source, **workers) as sequence:
        sequence.load_state_dict({"epoch": 0, "batch": 7})
        assert len(list(sequence)) == 3
        for source.batches in (3, 8, 5):
            unread = iter(sequence)
            recorder.fit(sequence, shuffle=False, verbose=0)
            assert recorder.trained == list(map(numbers, unread)) == IN_ORDER[: len(sequence)]
            assert len(sequence) == source.batches
            recorder.forget()
        assert sequence.state_dict() == {"epoch": 7, "batch": 0}
        sequence.load_state_dict({"epoch": 8, "batch": 4})
        source.batches = 2
        assert (len(sequence), sequence.epoch) == (2, 9)
    assert "batches" not in caplog.text


class Looking(Shuffling):
    wrapping: SafeSequence
    seen: tuple[int, ...] = ()

    def on_epoch_end(self) -> None:
        super().on_epoch_end()
        self.seen += (int(self.wrapping[0][1][0, 0]),)


@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS])
def test_hook_looks_at_a_batch(workers):
    source = Looking(BATCHES)
    with SafeSequence(source, **workers) as source.wrapping:
        recorder = built_recorder()
        recorder.fit(source.wrapping, epochs=3, verbose=0)
    assert epochs_seen(recorder) == [0] * BATCHES + [1] * BATCHES + [2] * BATCHES
    assert source.seen == (1, 2, 3)


def test_auto_tries_the_epoch_that_is_read():
    inner = SafeSequence(numbered(12), 4, shuffle=True)
    with SafeSequence(inner, batch_transform=slowly, **AUTO) as sequence:
        epochs = [recording.samples_of([numbers(batch) for batch in sequence]) for _ in range(3)]
    assert epochs == 3 * [list(range(12))]


@pytest.mark.parametrize("workers", IN_THIS_PROCESS)
def test_steps_that_end_before_the_epoch(workers):
    with SafeSequence(Shuffling(BATCHES), **workers) as sequence:
        built_recorder().fit(sequence, epochs=3, steps_per_epoch=3, verbose=0)
        assert sequence.state_dict() == {"epoch": 0, "batch": 9}
        assert [int(labels[0, 0]) for _, labels in sequence] == BATCHES * [0]


def test_epoch_that_the_source_has_left():
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


def test_epoch_that_was_stopped():
    recorder = built_recorder()
    with SafeSequence(Shuffling(BATCHES), **TWO_THREADS) as sequence:
        recorder.fit(sequence, epochs=3, callbacks=[recording.after(14, stop)], verbose=0)
        recorder.forget()
        recorder.fit(sequence, epochs=2, verbose=0)
    assert epochs_seen(recorder) == [1] * 10 + [2] * 10


@pytest.mark.parametrize(
    ("workers", "missing"), [(INLINE, 0), (TWO_THREADS, 7), (recording.PROCESSES, 7)]
)
def test_none_for_a_batch(workers, missing):
    with pytest.raises(ValueError, match=f"must return a batch for number {missing}, got None"):
        trained_on(Gaps(BATCHES, missing), workers)


def test_exception_names_the_item():
    class Broken(Numbered):
        def __getitem__(self, index: int) -> Any:
            if index == 7:
                raise Unreadable("batch", line=index)
            return super().__getitem__(index)

    with pytest.raises(Unreadable) as raised:
        trained_on(Broken(BATCHES), TWO_THREADS)
    assert any("item 7 of the source" in note for note in raised.value.__notes__)


@pytest.mark.one_backend
@pytest.mark.parametrize("workers", recording.KINDS_OF_WORKERS)
def test_safe_sequence_as_source(workers):
    features = np.arange(8, dtype=np.float32).reshape(-1, 1)
    inner = SafeSequence(features, 4, shuffle=True)
    inner.set_epoch(2)
    expected = [numbers(batch) for _ in range(2) for batch in inner]
    with SafeSequence(SafeSequence(features, 4, shuffle=True), **workers) as sequence:
        sequence.load_state_dict({"epoch": 2, "batch": 0})
        assert [numbers(batch) for _ in range(2) for batch in sequence] == expected


# --- without an end ---


class Round(keras.utils.PyDataset):
    num_batches = None

    def __init__(self, seconds: float = 0) -> None:
        super().__init__()
        self.seconds = seconds

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        features, labels = numbered(ROUND * BATCH_SIZE)
        start = index % ROUND * BATCH_SIZE
        return features[start : start + BATCH_SIZE], labels[start : start + BATCH_SIZE]


class HookedRound(Round):
    def __init__(self) -> None:
        super().__init__()
        self.ended = 0

    def __getitem__(self, index: int) -> Any:
        features, labels = super().__getitem__(index)
        return features, np.full_like(labels, self.ended)

    def on_epoch_end(self) -> None:
        self.ended += 1


@pytest.mark.parametrize(
    ("workers", "model"),
    [
        pytest.param(TWO_THREADS, Recorder, marks=recording.LOSES_THE_FIRST_BATCH),
        (INLINE, built_recorder),
        (recording.PROCESSES, built_recorder),
    ],
)
def test_endless_fit(workers, model):
    recorder = model()
    with SafeSequence(Round(), **workers) as sequence:
        sequence.load_state_dict({"epoch": 0, "batch": 1000 * ROUND + 2})
        recorder.fit(sequence, epochs=3, steps_per_epoch=3, verbose=0)
    assert recorder.trained == (4 * IN_ORDER[:ROUND])[2:11]


@recording.VALIDATES_ON_WHERE_IT_STOPPED
def test_endless_validation():
    recorder = Recorder()
    with SafeSequence(Round(), **TWO_THREADS) as sequence:
        recorder.fit(
            *numbered(4), epochs=3, validation_data=sequence, validation_steps=3, verbose=0
        )
    assert recorder.tested == 3 * IN_ORDER[:3]


@pytest.mark.parametrize(("workers", "model"), [(INLINE, built_recorder), (TWO_THREADS, Recorder)])
def test_endless_hooks(workers, model):
    source, recorder = HookedRound(), model()
    with SafeSequence(source, **workers) as sequence:
        recorder.fit(sequence, epochs=3, steps_per_epoch=4, verbose=0)
    seen = [int(labels[0, 0]) for _, labels in recorder.lists.trained]
    assert source.ended == 3
    assert [seen[start + recording.BATCHES_AHEAD] for start in (0, 4, 8)] == [0, 1, 2]


READERS = {
    "validates": lambda sequence: None,  # It is the validation's data, too.
    "evaluates": lambda sequence: built_recorder().evaluate(sequence, steps=2, verbose=0),
    "predicts": lambda sequence: recording.linear(run_eagerly=True).predict(
        sequence, steps=2, verbose=0
    ),
    "loops": lambda sequence: next(iter(sequence)),
}


@recording.LOSES_THE_FIRST_BATCH
@pytest.mark.parametrize(
    ("reader", "slow", "workers"),
    [
        ("validates", 0, INLINE),
        ("evaluates", 0.01, TWO_THREADS),
        ("predicts", 0, TWO_THREADS),
        ("loops", 0.01, TWO_THREADS),
    ],
)
def test_endless_state_is_that_of_training(reader, slow, workers):
    """Who reads a slow source ahead is behind."""
    states, ends = [], []

    class Looks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            states.append(sequence.state_dict()["batch"])
            if batch == 1:
                READERS[reader](sequence)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            ends.append(sequence.state_dict()["batch"])

    with SafeSequence(Round(slow), **workers) as sequence:
        fit = {"epochs": 2, "steps_per_epoch": 3, "callbacks": [Looks()], "verbose": 0}
        if reader == "validates":
            fit |= {"validation_data": sequence, "validation_steps": 2}
        Recorder().fit(sequence, **fit)
        assert states == [1, 2, 3, 4, 5, 6]
        assert ends == [3, 6]
        assert sequence.state_dict()["batch"] == 6


def test_endless_without_a_word():
    """Neither ``num_batches`` nor ``__len__``."""

    class Unsaid(keras.utils.PyDataset):
        def __getitem__(self, index: int) -> Any:
            return np.full((2, 1), index, np.float32)

    with SafeSequence(Unsaid(), **TWO_THREADS) as sequence:
        found = [int(batch[0, 0]) for batch, _ in zip(sequence, range(12))]
    assert found == [*range(12)]


def test_endless_items_and_length():
    sequence = SafeSequence(Round())
    assert sequence
    assert sequence.num_batches is SafeSequence(sequence).num_batches is None
    assert numbers(sequence[10**9 + 1]) == IN_ORDER[1]
    with pytest.raises(IndexError, match="must be >= 0 as their number isn't known, got -1"):
        sequence[-1]
    with pytest.raises(TypeError, match="has no length: give fit steps_per_epoch, or the source"):
        len(sequence)


@pytest.mark.parametrize(
    ("call", "steps"), [("fit", {}), ("evaluate", {}), ("predict", {}), ("predict", {"steps": -1})]
)
def test_endless_fit_without_steps(call, steps):
    with SafeSequence(Round()) as sequence:
        method = getattr(recording.linear(), call)
        with pytest.raises(ValueError, match="steps_per_epoch must be given to fit"):
            method(sequence, verbose=0, **steps)


def test_endless_shards():
    found = []
    for index in range(2):
        with SafeSequence(Round(), shard=(index, 2), **TWO_THREADS) as sequence:
            batches = iter(sequence)
            found.append([numbers(next(batches)) for _ in range(2)])
            state = sequence.state_dict()
    assert found == [[IN_ORDER[0], IN_ORDER[2]], [IN_ORDER[1], IN_ORDER[3]]]
    assert state == {"epoch": 0, "samples": 4}
    with SafeSequence(Round(), shard=(0, 1)) as sequence:
        sequence.load_state_dict({"epoch": 0, "samples": 2})
        assert numbers(next(iter(sequence))) == IN_ORDER[2]
        with pytest.raises(ValueError, match="samples >= 0, got"):
            sequence.load_state_dict({"epoch": 0, "samples": -1})
