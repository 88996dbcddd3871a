"""Code that draws from ``random`` and ``numpy.random`` draws the same with all workers.

So does Keras's own generator of images.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from PIL import Image

from adapters import SafeSequence
from adapters.engine.pool import shared_pool
from tests.batches import exact
from tests.engine.executors import end_idle_workers, wait_until
from tests.engine.executors import workers as worker_processes
from tests.keras.recording import (
    AUTO,
    FOUR_THREADS,
    INLINE,
    PROCESSES,
    TWO_THREADS,
    Options,
)

pytestmark = [pytest.mark.one_backend, pytest.mark.usefixtures("light_workers")]


def drawn(sample: Any) -> Any:
    return sample + np.random.rand()


def from_python(sample: Any) -> Any:
    return sample + random.random()


class Drawing(keras.utils.PyDataset):
    """Whole batches of what both generators give."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return np.random.rand(4, 2), np.float64([random.random() for _ in range(4)])


class DrawingSamples:
    """Samples of what they give."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, number: int) -> Any:
        return np.random.rand(2), random.random()


class DrawingAtOnce(DrawingSamples):
    """As PyTorch fetches them."""

    def __getitems__(self, numbers: list[int]) -> Any:
        return [self[number] for number in numbers]


def jittered(batch: Any) -> Any:
    """A ``batch_transform``."""
    return batch + np.random.normal(size=batch.shape)


def flipped(sample: Any) -> Any:
    """A ``transform``."""
    return sample * random.choice([-1.0, 1.0])


class Noisy(list):
    def __getitem__(self, number: Any) -> Any:
        return super().__getitem__(number) + random.random()


@dataclass(slots=True)
class Slots:
    scale: float = 1.0

    def __call__(self, x: Any) -> Any:
        return x + self.scale * np.random.rand()


SOURCES: dict[str, Any] = {
    "batches": lambda **workers: SafeSequence(Drawing(), **workers),
    "samples": lambda **workers: SafeSequence(DrawingSamples(), 4, **workers),
    "samples at once": lambda **workers: SafeSequence(DrawingAtOnce(), 4, **workers),
    "transforms": lambda **workers: SafeSequence(
        np.ones((24, 2)), 4, transform=flipped, batch_transform=jittered, **workers
    ),
    "a collate": lambda **workers: SafeSequence(np.ones(24), 4, collate=noisy, **workers),
    "a list": lambda **workers: SafeSequence(Noisy(range(24)), 4, **workers),
    "slots": lambda **workers: SafeSequence(np.arange(24.0), 4, transform=Slots(), **workers),
    "slots of batches": lambda **workers: SafeSequence(
        np.arange(24.0), 4, batch_transform=Slots(), **workers
    ),
}
IN_PROCESSES = ("batches", "transforms", "a list", "slots", "slots of batches")


def noisy(samples: list[Any]) -> Any:
    return np.array(samples) + np.random.rand(len(samples))


def epochs(kind: str, workers: Any) -> Any:
    with SOURCES[kind](**workers) as sequence:
        return exact([list(sequence), list(sequence)])


@pytest.mark.parametrize("kind", SOURCES)
def test_draws_are_the_same_for_all_workers(kind):
    random.seed(1)
    np.random.seed(1)
    inline = epochs(kind, INLINE)
    assert inline[0] != inline[1]
    for workers in (INLINE, FOUR_THREADS, AUTO, PROCESSES):
        if workers is not PROCESSES or kind in IN_PROCESSES:
            random.seed(2)
            np.random.seed(2)
            assert epochs(kind, workers) == inline


@pytest.mark.parametrize("kind", ["batches", "samples at once", "transforms"])
def test_generators_are_afterwards_as_they_were(kind):
    random.seed(3)
    np.random.seed(3)
    expected = random.random(), np.random.rand()
    random.seed(3)
    np.random.seed(3)
    epochs(kind, INLINE)
    assert (random.random(), np.random.rand()) == expected


@pytest.mark.parametrize("inner", [False, True])
def test_generators_after_a_batch_within_a_batch(inner):
    first, second = (drawn, from_python) if inner else (from_python, drawn)
    random.seed(3)
    np.random.seed(3)
    before = random.getstate(), str(np.random.get_state())
    samples = SafeSequence(np.zeros((8, 2)), 4, transform=first, **INLINE)
    list(SafeSequence(samples, batch_transform=second, **INLINE))
    assert (random.getstate(), str(np.random.get_state())) == before


def test_generators_keep_the_second_normal_number():
    np.random.seed(3)
    expected = np.random.randn(2)[1]
    np.random.seed(3)
    np.random.randn()
    list(SafeSequence(np.zeros((8, 2)), 4, transform=drawn, **INLINE))
    assert np.random.randn() == expected


def test_generators_after_an_error():
    class Failing(Drawing):
        def __getitem__(self, index: int) -> Any:
            np.random.rand()
            raise OSError("spoilt")

    np.random.seed(3)
    expected = np.random.rand()
    np.random.seed(3)
    with pytest.raises(OSError, match="spoilt"):
        SafeSequence(Failing(), **INLINE)[0]
    assert np.random.rand() == expected


class Waiting(Drawing):
    """Batches that come slowly."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.005)
        batch = super().__getitem__(index)
        time.sleep(0.005)
        return threading.current_thread().name, batch


def read(workers: Any, busy_seconds: float) -> tuple[set[str], Any, Any]:
    """The threads that made batches here, the batches, and what the trainer draws beside them."""
    random.seed(5)
    np.random.seed(5)
    batches, own = [], []
    with SafeSequence(Waiting(workers=2), workers=workers) as sequence:
        for batch in sequence:
            batches.append(batch)
            for _ in range(4):
                own.append((random.random(), np.random.rand()))
                time.sleep(busy_seconds / 4)
    return {name for name, _ in batches}, exact([batch for _, batch in batches]), own


@pytest.mark.parametrize("start_seconds", [100.0, 0.05], ids=["never worth it", "worth it"])
def test_trainer_draws_beside_no_thread(start_seconds, monkeypatch):
    monkeypatch.setattr(shared_pool(), "start_seconds", start_seconds)
    monkeypatch.setattr(type(shared_pool()), "idle", 0)
    names, *drawn = read("auto", 0.02)
    assert names == {"MainThread"}
    assert drawn == [*read(0, 0.0)[1:]]


# --- processes that start meanwhile ---


class ChangedBetweenEpochs(Drawing):
    """Its epochs are over before a process is there."""

    sign = 1.0

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.005)
        return self.sign * np.random.rand(4, 2), np.zeros(4)

    def on_epoch_end(self) -> None:
        self.sign = -self.sign


@pytest.fixture
def processes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as they pay at all, and none that was there before."""
    monkeypatch.setattr(shared_pool(), "start_seconds", 0.01)
    end_idle_workers()


@pytest.mark.usefixtures("processes_at_once")
def test_epochs_while_processes_start():
    """What a hook changes counts, whether the batches are made here or there."""
    found = []
    with SafeSequence(ChangedBetweenEpochs(), workers="auto", seed=3) as sequence:
        wait_until(lambda: found.append(list(sequence)) or worker_processes())
        found += [list(sequence) for _ in range(3)]
    with SafeSequence(ChangedBetweenEpochs(), workers=0, seed=3) as sequence:
        assert exact([list(sequence) for _ in found]) == exact(found)


# --- Keras's generator of images ---


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for number in range(12):
        path = folder / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(path)
    return folder


def generated(folder: Path, workers: Options, **settings: Any) -> list[Any]:
    image = pytest.importorskip(
        "keras.src.legacy.preprocessing.image", reason="Keras 2 has it elsewhere"
    )
    generator = image.ImageDataGenerator(**settings)
    # With a seed of its own, it would count the calls of each process.
    flow = generator.flow_from_directory(
        str(folder), target_size=(8, 8), batch_size=4, shuffle=False
    )
    with SafeSequence(flow, **workers) as sequence:
        return list(sequence)


# Keras 3.6 says it of iterators of its own.
@pytest.mark.filterwarnings("ignore:Your `PyDataset` class should call")
@pytest.mark.usefixtures("sent_by_value")
@pytest.mark.parametrize("workers", [TWO_THREADS, PROCESSES])
def test_image_data_generator(workers, pictures):
    settings = {"horizontal_flip": True, "channel_shift_range": 50.0}
    inline = generated(pictures, INLINE, **settings)
    assert len(inline) == 3
    for mine, other in zip(inline, generated(pictures, workers, **settings)):
        np.testing.assert_array_equal(mine[0], other[0])
        np.testing.assert_array_equal(mine[1], other[1])
