"""Worker processes are kept: calls of a sequence meet the same ones, and so do loaders after it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.engine.pool import shared_pool
from tests.engine.executors import end_idle_workers, wait_until
from tests.keras.recording import PROCESSES, built_recorder, echo
from tests.keras.samples import BATCH_SIZE, numbered

BATCHES = 12
_SECONDS = 0.005


def signed(sample: Any) -> Any:
    """A sample of the number of the process that makes it, which is at that for a while."""
    time.sleep(_SECONDS)
    return np.float32([os.getpid()]), sample[1]


class Signed:
    """A data set of such numbers."""

    def __len__(self) -> int:
        return BATCHES * BATCH_SIZE

    def __getitem__(self, number: int) -> int:
        time.sleep(_SECONDS)
        return os.getpid()


def makers(batches: Iterable[Any]) -> set[int]:
    """The processes in some batches, but for this one."""
    return {int(pid) for batch in batches for pid in np.ravel(batch)} - {os.getpid()}


def first_makers(loader: Any) -> set[int]:
    """Those that make batches of a loader once they have imported what its work needs."""
    found: set[int] = set()
    wait_until(lambda: found.update(makers(batch.asnumpy() for batch in loader)) or found)
    return found


@pytest.fixture
def gluon_loader() -> Any:
    """Imported before processes start, which get the environment that there is then."""
    from adapters import gluon_loader

    return gluon_loader


@pytest.fixture
def sequence(sent_by_value: None) -> Iterator[SafeSequence]:
    end_idle_workers()
    samples = numbered(BATCHES * BATCH_SIZE)
    with SafeSequence(samples, BATCH_SIZE, transform=signed, **PROCESSES) as sequence:
        yield sequence


@pytest.fixture
def both(sequence: SafeSequence) -> set[int]:
    """The processes of the sequence, however long the second one takes to start."""
    found: set[int] = set()
    wait_until(lambda: found.update(makers(pids for pids, _ in sequence)) or len(found) == 2)
    return found


def test_fit_evaluate_and_predict_meet_the_same_processes(sequence, both):
    model = built_recorder()
    model.fit(sequence, verbose=0)
    model.evaluate(sequence, verbose=0)
    predicted = echo().predict(sequence, verbose=0)
    met = [makers(batches) for batches in (model.trained, model.tested, predicted)]
    assert all(each and each <= both for each in met), (met, both)
    sequence.close()
    assert shared_pool().idle_pids == both


@pytest.mark.one_backend
@pytest.mark.full
@pytest.mark.skipif(find_spec("mxnet") is None, reason="MXNet is not installed")
def test_a_loader_gets_the_processes_of_a_sequence_and_the_next_loader_gets_them_too(
    gluon_loader, sequence, both
):
    sequence.close()
    for _ in range(2):
        with gluon_loader(Signed(), BATCH_SIZE, num_workers=2, thread_pool=False) as loader:
            assert first_makers(loader) <= both
    assert shared_pool().idle_pids == both


class SlowDrawing(keras.utils.PyDataset):
    """Six batches of 20 ms, which only processes may make beside each other."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.02)
        return np.random.rand(4, 1), np.zeros((4, 1))


@pytest.mark.parametrize(
    ("epochs", "ended", "opened"), [(2, 0, False), (999, 0, True), (999, 998, False)]
)
def test_processes_start_when_all_epochs_of_a_fit_are_worth_it(epochs, ended, opened, monkeypatch):
    """And not when the epochs before were; ``ended`` are none of this fit's."""
    # Two epochs take a tenth of it, so that a busy machine doesn't make them worth it either.
    monkeypatch.setattr(shared_pool(), "start_seconds", 3.0)
    end_idle_workers()
    found = []

    class Looks(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            found.append(sequence._engine._dispatcher.is_open)
            self.model.stop_training = epoch > ended

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    with SafeSequence(SlowDrawing(), workers="auto") as sequence:
        model.fit(sequence, epochs=epochs, initial_epoch=ended, callbacks=[Looks()], verbose=0)
    assert any(found) is opened
