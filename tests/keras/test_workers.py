"""When worker processes are started, and those of a Dask cluster."""

from __future__ import annotations

import contextlib
import decimal
import importlib
import itertools
import pickle
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import PIL.Image
import PIL.ImageFile
import pytest

from adapters import SafeSequence
from adapters.engine.pool import shared_pool
from tests.batches import exact
from tests.clusters import cluster
from tests.engine.executors import end_idle_workers
from tests.engine.executors import workers as worker_processes
from tests.keras.recording import built_recorder


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
        built_recorder().fit(
            sequence, epochs=epochs, initial_epoch=ended, callbacks=[Looks()], verbose=0
        )
    assert any(found) is opened


class Changed:
    """A transform with settings, one of them an array, which a loop changes between passes."""

    def __init__(self) -> None:
        self.number, self.array = 0.0, np.zeros(3)

    def __call__(self, sample: Any) -> Any:
        return sample + self.number + self.array.sum()


def test_processes_see_what_was_changed_between_passes():
    transform, means = Changed(), []
    source = np.zeros((60, 1), np.float32)
    with SafeSequence(
        source, 5, transform=transform, workers=2, use_multiprocessing=True
    ) as sequence:
        for epoch in range(4):
            transform.number = epoch // 2
            transform.array[0] = epoch % 2
            means.append([float(batch.mean()) for batch in sequence])
    assert means == [[expected] * 12 for expected in (0, 1, 1, 2)]


class Configured:
    """A transform whose result depends on settings of the thread that it runs in."""

    def __call__(self, sample: Any) -> Any:
        with contextlib.suppress(FloatingPointError):
            np.float64(sample) / np.float64(0)
            return 0.0
        return float(decimal.Decimal(1) / 3)


def test_threads_have_the_settings_of_the_program():
    with np.errstate(all="raise"), decimal.localcontext() as context:
        context.prec = 3
        with SafeSequence([1.0] * 4, 4, transform=Configured(), workers=1) as sequence:
            (batch,) = sequence
    assert batch.tolist() == [0.333] * 4


def test_processes_take_over_settings_of_libraries(new_processes, light_workers, monkeypatch):
    """Also those of a library that the user's code imports when it makes a batch."""

    def settings(_: Any) -> Any:
        config, image, file = map(
            importlib.import_module, ("keras.config", "PIL.Image", "PIL.ImageFile")
        )
        first = config.image_data_format() == "channels_first"
        return np.array(
            [first, config.epsilon(), image.MAX_IMAGE_PIXELS, file.LOAD_TRUNCATED_IMAGES]
        )

    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 7)
    monkeypatch.setattr(PIL.ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    before = keras.config.image_data_format(), keras.config.epsilon()
    keras.config.set_image_data_format("channels_first")
    keras.config.set_epsilon(0.5)
    try:
        with SafeSequence(
            [0], 1, transform=settings, workers=1, use_multiprocessing=True
        ) as sequence:
            np.testing.assert_array_equal(list(sequence), [[[True, 0.5, 7, True]]])
    finally:
        keras.config.set_image_data_format(before[0])
        keras.config.set_epsilon(before[1])


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
