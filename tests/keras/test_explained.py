"""What ``explain()`` says of workers that can't be busy, or aren't there yet."""

from __future__ import annotations

import time

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.engine.dispatch import Dispatcher
from adapters.engine.supply import Supply, WorkerState


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


def test_processes_that_are_not_there_yet(capsys, monkeypatch):
    with SafeSequence(Slow(False), workers=2, use_multiprocessing=True) as sequence:
        next(iter(sequence))
        monkeypatch.setattr(Dispatcher, "starting", True)
        assert last_line(sequence, capsys) == "workers: 2 processes, which are starting"
        monkeypatch.setattr(Dispatcher, "starting", False)
        with monkeypatch.context() as context:
            context.setattr(Supply, "state", WorkerState.DEFERRED)
            assert last_line(sequence, capsys).endswith(" once there is work enough for them")
        assert last_line(sequence, capsys) == "workers: 2 processes"
