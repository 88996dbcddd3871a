"""Code that draws from ``random`` and ``numpy.random`` draws the same with all workers."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence, concatenate, split
from adapters.engine.pool import shared_pool
from tests.batches import exact
from tests.keras.recording import AUTO, FOUR_THREADS, INLINE, PROCESSES, TWO_THREADS, Options

sparse = pytest.importorskip("scipy.sparse")
pytestmark = [pytest.mark.one_backend, pytest.mark.usefixtures("light_workers", "sent_by_value")]


class Drawing(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return np.random.rand(4, 2), np.float64([random.random() for _ in range(4)])


class DrawingSamples:
    def __len__(self) -> int:
        return 24

    def __getitem__(self, number: int) -> Any:
        return np.random.rand(2), random.random()


class DrawingAtOnce(DrawingSamples):
    """As PyTorch fetches them."""

    def __getitems__(self, numbers: list[int]) -> Any:
        return [self[number] for number in numbers]


def jittered(batch: Any) -> Any:
    return batch + np.random.normal(size=batch.shape)


def flipped(sample: Any) -> Any:
    return sample * random.choice([-1.0, 1.0])


def noisy(samples: list[Any]) -> Any:
    return np.array(samples) + np.random.rand(len(samples))


def drawn_by_a_library(sample: Any) -> Any:
    return sample + (sparse.random(1, 2, 0.5).toarray()[0] if sample[0] else 0)


SOURCES: dict[str, Any] = {
    "batches": lambda **workers: SafeSequence(Drawing(), **workers),
    "samples": lambda **workers: SafeSequence(DrawingSamples(), 4, **workers),
    "a part": lambda **workers: SafeSequence(split(DrawingSamples(), [1.0])[0], 4, **workers),
    "several": lambda **workers: SafeSequence(concatenate([DrawingSamples()]), 4, **workers),
    "samples at once": lambda **workers: SafeSequence(DrawingAtOnce(), 4, **workers),
    "transforms": lambda **workers: SafeSequence(
        np.ones((24, 2)), 4, transform=flipped, batch_transform=jittered, **workers
    ),
    "a library": lambda **workers: SafeSequence(
        np.arange(24.0).reshape(12, 2) % 8, 4, transform=drawn_by_a_library, **workers
    ),
    "a collate": lambda **workers: SafeSequence(np.ones(24), 4, collate=noisy, **workers),
}
IN_PROCESSES = ("batches", "a part", "transforms", "a library")


def epochs(kind: str, workers: Any) -> Any:
    with SOURCES[kind](**workers) as sequence:
        return exact([list(sequence), list(sequence)])


@pytest.mark.parametrize("kind", SOURCES)
def test_draws_are_the_same_for_all_workers(kind):
    random.seed(1)
    np.random.seed(1)
    inline = epochs(kind, INLINE)
    assert inline[0] != inline[1]
    for workers in (FOUR_THREADS, AUTO, PROCESSES):
        if workers is not PROCESSES or kind in IN_PROCESSES:
            random.seed(2)
            np.random.seed(2)
            assert epochs(kind, workers) == inline


@pytest.fixture
def generators_stay() -> Iterator[None]:
    """Fail unless both are in the end as they were; NumPy's keeps a second normal number."""
    np.random.seed(3)
    np.random.randn()
    before = random.getstate(), np.random.get_state()
    yield
    np.testing.assert_equal((random.getstate(), np.random.get_state()), before)


@pytest.mark.parametrize("kind", ["batches", "samples at once", "transforms"])
def test_generators_are_afterwards_as_they_were(kind, generators_stay):
    epochs(kind, INLINE)


@pytest.mark.parametrize(("inner", "outer"), [(jittered, flipped), (flipped, jittered)])
def test_generators_after_a_batch_within_a_batch(inner, outer, generators_stay):
    samples = SafeSequence(np.zeros((8, 2)), 4, transform=inner, **INLINE)
    list(SafeSequence(samples, batch_transform=outer, **INLINE))


def test_generators_after_an_error(generators_stay):
    class Failing(Drawing):
        def __getitem__(self, index: int) -> Any:
            raise OSError(f"spoilt {np.random.rand()} {random.random()}")

    with pytest.raises(OSError, match="spoilt"):
        SafeSequence(Failing(), **INLINE)[0]


class Slow(Drawing):
    """Slow enough to be read ahead, and says by which thread it was read."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.005)
        batch = super().__getitem__(index)
        time.sleep(0.005)
        return threading.current_thread().name, batch


def test_trainer_draws_beside_no_thread(monkeypatch):
    monkeypatch.setattr(shared_pool(), "start_seconds", 0.05)  # Processes would be worth it.
    monkeypatch.setattr(type(shared_pool()), "idle", 0)
    found = {}
    for workers in (0, "auto"):
        random.seed(5)
        np.random.seed(5)
        found[workers] = []
        with SafeSequence(Slow(), workers=workers) as sequence:
            for name, batch in sequence:
                found[workers].append((name, batch, random.random(), np.random.rand()))
                time.sleep(0.02 if workers else 0)
    assert {name for name, *_ in found["auto"]} == {"MainThread"}
    assert exact(found["auto"]) == exact(found[0])


def generated(workers: Options) -> list[Any]:
    image = pytest.importorskip(
        "keras.src.legacy.preprocessing.image", reason="Keras 2 has it elsewhere"
    )
    generator = image.ImageDataGenerator(horizontal_flip=True, channel_shift_range=50.0)
    pictures = np.arange(12 * 8 * 8 * 3, dtype=np.float32).reshape(12, 8, 8, 3)
    # With a seed of its own, it would count the calls of each process.
    flow = generator.flow(pictures, np.arange(12), batch_size=4, shuffle=False)
    with SafeSequence(flow, **workers) as sequence:
        return exact(list(sequence))


# Keras 3.6 says it of iterators of its own.
@pytest.mark.filterwarnings("ignore:Your `PyDataset` class should call")
@pytest.mark.parametrize("workers", [TWO_THREADS, PROCESSES])
def test_image_data_generator(workers):
    inline = generated(INLINE)
    assert len(inline) == 3
    assert inline == generated(workers)
