"""Subclasses of ``SafeSequence``: hooks between epochs, and methods that may not be overridden."""

from __future__ import annotations

from typing import Any

import pytest

from adapters import SafeSequence
from tests.keras.recording import (
    AUTO,
    INLINE,
    PROCESSES,
    TWO_THREADS,
    Recorder,
    after,
    built_recorder,
    epochs_of,
    numbers,
    stop,
)
from tests.keras.samples import numbered

pytestmark = pytest.mark.usefixtures("light_workers")
BATCHES = 5


class Hooked(SafeSequence):
    """Labels its samples with the number of epochs that it was told have ended."""

    def __init__(self, **options: Any) -> None:
        self.calls: list[str] = []
        self.ended = 0
        super().__init__(numbered(4 * BATCHES), 4, transform=self.label, **options)

    def label(self, sample: Any) -> Any:
        return sample[0], sample[1] * 0 + self.ended

    def on_epoch_begin(self) -> None:
        self.calls.append("begin")

    def on_epoch_end(self) -> None:
        super().on_epoch_end()
        self.calls.append("end")
        self.ended += 1


def labels(batches: list[Any]) -> list[int]:
    return [int(label) for _, column in batches for label in column[:1, 0]]


EPOCHS = [0] * BATCHES + [1] * BATCHES + [2] * BATCHES


@pytest.mark.parametrize(
    ("workers", "model"),
    [
        (INLINE, Recorder),
        (TWO_THREADS, Recorder),
        (TWO_THREADS, built_recorder),
        (PROCESSES, built_recorder),
        (AUTO, Recorder),
    ],
)
def test_hooks_of_fit(workers, model):
    """Each is called once an epoch, and no batch is made before the hook that changes it."""
    recorder = model()
    with Hooked(**workers) as sequence:
        recorder.fit(sequence, epochs=3, verbose=0)
        assert sequence.calls == 3 * ["begin", "end"]
    assert labels(recorder.lists.trained) == EPOCHS


def test_hooks_with_steps_per_epoch():
    recorder = built_recorder()
    with Hooked(**TWO_THREADS) as sequence:
        recorder.fit(sequence, epochs=4, steps_per_epoch=3, verbose=0)
    assert labels(recorder.lists.trained) == EPOCHS[:12]


def test_hooks_of_evaluate_and_loop():
    with Hooked(**TWO_THREADS) as sequence:
        built_recorder().evaluate(sequence, verbose=0)
        found = labels(list(sequence))
        assert (sequence.calls, found) == (2 * ["begin", "end"], [1] * BATCHES)


def test_hooks_of_a_replayed_epoch():
    recorder = built_recorder()
    with Hooked(**TWO_THREADS) as sequence:
        recorder.fit(sequence, callbacks=[after(2, stop)], verbose=0)
        recorder.fit(sequence, verbose=0)
        assert sequence.calls == ["begin", "end"]


def test_hooks_as_source_of_another():
    with Hooked() as inner, SafeSequence(inner, **TWO_THREADS) as sequence:
        found = [label for _ in range(2) for label in labels(list(sequence))]
        assert (inner.calls[:3], found) == (["begin", "end", "begin"], EPOCHS[: 2 * BATCHES])


def test_hook_called_by_the_user():
    with Hooked() as sequence:
        sequence.on_epoch_end()
        assert sequence.calls == ["end"]


class WithHooks(SafeSequence):
    """Writes down its hooks; as stock classes do, it calls those of its base."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.calls: list[str] = []
        self.on_epoch_end()  # As stock classes do, to shuffle for the first time.
        super().__init__(*args, **options)

    def on_epoch_begin(self) -> None:
        super().on_epoch_begin()
        self.calls.append(f"begin {self.epoch}")

    def on_epoch_end(self) -> None:
        self.calls.append("end")
        if len(self.calls) > 1:
            super().on_epoch_end()


class Inheriting(WithHooks):
    """Its hooks call those of its base."""

    def on_epoch_end(self) -> None:
        super().on_epoch_end()


@pytest.mark.parametrize("kind", [WithHooks, Inheriting])
@pytest.mark.parametrize("begins", [False, True])
def test_hooks_in_own_loop(kind, begins):
    with kind(numbered(4 * BATCHES), 4, shuffle=True, seed=5, **TWO_THREADS) as sequence:
        found, plain = [], SafeSequence(numbered(4 * BATCHES), 4, shuffle=True, seed=5)
        for _ in range(2):
            if begins:
                sequence.on_epoch_begin()
            found += [numbers(sequence[index]) for index in range(BATCHES)]
            sequence.on_epoch_end()
        assert found == epochs_of(plain, 2)
        assert sequence.calls == ["end", "begin 0", "end", "begin 1", "end"]
        assert [numbers(batch) for batch in sequence] == epochs_of(plain, 1, first=2)
        sequence.on_epoch_end()
        assert sequence.calls[5:] == ["begin 2", "end"]


@pytest.mark.parametrize(
    "name",
    [
        "__getitem__",
        "__iter__",
        "__len__",
        "num_batches",
        "workers",
        "use_multiprocessing",
        "max_queue_size",
    ],
)
def test_override_refused(name):
    message = rf"must not override {name}, as Mine does: .*batch_transform.*PyDataset and wrap it"
    with pytest.raises(TypeError, match=message):
        type("Mine", (SafeSequence,), {name: lambda self, *_: None})


def test_override_by_mixin_refused():
    class Mixin:
        def __getitem__(self, index: int) -> Any:
            return index

    with pytest.raises(TypeError, match="must not override __getitem__"):
        type("Mine", (Mixin, SafeSequence), {})
