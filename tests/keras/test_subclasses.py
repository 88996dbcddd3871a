"""Subclasses of ``SafeSequence``: which methods may be a user's own."""

from __future__ import annotations

from typing import Any

import pytest

from adapters import SafeSequence
from tests.keras.recording import (
    AUTO,
    INLINE,
    PROCESSES,
    TWO_THREADS,
    AfterBatch,
    Recorder,
    built_recorder,
)
from tests.keras.samples import numbered

BATCHES = 5
WORKERS = [
    pytest.param(INLINE, id="inline"),
    pytest.param(TWO_THREADS, id="threads"),
    pytest.param(PROCESSES, id="processes"),
    pytest.param(AUTO, id="auto"),
]


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


@pytest.mark.parametrize("model", [Recorder, built_recorder])
@pytest.mark.parametrize("workers", WORKERS)
def test_its_hooks_are_called_once_per_epoch_of_fit(workers, model):
    with Hooked(**workers) as sequence:
        model().fit(sequence, epochs=3, verbose=0)
        assert sequence.calls == 3 * ["begin", "end"]


@pytest.mark.parametrize("workers", WORKERS)
def test_no_batch_is_made_before_the_hook_that_changes_it(workers):
    recorder = built_recorder()
    with Hooked(**workers) as sequence:
        recorder.fit(sequence, epochs=3, verbose=0)
    assert labels(recorder.lists.trained) == EPOCHS


def test_steps_per_epoch_are_not_the_epochs_of_its_hooks():
    recorder = built_recorder()
    with Hooked(**TWO_THREADS) as sequence:
        recorder.fit(sequence, epochs=4, steps_per_epoch=3, verbose=0)
    assert labels(recorder.lists.trained) == EPOCHS[:12]


def test_its_hooks_are_called_in_evaluate_and_in_a_loop_too():
    with Hooked(**TWO_THREADS) as sequence:
        built_recorder().evaluate(sequence, verbose=0)
        found = labels(list(sequence))
        assert (sequence.calls, found) == (2 * ["begin", "end"], [1] * BATCHES)


def test_an_epoch_that_is_replayed_is_not_begun_again():
    recorder = built_recorder()

    def stop(model: Any, batches: int) -> None:
        model.stop_training = batches == 2

    with Hooked(**TWO_THREADS) as sequence:
        recorder.fit(sequence, callbacks=[AfterBatch(stop)], verbose=0)
        recorder.fit(sequence, verbose=0)
        assert sequence.calls == ["begin", "end"]


def test_its_hooks_are_called_where_it_is_the_source_of_another():
    with Hooked() as inner, SafeSequence(inner, **TWO_THREADS) as sequence:
        found = [label for _ in range(2) for label in labels(list(sequence))]
        assert (inner.calls[:3], found) == (["begin", "end", "begin"], EPOCHS[: 2 * BATCHES])


def test_a_call_of_a_users_own_reaches_the_method():
    with Hooked() as sequence:
        sequence.on_epoch_end()
        assert sequence.calls == ["end"]


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
def test_a_method_that_fit_would_pass_by_is_refused_with_the_remedy(name):
    message = rf"must not override {name}, as Mine does: .*batch_transform.*PyDataset and wrap it"
    with pytest.raises(TypeError, match=message):
        type("Mine", (SafeSequence,), {name: lambda self, *_: None})


def test_one_that_comes_from_a_mixin_is_refused_too():
    class Mixin:
        def __getitem__(self, index: int) -> Any:
            return index

    with pytest.raises(TypeError, match="must not override __getitem__"):
        type("Mine", (Mixin, SafeSequence), {})
