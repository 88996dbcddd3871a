"""Worker processes, which are kept for the next call and loader, and those of a Dask cluster."""

from __future__ import annotations

import itertools
import os
import pickle
import time
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence, diagnose
from adapters.engine.pool import shared_pool
from tests.batches import exact
from tests.clusters import cluster
from tests.engine.executors import end_idle_workers, wait_until
from tests.engine.executors import workers as worker_processes
from tests.keras.py_datasets import Numbered
from tests.keras.recording import (
    PROCESSES,
    built_recorder,
    echo,
    linear,
)
from tests.keras.samples import BATCH_SIZE, numbered

BATCHES = 12
_SECONDS = 0.005


def signed(sample: Any) -> Any:
    """A sample of the number of the process that makes it, which is at that for a while."""
    time.sleep(_SECONDS)
    return np.float32([os.getpid()]), sample[1]


def makers(batches: Iterable[Any]) -> set[int]:
    """The processes in some batches, but for this one."""
    return {int(pid) for batch in batches for pid in np.ravel(batch)} - {os.getpid()}


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


def test_processes_are_kept(sequence, both):
    model = built_recorder()
    model.fit(sequence, verbose=0)
    model.evaluate(sequence, verbose=0)
    predicted = echo().predict(sequence, verbose=0)
    met = [makers(batches) for batches in (model.trained, model.tested, predicted)]
    assert all(each and each <= both for each in met), (met, both)
    sequence.close()
    assert shared_pool().idle_pids == both


class Signed:
    """A data set of the numbers of the processes that make its samples."""

    def __len__(self) -> int:
        return BATCHES * BATCH_SIZE

    def __getitem__(self, number: int) -> int:
        time.sleep(_SECONDS)
        return os.getpid()


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


@pytest.mark.one_backend
@pytest.mark.full
@pytest.mark.skipif(find_spec("mxnet") is None, reason="MXNet is not installed")
def test_processes_are_kept_for_a_loader(gluon_loader, sequence, both):
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
def test_processes_start_when_all_epochs_are_worth_it(epochs, ended, opened, monkeypatch):
    """And not when the epochs before were; ``ended`` are none of this fit's."""
    # Two epochs take a tenth of it, so that a busy machine doesn't make them worth it either.
    monkeypatch.setattr(shared_pool(), "start_seconds", 3.0)
    end_idle_workers()
    found = []

    class Looks(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            found.append(bool(worker_processes()))
            self.model.stop_training = epoch > ended

    with SafeSequence(SlowDrawing(), workers="auto") as sequence:
        linear().fit(sequence, epochs=epochs, initial_epoch=ended, callbacks=[Looks()], verbose=0)
    assert any(found) is opened


def test_short_fit_starts_no_processes(monkeypatch):
    """Whatever is chosen: the work is over before they have started."""

    class Slow(Numbered):  # type: ignore[misc]
        def __getitem__(self, index: int) -> Any:
            ends = time.thread_time() + 0.005
            while time.thread_time() < ends:
                pass
            return super().__getitem__(index)

    end_idle_workers()
    # As on a machine that is as busy.
    monkeypatch.setattr(shared_pool(), "start_seconds", 60.0)
    model = linear()
    with SafeSequence(Slow(7)) as training, SafeSequence(Slow(7)) as validation:
        for _ in range(2):
            model.fit(training, validation_data=validation, epochs=3, verbose=0)
            assert worker_processes() == []
    assert shared_pool().idle_pids == set()


# --- a Dask cluster ---


X, Y = np.arange(400.0).reshape(100, 4), np.arange(100) % 2


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with cluster() as client:
        yield client


def jitter(sample: Any, rng: np.random.Generator) -> Any:
    x, y = sample
    return x + rng.standard_normal(4), y


def clustered(workers: Any) -> SafeSequence:
    return SafeSequence((X, Y), 16, transform=jitter, shuffle=True, seed=3, workers=workers)


@pytest.mark.usefixtures("sent_by_value")
def test_cluster_batches_and_state(client):
    with clustered(client) as ours, clustered(0) as expected:
        for _ in range(2):
            assert [exact(batch) for batch in ours] == [exact(batch) for batch in expected]
        half = list(itertools.islice(ours, 3))
        state = ours.state_dict()
        assert state == {"epoch": 2, "batch": 3}
    with clustered(0) as again:
        again.load_state_dict({"epoch": 2, "batch": 0})
        assert [exact(batch) for batch in itertools.islice(again, 3)] == [exact(b) for b in half]


def test_cluster_is_explained(client, capsys):
    with clustered(client) as data:
        assert data.workers is client
        data.explain()
        assert "workers: 2 workers of a Dask cluster" in capsys.readouterr().out


@pytest.mark.usefixtures("sent_by_value")
def test_cluster_of_pickled_copy(client):
    with clustered(client) as data, pickle.loads(pickle.dumps(data)) as other:
        assert other.workers == "auto"
        assert [exact(batch) for batch in other] == [exact(batch) for batch in data]


def test_cluster_client_that_does_not_wait():
    """``asynchronous=True``: what it returns are coroutines."""
    waiting = SimpleNamespace(submit=None, scheduler_info=None, asynchronous=True)
    with pytest.raises(ValueError, match="workers must be a Dask client that waits"):
        SafeSequence((X, Y), workers=waiting)


@pytest.mark.full
@pytest.mark.usefixtures("sent_by_value")
def test_cluster_diagnosed(client):
    with clustered(client) as data:
        told = str(diagnose(data, seconds=0.3))
    assert "workers: 2 workers of a Dask cluster, on " in told
    assert "is the limit" in told
