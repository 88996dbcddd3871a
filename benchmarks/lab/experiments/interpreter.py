"""One row of the interpreter's share: for how long a picture holds the lock that all threads share.

Threads decode side by side but for what they do in Python, one at a time. A row counts the CPU
seconds of batches that a single thread makes, once as they are, and once with empty images handed
to the kernel in the place of the pictures: what is left then is Python, and what C does while it
holds the lock; an upper bound. From both follows what any number of cores can make of it at best
(Amdahl's law).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.data.photographs import find_photographs
from benchmarks.harness.row import Measurement
from benchmarks.peers.pictures import SIDE

IMAGE, LABEL = "image/encoded", "image/class/label"
TFRECORD, TYPED, RECORDIO = "TFRecord", "TFRecord, typed features", "RecordIO"
SOURCES = (TFRECORD, TYPED, RECORDIO)
CORES = (16, 64)


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one row, in a process of its own.

    Args:
        options: `source` (one of SOURCES), `batch` (samples), and `passes` (of each kind).
    """
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    from adapters import SafeSequence
    from adapters.images import kernel

    module = kernel.load()
    assert module is not None
    began, batch, idle = time.monotonic(), options["batch"], _WithoutPictures(module)
    with SafeSequence(_source(options["source"]), batch, shuffle=True, workers=0) as sequence:
        kernel.load = lambda: idle
        first = _microseconds(sequence, idle)
        held = [_microseconds(sequence, idle) for _ in range(options["passes"])]
        kernel.load = lambda: module
        whole = [_microseconds(sequence, idle) for _ in range(options["passes"])]
    # The least of the passes: what else the machine does only adds to CPU time.
    held_us, whole_us = min(held), min(whole)
    return Measurement(
        software=f"keras {keras.__version__}",
        device="the CPU",
        metrics={
            "first_us": first,
            "held_us": held_us,
            "whole_us": whole_us,
            "share": held_us / whole_us,
            **{f"cores_{cores}": speed_up(held_us / whole_us, cores) for cores in CORES},
            "most_cores": whole_us / held_us,
        },
        rounds={"held_us": held, "whole_us": whole},
        window=(began, time.monotonic()),
    )


def speed_up(share: float, cores: int) -> float:
    """Of so many cores over one, where this share is done by one at a time (Amdahl's law)."""
    return 1 / (share + (1 - share) / cores)


def _source(name: str) -> Any:
    from adapters import Feature, ImageDecoder, open_records

    photographs = find_photographs()
    decoder = ImageDecoder(SIDE, crop="random_resized", flip=True)
    if name == TYPED:
        features = {IMAGE: decoder, LABEL: Feature("int64")}
        return open_records(photographs.tfrecord, decode=features, outputs=(IMAGE, LABEL))
    path = photographs.recordio if name == RECORDIO else photographs.tfrecord
    return open_records(path, decode=decoder)


def _microseconds(sequence: Any, idle: _WithoutPictures) -> float:
    """CPU time of a picture, in one pass, but for what was set aside."""
    idle.aside_seconds = 0.0
    pictures, began = 0, time.thread_time()
    for images, _ in sequence:
        pictures += len(images)
    return (time.thread_time() - began - idle.aside_seconds) / pictures * 1e6


class _WithoutPictures:
    """The compiled kernel, but that every image it is handed is empty.

    It finds images in records all the same, of nothing once more for what that takes with the lock.
    ``aside_seconds`` is what was done without it.
    """

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._empty = np.zeros((1 << 16, 3), np.int64)
        self._nowhere = np.full((1 << 16, 5), -1, np.int64)
        self.aside_seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def aside(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose time is set aside."""

        def timed(*arguments: Any) -> Any:
            began = time.thread_time()
            result = function(*arguments)
            self.aside_seconds += time.thread_time() - began
            return result

        return timed

    def find_images(self, buffers: Any, records: Any, count: int, *names: bytes) -> Any:
        self._module.find_images(buffers, self._nowhere[:count], count, *names)
        return self.aside(self._module.find_images)(buffers, records, count, *names)

    def decode(self, buffers: Any, pieces: Any, rows: Any, *rest: Any) -> bytes:
        self._module.decode(buffers, self._empty[: len(rows)], rows, *rest)
        return b"\1" * len(rows)
