"""What a sequence says about its workers: what was asked for, and what there is."""

from __future__ import annotations

import time

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.engine.dispatch import Dispatcher
from adapters.engine.supply import Supply, WorkerState
from adapters.keras.internals import PyDatasetAdapter
from adapters.keras.sources import StockView
from tests.keras.recording import AUTO, FOUR_THREADS, INLINE, PROCESSES, sequence_of
from tests.keras.samples import numbered


@pytest.mark.parametrize("options", [INLINE, FOUR_THREADS, PROCESSES, AUTO])
def test_the_attributes_are_what_was_asked_for(options):
    sequence = sequence_of(2, max_queue_size=7, **options)
    found = sequence.workers, sequence.use_multiprocessing, sequence.max_queue_size
    assert found == (options["workers"], options.get("use_multiprocessing", False), 7)


@pytest.mark.parametrize("options", [FOUR_THREADS, PROCESSES, AUTO])
def test_keras_puts_no_enqueuer_of_its_own_on_top(options):
    with sequence_of(2, **options) as sequence:
        assert PyDatasetAdapter(StockView(sequence)).enqueuer is None


@pytest.mark.parametrize(
    ("name", "value"), [("workers", 4), ("use_multiprocessing", True), ("max_queue_size", 3)]
)
def test_setting_one_says_where_it_is_set(name, value):
    message = rf"{name} is fixed .*make another one with SafeSequence\(\.\.\., {name}={value}\)"
    with sequence_of(2) as sequence, pytest.raises(AttributeError, match=message):
        setattr(sequence, name, value)


def test_the_public_names_are_those_of_the_contract():
    own = set(dir(SafeSequence)) - set(dir(keras.utils.PyDataset))
    assert {name for name in own if not name.startswith("_")} == {
        "close",
        "epoch",
        "explain",
        "load_state_dict",
        "peek",
        "replay",
        "set_epoch",
        "state_dict",
        "waits",
    }


# --- explain ---


class Slow(keras.utils.PyDataset):
    """Batches that a store lets wait for."""

    def __init__(self, thread_safe: bool) -> None:
        super().__init__()
        self.thread_safe = thread_safe

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> np.ndarray:
        time.sleep(0.001)
        return np.full((4, 2), index, np.float32)


def last_line(sequence: SafeSequence, capsys: pytest.CaptureFixture[str]) -> str:
    sequence.explain()
    return capsys.readouterr().out.splitlines()[-1]


def explained(sequence: SafeSequence, capsys: pytest.CaptureFixture[str]) -> list[str]:
    with sequence:
        sequence.explain()
    return capsys.readouterr().out.splitlines()


def test_explain_names_what_was_chosen(capsys):
    sequence = SafeSequence(numbered(8), 2, transform=tuple, shard=(1, 2), workers=2)
    assert explained(sequence, capsys) == [
        "source: arrays, gathered a batch at a time",
        "transform tuple: a sample at a time",
        "shard: 1 of 2, 4 of 8",
        "workers: 2 threads",
    ]


def test_explain_says_what_the_first_batches_decided(capsys):
    sequence = sequence_of(20)
    list(sequence)
    assert explained(sequence, capsys)[-1].startswith("workers: inline, with one thread")


def test_explain_says_that_one_thread_at_a_time_runs_the_source(capsys):
    lines = explained(SafeSequence(Slow(False), workers=8), capsys)
    expected = "only one of them is busy at a time, as source is not declared thread_safe"
    assert lines[0] == "source: whole batches, asked for by number"
    assert lines[-1] == f"workers: 8 threads; {expected}"
    assert "busy" not in explained(SafeSequence(Slow(True), workers=8), capsys)[-1]
    assert "busy" not in explained(SafeSequence(Slow(False), workers=1), capsys)[-1]


def test_explain_names_processes_that_are_not_there_yet(capsys, monkeypatch):
    with SafeSequence(Slow(False), workers=2, use_multiprocessing=True) as sequence:
        next(iter(sequence))
        monkeypatch.setattr(Dispatcher, "starting", True)
        assert last_line(sequence, capsys) == "workers: 2 processes, which are starting"
        monkeypatch.setattr(Dispatcher, "starting", False)
        with monkeypatch.context() as context:
            context.setattr(Supply, "state", WorkerState.DEFERRED)
            assert last_line(sequence, capsys).endswith(" once there is work enough for them")
        assert last_line(sequence, capsys) == "workers: 2 processes"
