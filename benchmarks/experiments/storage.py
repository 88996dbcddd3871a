"""One row of the table of storage: JPEG records behind a server that is slow as it is told to be.

A server of our own on loopback, in a process of its own, waits before each answer and gives each
connection so many bytes a second (``harness.rangeserver``). A row reads the same records from local
files and from there, pass by pass in turns, in random order, decoded to boxes of 224x224. *Link* is
arithmetic: as many records a second as all connections together can bring, each record a request.
The server's CPU time is taken off what the same cores decode with, so on few cores it counts.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.data.photographs import find_photographs
from benchmarks.harness.machine import usable_cpus
from benchmarks.harness.rangeserver import ServerProcess
from benchmarks.harness.row import Measurement
from benchmarks.peers.pictures import SIDE

MEMORY, FILLING, FILLED, FIFTH = "no cache", "cache filling", "cache filled", "cache with a fifth"
KINDS = (MEMORY, FILLING, FILLED, FIFTH)
BATCH = 64


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one row, in a process of its own.

    Args:
        options: ``kind`` (one of KINDS), ``passes``, ``latency_ms``, ``mb_per_second`` (of each
            connection).
    """
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    from adapters.remote.fetching import MOST_THREADS

    began, path = time.monotonic(), find_photographs().tfrecord
    latency, rate = options["latency_ms"] / 1000, options["mb_per_second"] * 1e6
    rounds: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        ServerProcess(path.parent, latency_seconds=latency, bytes_per_second=rate) as server,
    ):
        _pass(path, None)  # Finds the index, and what pages of the file are cached.
        for measured in _passes(options, path, server, Path(folder) / "cache"):
            for name, value in measured.items():
                rounds.setdefault(name, []).append(value)
    metrics = {name: statistics.median(values) for name, values in rounds.items()}
    record_bytes = path.stat().st_size / metrics.pop("records")
    metrics["link_per_second"] = MOST_THREADS / (latency + record_bytes / rate)
    bound = metrics["local_per_second"]
    if options["kind"] not in (FILLED, FIFTH):
        bound = min(bound, metrics["link_per_second"])
    metrics["share"] = metrics["samples_per_second"] / bound
    return Measurement(
        software=f"keras {keras.__version__}",
        device="the CPU",
        metrics=metrics,
        rounds={"samples_per_second": rounds["samples_per_second"]},
        window=(began, time.monotonic()),
    )


def _passes(
    options: Mapping[str, Any], path: Path, server: ServerProcess, cache: Path
) -> Iterator[dict[str, float]]:
    url, kind = server.url(path.name), options["kind"]
    if kind in (FILLED, FIFTH):
        _pass(url, cache, 0.2 if kind == FIFTH else 1.0)
        shutil.copytree(cache, f"{cache}-kept")
    for _ in range(options["passes"]):
        local = _pass(path, None)
        if kind in (FILLING, FIFTH):
            shutil.rmtree(cache, ignore_errors=True)
        if kind == FIFTH:
            shutil.copytree(f"{cache}-kept", cache)
        server.ask()
        remote = _pass(url, None if kind == MEMORY else cache)
        asked = server.ask()
        yield {
            **remote,
            "local_per_second": local["samples_per_second"],
            "requests": asked["requests"],
            "fetched_mib": asked["bytes"] / 2**20,
        }


def _pass(where: Any, cache: Path | None, share: float = 1.0) -> dict[str, float]:
    """One epoch of what is opened anew, from the second batch on; and the wait for the first."""
    from adapters import ImageDecoder, SafeSequence, open_records

    decode = ImageDecoder(SIDE, crop="random_resized", flip=True)
    opening = time.perf_counter()
    with open_records(where, decode=decode, cache=cache) as whole:
        opened = time.perf_counter()
        count = len(whole)
        source = whole if share == 1 else whole.select(range(int(count * share)))
        with SafeSequence(source, BATCH, shuffle=True, workers=usable_cpus()) as sequence:
            began = time.perf_counter()
            first, pictures = began, -BATCH
            for images, _ in sequence:
                if pictures < 0:
                    first = time.perf_counter()
                pictures += len(images)
            ended = time.perf_counter()
    return {
        "records": count,
        "open_ms": (opened - opening) * 1000,
        "first_batch_ms": (first - began) * 1000,
        "samples_per_second": pictures / (ended - first),
    }
