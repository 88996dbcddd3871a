"""Worker processes with windows of any depth: no batch is another one, whatever their sizes.

Each setting compares two windows' worth of batches and some more, so that what holds a batch is
used again. ``ADAPTERS_FUZZ_BATCHES`` says how many are compared in all, where that is more; a
million take three minutes.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import pytest

import adapters

BATCHES = int(os.environ.get("ADAPTERS_FUZZ_BATCHES", "40000"))
FACES = ["SafeSequence", "gluon_loader"]
SIZES = ["small", "mixed"]
MOST_WORKERS = 4
# So many settings of each window: the deeper it is, the longer one takes.
WINDOWS = {1: 4, 7: 4, 130: 4, 500: 2, 2000: 1}
KINDS = list(product(FACES, SIZES))
FURTHER = 250
LEAST = len(KINDS) * sum(count * (2 * window + FURTHER) for window, count in WINDOWS.items())
MOST_BYTES = 30 * 2**20


class Samples:
    """Bytes that only one number gives, in lengths that follow no order.

    Args:
        sizes: "small" for 0 to 200 bytes; "mixed" for 1 KiB to 30 MiB, half of them below 2 KiB and
            one of a thousand above 1 MiB.
        length: How many.
    """

    def __init__(self, sizes: str, length: int) -> None:
        self.sizes = sizes
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, number: int) -> Any:
        luck = (number * 2_654_435_761 % 2**32 + 1) / 2**32
        size = int(201 * luck) if self.sizes == "small" else min(int(1024 / luck), MOST_BYTES)
        words = np.full(-(-size // 8) + 1, number * 0x9E3779B97F4A7C15 % 2**64, np.uint64)
        return words.view(np.uint8)[:size]


def batches_of(face: str, samples: Samples, workers: int, window: int) -> Any:
    if face == "SafeSequence":
        return adapters.SafeSequence(
            samples, 1, workers=workers, use_multiprocessing=True, max_queue_size=window
        )
    if find_spec("mxnet") is None:
        pytest.skip("MXNet is not installed; it has wheels for NumPy 1 only")
    return adapters.gluon_loader(
        samples, 1, num_workers=workers, thread_pool=False, prefetch=window, batchify_fn=first
    )


def first(samples: list[Any]) -> Any:
    return samples[0]


def settings_of(kind: int) -> list[tuple[int, int]]:
    """Windows and numbers of workers; over all kinds, there is each window with each number."""
    return [
        (window, (kind + number) % MOST_WORKERS + 1)
        for window, count in WINDOWS.items()
        for number in range(count)
    ]


def test_each_window_meets_each_number_of_workers():
    met = {setting for kind in range(len(KINDS)) for setting in settings_of(kind)}
    assert met == set(product(WINDOWS, range(1, MOST_WORKERS + 1)))


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", range(len(KINDS)), ids=["-".join(kind) for kind in KINDS])
def test_no_batch_is_another_one(kind):
    face, sizes = KINDS[kind]
    for window, workers in settings_of(kind):
        samples = Samples(sizes, (2 * window + FURTHER) * max(LEAST, BATCHES) // LEAST)
        with batches_of(face, samples, workers, window) as batches:
            compared = 0
            for number, batch in enumerate(batches):
                found = np.asarray(batch).reshape(-1)
                expected = samples[number]
                assert np.array_equal(found, expected), (window, workers, number)
                compared += 1
        assert compared == len(samples)
