"""What a Dask cluster of two workers on this machine must be worth: packing, and loading.

The cluster is a scheduler and two workers, processes of their own that listen on loopback. It is
started before the clock.
"""

from __future__ import annotations

import atexit
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data.photographs import find_photographs
from benchmarks.harness import ratios
from benchmarks.harness.installed import Peer
from benchmarks.harness.ratios import Contestant, Ratio, measure_ratio
from benchmarks.harness.row import Measurement
from benchmarks.lab.peers import tf_service

HOST, PORT = "127.0.0.1", 8990
WORKERS = 2
# What is packed: the pictures so many times.
TIMES, SMOKE_TIMES = 10, 1
SHORT = 128
# What is gathered from: 115 MB, sent to both workers.
SAMPLES = 768
BATCHES, SMOKE_BATCHES, SKIPPED = 60, 4, 8
_START_SECONDS = 60


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one ratio, in a process of its own."""
    global TIMES, BATCHES
    if options["short"]:
        TIMES, BATCHES = SMOKE_TIMES, SMOKE_BATCHES
    return measure_ratio(TABLE[options["loader"]], options)


@cache
def _client() -> Any:
    import distributed

    address = f"tcp://{HOST}:{PORT}"
    scheduler = ["dask_scheduler", "--host", HOST, "--port", str(PORT), "--no-dashboard"]
    worker = ["dask_worker", address, "--host", HOST, "--nthreads", "1", "--no-dashboard"]
    for name, *arguments in [scheduler, *[worker] * WORKERS]:
        process = subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{name}", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        atexit.register(_end, process)
    client = distributed.Client(address, set_as_default=False, timeout=_START_SECONDS)
    atexit.register(client.close)
    client.wait_for_workers(WORKERS, timeout=_START_SECONDS)
    return client


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()


def _packed(on_cluster: bool) -> float:
    """Pictures a second."""
    from adapters import pack

    paths = find_photographs().paths * TIMES
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "all.lst"
        lines = (f"{number}\t{number % 10}\t{path}\n" for number, path in enumerate(paths))
        listed.write_text("".join(lines))
        executor = _client() if on_cluster else None
        started = time.perf_counter()
        manifest = pack(
            listed,
            Path(folder) / "train",
            format="recordio",
            resize=SHORT,
            shard_bytes=8 << 20,
            workers=WORKERS,
            executor=executor,
        )
        seconds = time.perf_counter() - started
    assert manifest.packed == len(paths)
    return manifest.packed / seconds


def _packing() -> Mapping[str, Contestant]:
    _client()
    return {
        "pack on Dask": partial(_packed, True),
        "pack, 2 threads": partial(_packed, False),
    }


def _loaded(data: Any) -> float:
    """GB/s that arrive, of batches in the order that they were asked for."""
    from adapters import SafeSequence

    with SafeSequence(data, 64, shuffle=True, workers=_client(), max_queue_size=4) as sequence:
        expected = SafeSequence(data, 64, shuffle=True, workers=0)
        batches = ratios.endless(sequence)
        first = next(batches)
        np.testing.assert_array_equal(first, expected[0])
        for _ in range(SKIPPED):
            next(batches)
        started, total = time.perf_counter(), 0
        for _ in range(BATCHES):
            total += next(batches).nbytes
        return total / (time.perf_counter() - started) / 1e9


def _loading() -> Mapping[str, Contestant]:
    shape = (SAMPLES, *tf_service.SHAPE[1:])
    data = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    _client()
    return {
        "SafeSequence on Dask": partial(_loaded, data),
        "tf.data service": lambda: tf_service.gigabytes_per_second(BATCHES),
    }


DASK = Peer("Keras", "distributed", "distributed")
_PICTURES = (find_photographs,)
TABLE: Mapping[str, Ratio] = {
    "packing on Dask against threads": Ratio(
        DASK, "pictures/s", _packing, 3, smoke=True, data=_PICTURES
    ),
    "loading over Dask against tf.data service": Ratio(DASK, "GB/s", _loading, 3, smoke=True),
}
