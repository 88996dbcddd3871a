"""What ``explain()`` says of workers that can't be busy, or aren't there yet."""

from __future__ import annotations

import time

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.engine.dispatch import Dispatcher
from adapters.engine.supply import Supply


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


def explained(sequence: SafeSequence, capsys: pytest.CaptureFixture[str]) -> str:
    with sequence:
        for _ in range(3):
            sequence[0]
        return last_line(sequence, capsys)


def test_threads_that_a_source_is_asked_by_one_at_a_time(capsys):
    line = explained(SafeSequence(Slow(False), workers=8), capsys)
    expected = "only one of them is busy at a time, as source is not declared thread_safe"
    assert line == f"workers: 8 threads; {expected}"
    assert "busy" not in explained(SafeSequence(Slow(True), workers=8), capsys)
    assert "busy" not in explained(SafeSequence(Slow(False), workers=1), capsys)


def test_threads_that_too_few_batches_may_be_under_way_for(capsys):
    line = explained(SafeSequence(Slow(True), workers=16), capsys)
    assert line.startswith("workers: 16 threads; only 10 of them are busy at a time")
    assert line.endswith("max_queue_size=16 has all of them work")
    assert "busy" not in explained(SafeSequence(Slow(True), workers=16, max_queue_size=16), capsys)
    # Samples of a batch are shared out.
    arrays = np.zeros((64, 2))
    assert "busy" not in explained(SafeSequence(arrays, 8, workers=16), capsys)
    whole = SafeSequence(arrays, 8, workers=16, batch_transform=lambda batch: batch)
    assert "only 10 of them" in explained(whole, capsys)


def test_processes_that_are_not_there_yet(capsys, monkeypatch):
    with SafeSequence(Slow(False), workers=2, use_multiprocessing=True) as sequence:
        next(iter(sequence))
        monkeypatch.setattr(Dispatcher, "starting", True)
        assert last_line(sequence, capsys) == "workers: 2 processes, which are starting"
        monkeypatch.setattr(Dispatcher, "starting", False)
        monkeypatch.setattr(Supply, "_held_back", True)
        assert last_line(sequence, capsys).endswith(" once there is work enough for them")
        monkeypatch.setattr(Supply, "_held_back", False)
        assert last_line(sequence, capsys) == "workers: 2 processes"
