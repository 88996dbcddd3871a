"""Code that draws from ``random`` and ``numpy.random`` draws the same with all workers.

So does Keras's own generator of images, and classes of every kind.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from PIL import Image

from adapters import SafeSequence
from adapters.engine import processes
from adapters.engine.pool import shared_pool
from tests.batches import exact
from tests.engine.executors import end_idle_workers
from tests.keras.recording import ALL_WORKERS, AUTO, INLINE, PROCESSES, TWO_THREADS, Options
from tests.test_generator_search import Slots

pytestmark = pytest.mark.one_backend


@pytest.fixture(autouse=True)
def light_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes import Keras without a framework behind it."""
    monkeypatch.setenv("KERAS_BACKEND", "numpy")


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


SOURCES: dict[str, Any] = {
    "batches": lambda **workers: SafeSequence(Drawing(), **workers),
    "samples": lambda **workers: SafeSequence(DrawingSamples(), 4, **workers),
    "samples at once": lambda **workers: SafeSequence(DrawingAtOnce(), 4, **workers),
    "transforms": lambda **workers: SafeSequence(
        np.ones((24, 2)), 4, transform=flipped, batch_transform=jittered, **workers
    ),
}


def epochs(kind: str, workers: Any) -> Any:
    with SOURCES[kind](**workers) as sequence:
        return exact([list(sequence), list(sequence)])


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize(
    "workers", [each for each in ALL_WORKERS if each.values[0] not in (INLINE, PROCESSES)]
)
def test_what_is_drawn_is_the_same_for_all_workers(kind, workers):
    random.seed(1)
    np.random.seed(1)
    inline = epochs(kind, INLINE)
    random.seed(2)
    np.random.seed(2)
    assert epochs(kind, workers) == inline
    assert inline[0] != inline[1]


@pytest.mark.parametrize("kind", ["batches", "transforms"])
def test_what_is_drawn_in_processes_is_the_same(kind):
    assert epochs(kind, PROCESSES) == epochs(kind, INLINE)


@pytest.mark.parametrize("kind", SOURCES)
def test_the_generators_are_afterwards_as_they_were(kind):
    random.seed(3)
    np.random.seed(3)
    expected = random.random(), np.random.rand()
    random.seed(3)
    np.random.seed(3)
    epochs(kind, INLINE)
    assert (random.random(), np.random.rand()) == expected


def from_python(sample: Any) -> Any:
    return sample + random.random()


@pytest.mark.parametrize("inner", [False, True])
def test_they_are_as_they_were_where_a_batch_within_a_batch_draws_from_the_other_one(inner):
    first, second = (drawn, from_python) if inner else (from_python, drawn)
    random.seed(3)
    np.random.seed(3)
    before = random.getstate(), str(np.random.get_state())
    samples = SafeSequence(np.zeros((8, 2)), 4, transform=first, **INLINE)
    list(SafeSequence(samples, batch_transform=second, **INLINE))
    assert (random.getstate(), str(np.random.get_state())) == before


def test_the_second_of_a_pair_of_normal_numbers_is_kept():
    np.random.seed(3)
    expected = np.random.randn(2)[1]
    np.random.seed(3)
    np.random.randn()
    list(SafeSequence(np.zeros((8, 2)), 4, transform=drawn, **INLINE))
    assert np.random.randn() == expected


def test_they_are_as_they_were_after_an_error_too():
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


def test_a_transform_that_draws_nothing_leaves_threads_alone():
    barrier = threading.Barrier(2)

    def meeting(batch: Any) -> Any:
        if batch[0] >= 8:  # The first two batches are computed one after the other.
            barrier.wait(20)
        return batch

    numbers = np.arange(24)
    arguments = {"workers": 2, "thread_safe": True}
    with SafeSequence(numbers, 4, batch_transform=meeting, **arguments) as sequence:
        assert len(list(sequence)) == 6
        barrier.abort()


@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS])
def test_a_sequence_that_draws_may_read_another_one_that_draws(workers):
    class Mixed(keras.utils.PyDataset):
        """Reads another sequence whose transform draws on threads, and draws itself."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = SafeSequence(np.zeros((24, 2)), 4, transform=drawn, **TWO_THREADS)

        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> Any:
            return np.random.rand(4, 2), next(self.batches), np.random.rand(4, 2)

        def read(self, **options: Any) -> Any:
            with self.inner, SafeSequence(self, **options) as sequence:
                self.batches = iter(self.inner)
                return list(sequence)

    assert exact(Mixed().read(**workers)) == exact(Mixed().read(**INLINE))


def drawn(sample: Any) -> Any:
    return sample + np.random.rand()


class Waiting(Drawing):
    """Batches that come slowly."""

    def __len__(self) -> int:
        return 30

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
def test_no_thread_draws_beside_the_trainer_until_processes_do(start_seconds, monkeypatch):
    """Whose step takes longer than a batch, so that it would pay."""
    monkeypatch.setattr(shared_pool(), "start_seconds", start_seconds)
    monkeypatch.setattr(type(shared_pool()), "idle", 0)
    names, *drawn = read("auto", 0.02)
    assert names == {"MainThread"}
    assert drawn == [*read(0, 0.0)[1:]]


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
def test_while_processes_start_the_plan_is_not_sent_at_each_epoch(monkeypatch):
    sent = []
    opened = processes.SerializedPlan
    monkeypatch.setattr(
        processes, "SerializedPlan", lambda *about: sent.append(len(sent)) or opened(*about)
    )
    with SafeSequence(ChangedBetweenEpochs(), workers="auto", seed=3) as sequence:
        batches, starting = [], 0
        while not starting or sequence._engine._dispatcher.starting:
            batches.append(list(sequence))
            starting += sequence._engine._dispatcher.starting
        assert len(sent) <= 3  # Then, when they are asked for something, and an epoch later.
        assert starting > 4
        batches += [list(sequence) for _ in range(2)]
    with SafeSequence(ChangedBetweenEpochs(), workers=0, seed=3) as sequence:
        assert exact([list(sequence) for _ in batches]) == exact(batches)


class OfAProcess(Drawing):
    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.005)
        return np.random.rand(4, 2), np.full(4, os.getpid())


@pytest.mark.usefixtures("processes_at_once")
def test_what_belongs_into_processes_is_not_made_here_while_they_start():
    with SafeSequence(OfAProcess(), workers="auto") as sequence:
        here, decided, dispatcher = 0, False, sequence._engine._dispatcher
        for _, pids in sequence:
            here += decided and dispatcher.starting and pids[0] == os.getpid()
            decided = not sequence._engine.undecided
        assert dispatcher.is_open
        assert not here


# --- classes of every kind ---


class Noisy(list):
    def __getitem__(self, number: Any) -> Any:
        return super().__getitem__(number) + random.random()


@pytest.mark.parametrize("way", ["transform", "batch_transform", "source"])
def test_the_batches_are_the_same_for_every_kind_of_workers_and_nobody_elses_state_changes(way):
    before = random.getstate(), np.random.get_state()[1].tolist()
    source = Noisy(range(24)) if way == "source" else np.arange(24.0)
    arguments = {} if way == "source" else {way: Slots()}

    def batches(**workers: Any) -> list[Any]:
        with SafeSequence(source, 4, **arguments, **workers) as sequence:
            return [np.asarray(batch).tolist() for batch in sequence]

    expected = batches(workers=0)
    assert batches(workers=0) == expected
    assert batches(workers=2, use_multiprocessing=True) == expected
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


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
@pytest.mark.parametrize("workers", [TWO_THREADS, PROCESSES, AUTO])
def test_images_that_keras_s_generator_draws_are_the_same_for_all_workers(workers, pictures):
    settings = {"horizontal_flip": True, "channel_shift_range": 50.0}
    inline = generated(pictures, INLINE, **settings)
    assert len(inline) == 3
    for mine, other in zip(inline, generated(pictures, workers, **settings)):
        np.testing.assert_array_equal(mine[0], other[0])
        np.testing.assert_array_equal(mine[1], other[1])
