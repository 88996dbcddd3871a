"""Ratios of ours to ourselves with other workers, and to what can't be done faster."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.experiments.gluon_ratios import MXNET, STARTING, digits_of
from benchmarks.experiments.gluon_ratios import ours_of as gluon_ours
from benchmarks.experiments.keras_ratios import KERAS, samples_of, scale
from benchmarks.experiments.keras_ratios import ours_of as keras_ours
from benchmarks.harness.ratios import BATCH, DIGITS, Contestant, Ratio, endless, measure_ratio, pace
from benchmarks.harness.row import Measurement


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one ratio, in a process of its own."""
    return measure_ratio(TABLE[options["loader"]], options)


def holding(sample: Any) -> Any:
    """0.1 ms that hold the GIL."""
    total = 0
    for i in range(2000):
        total += i * i % 7
    return np.float32(total)


def sleeping(sample: Any) -> Any:
    """10 ms that wait."""
    time.sleep(0.01)
    return sample


def releasing(sample: Any) -> Any:
    """What a decoder does: 0.2 ms in C without the GIL."""
    return np.uint32(zlib.crc32(zlib.compress(sample, 1)))


# What `SafeSequence` asks of functions that several threads may run at once.
for _function in (sleeping, releasing):
    _function.thread_safe = True  # type: ignore[attr-defined]


_NUMBERS = np.arange(BATCH * 4000)
_ROWS = np.random.default_rng(0).integers(0, 16, (BATCH * 50, 8192), dtype=np.uint8)


def _fixed(
    counted: int, source: Any, choices: Mapping[str, tuple[int, bool, int]], **arguments: Any
) -> Mapping[str, Contestant]:
    """Contestants with a fixed number of workers: (workers, processes, batches counted)."""
    return {
        name: keras_ours(
            batches,
            samples_of,
            source,
            workers=workers,
            use_multiprocessing=processes,
            skipped=14 if workers else 1,
            **arguments,
        )
        for name, (workers, processes, batches) in choices.items()
    }


def _holding() -> Mapping[str, Contestant]:
    return _fixed(
        200,
        _NUMBERS,
        {"2 processes": (2, True, 400), "inline": (0, False, 150)},
        transform=holding,
    )


def _sleeping() -> Mapping[str, Contestant]:
    return _fixed(
        30,
        _NUMBERS,
        {"16 threads": (16, False, 40), "inline": (0, False, 2)},
        transform=sleeping,
    )


def _auto(
    source: Any, auto: int, fixed: Mapping[str, tuple[int, bool, int]], **arguments: Any
) -> Mapping[str, Contestant]:
    # Enough batches before the clock starts for the measurement and for what it starts.
    own = {"auto": keras_ours(auto, samples_of, source, skipped=40, **arguments)}
    return own | dict(_fixed(auto, source, fixed, **arguments))


def _auto_arrays() -> Mapping[str, Contestant]:
    x = np.zeros((DIGITS, 28, 28), np.uint8)
    source = (x, np.zeros(DIGITS, np.int64))
    count = 10 * DIGITS // BATCH
    fixed = {f"{threads} threads": (threads, False, count) for threads in (0, 1, 2)}
    return _auto(source, count, fixed, shuffle=True, batch_transform=scale)


def _auto_holding() -> Mapping[str, Contestant]:
    fixed = {
        "inline": (0, False, 150),
        "2 threads": (2, False, 150),
        "2 processes": (2, True, 300),
        "4 processes": (4, True, 300),
    }
    return _auto(_NUMBERS, 300, fixed, transform=holding)


def _auto_sleeping() -> Mapping[str, Contestant]:
    fixed = {
        "32 threads": (32, False, 60),
        "64 threads": (64, False, 90),
    }
    return _auto(_NUMBERS, 60, fixed, transform=sleeping)


def _auto_releasing() -> Mapping[str, Contestant]:
    fixed = {
        "inline": (0, False, 60),
        "2 threads": (2, False, 120),
        "4 threads": (4, False, 120),
        "2 processes": (2, True, 120),
    }
    return _auto(_ROWS, 120, fixed, transform=releasing)


# --- Gluon ---


def _auto_to_tensor() -> Mapping[str, Contestant]:
    data = digits_of(to_tensor=True)
    count = 6 * DIGITS // BATCH
    return {
        "auto": gluon_ours(data, count),
        "no workers": gluon_ours(data, count, num_workers=0),
        "1 worker": gluon_ours(data, count // 2, num_workers=1),
        "2 workers": gluon_ours(data, count // 2, num_workers=2),
    }


def _auto_verbatim() -> Mapping[str, Contestant]:
    data = digits_of(to_tensor=False)

    def own(counted: int, **arguments: Any) -> Contestant:
        return gluon_ours(data, counted, STARTING, **arguments)

    return {
        "auto": own(300),
        "no workers": own(150, num_workers=0),
        "1 worker": own(150, num_workers=1),
        "2 workers": own(300, num_workers=2),
        "4 workers": own(300, num_workers=4),
        "2 threads": own(100, num_workers=2, thread_pool=True),
    }


def _no_copy() -> Mapping[str, Contestant]:
    """The one copy there must be is that out of the data set into the batch; two would be 0.5."""
    from adapters import gluon_loader

    photographs = np.zeros((4 * BATCH, 3, 224, 224), np.float32)

    def bare() -> float:
        def batches() -> Any:
            while True:
                for start in range(0, len(photographs), BATCH):
                    batch = np.empty((BATCH, 3, 224, 224), np.float32)
                    np.copyto(batch, photographs[start : start + BATCH])
                    yield batch

        return pace(batches(), 4, 60, lambda batch: float(batch.nbytes) / 1e9)

    def own() -> float:
        with gluon_loader(photographs, BATCH, num_workers=0) as loader:
            return pace(endless(loader), 4, 60, lambda batch: float(batch.size) * 4 / 1e9)

    return {"gluon_loader, no workers": own, "a bare copy into new memory": bare}


TABLE: Mapping[str, Ratio] = {
    "a transform that holds the GIL": Ratio(KERAS, "samples/s", _holding),
    "a transform that sleeps": Ratio(KERAS, "samples/s", _sleeping, rounds=3),
    "auto: arrays": Ratio(KERAS, "samples/s", _auto_arrays),
    "auto: holds the GIL": Ratio(KERAS, "samples/s", _auto_holding, rounds=3),
    "auto: sleeps": Ratio(KERAS, "samples/s", _auto_sleeping, rounds=3),
    "auto: releases the GIL": Ratio(KERAS, "samples/s", _auto_releasing, rounds=3),
    "auto: ToTensor": Ratio(MXNET, "samples/s", _auto_to_tensor),
    "auto: verbatim": Ratio(MXNET, "samples/s", _auto_verbatim, rounds=3),
    "float32 batches without a copy": Ratio(MXNET, "GB/s", _no_copy),
}
