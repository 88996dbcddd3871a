"""``SafeSequence(workers=client)``: batches from a Dask cluster, as those of one's own workers."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.diagnosis import diagnose
from tests.batches import exact
from tests.clusters import cluster

X, Y = np.arange(400.0).reshape(100, 4), np.arange(100) % 2


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with cluster() as client:
        yield client


def jitter(sample: Any, rng: np.random.Generator) -> Any:
    x, y = sample
    return x + rng.standard_normal(4), y


def sequence(workers: Any) -> SafeSequence:
    return SafeSequence((X, Y), 16, transform=jitter, shuffle=True, seed=3, workers=workers)


def model() -> Any:
    keras.utils.set_random_seed(0)
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile(optimizer="sgd", loss="mse")
    return made


def test_batches_and_state_are_those_without_workers(client):
    with sequence(client) as ours, sequence(0) as expected:
        for _ in range(2):
            assert [exact(batch) for batch in ours] == [exact(batch) for batch in expected]
        half = list(itertools.islice(ours, 3))
        state = ours.state_dict()
        assert state == {"epoch": 2, "batch": 3}
    with sequence(0) as again:
        again.load_state_dict({"epoch": 2, "batch": 0})
        assert [exact(batch) for batch in itertools.islice(again, 3)] == [exact(b) for b in half]


def test_training_gives_the_same_weights(client):
    weights = []
    for workers in (client, 0):
        with sequence(workers) as data:
            (made := model()).fit(data, epochs=2, verbose=0)
            weights.append(made.get_weights())
    assert exact(weights[0]) == exact(weights[1])


def test_what_was_asked_for_is_seen(client, capsys):
    with sequence(client) as data:
        assert data.workers is client
        data.explain()
        assert "workers: 2 workers of a Dask cluster" in capsys.readouterr().out


def test_copies_share_the_client(client):
    with sequence(client) as data, copy.copy(data) as one, copy.deepcopy(data) as other:
        assert one.workers is other.workers is client
        assert exact(next(iter(one))) == exact(next(iter(other))) == exact(next(iter(data)))


def test_a_pickled_copy_has_workers_of_its_own(client):
    with sequence(client) as data, pickle.loads(pickle.dumps(data)) as other:
        assert other.workers == "auto"
        assert [exact(batch) for batch in other] == [exact(batch) for batch in data]


def test_a_client_that_does_not_wait_is_refused():
    """``asynchronous=True``: what it returns are coroutines."""
    waiting = SimpleNamespace(submit=None, scheduler_info=None, asynchronous=True)
    with pytest.raises(ValueError, match="workers must be a Dask client that waits"):
        SafeSequence((X, Y), workers=waiting)


def test_processes_of_a_cluster_are_refused(client):
    with pytest.raises(ValueError, match="use_multiprocessing must be left out where workers is a"):
        SafeSequence((X, Y), workers=client, use_multiprocessing=True)


def test_the_doctor_says_who_works_and_what_limits_them(client):
    with sequence(client) as data:
        told = str(diagnose(data, seconds=0.3))
    assert "workers: 2 workers of a Dask cluster, on " in told
    assert "is the limit" in told
