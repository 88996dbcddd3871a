"""In how many jobs a batch is made, and that so many workers are busy."""

from __future__ import annotations

import threading
import time

import pytest

from adapters import SafeSequence
from adapters.engine import portions
from tests.engine.hands import Hands

BATCH, WINDOW = 64, 10


class AtOnce:
    """A transform that waits, and notes in how many threads it did so at once."""

    thread_safe = True

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.most = self._now = 0
        self._lock = threading.Lock()

    def __call__(self, sample: int) -> int:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(self.seconds)
        with self._lock:
            self._now -= 1
        return sample


@pytest.mark.parametrize(("workers", "least"), [(4, 4), (16, 14)])
def test_more_threads_than_batches_in_the_window_are_all_busy(workers, least):
    transform = AtOnce(0.0003)  # A batch takes 0.03 s: less than what is split for its length.
    with SafeSequence(range(100 * BATCH), BATCH, transform=transform, workers=workers) as sequence:
        batches = iter(sequence)
        for _ in range(30):  # The first ones take longer.
            next(batches)
        transform.most = 0
        for _ in range(30):
            next(batches)
    assert transform.most >= least


@pytest.mark.parametrize(
    ("active", "seconds", "parts"),
    [
        (2, 0.03, 1),  # There are ten batches for two workers.
        (5, 0.03, 1),
        (16, 0.03, 4),  # 32 jobs, or a little more, of ten batches.
        (16, 0.004, 2),  # A part is not worth its handover.
        (16, 0.0005, 1),
        (2, 0.06, 2),  # So that it comes sooner.
        (16, 10.0, 16),
    ],
)
def test_parts_of_a_batch(active, seconds, parts):
    crew = Hands()
    crew.count = active
    assert portions.parts(crew, seconds, WINDOW, active, BATCH) == parts


@pytest.mark.parametrize("what", [{"splits": False}, {"starting": True}])
def test_who_can_not_split_does_not(what):
    crew = Hands()
    vars(crew).update(what)
    assert portions.parts(crew, 10.0, WINDOW, 16, BATCH) == 1
