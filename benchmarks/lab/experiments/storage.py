"""One row of the table of storage: JPEG records behind a server that is slow as it is told to be.

A server of our own on loopback, in a process of its own, waits before each answer and gives each
connection so many bytes a second (`benchmarks.lab.rangeprocess`). A row reads the same records from
local files and from there, pass by pass in turns, decoded to crops of 224x224. *Link* is
arithmetic: as many records a second as all connections together can deliver, with a request for
each record, or for each piece of a block. The server shares the cores with the reader.
"""

from __future__ import annotations

import contextlib
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
from benchmarks.harness.row import Measurement
from benchmarks.lab.rangeprocess import ServerProcess
from benchmarks.peers.pictures import SIDE

MEMORY, FILLING, FILLED, FIFTH = "no cache", "cache filling", "cache filled", "cache with a fifth"
BLOCKS, BLOCKS_FILLING = "blocks", "blocks, cache filling"
KINDS = (MEMORY, FILLING, FILLED, FIFTH, BLOCKS, BLOCKS_FILLING)
BATCH = 64
# Of 94 MiB, six times over, more than is kept in memory: twelve windows.
BLOCK_BYTES, WINDOW, TIMES = 12 << 20, 4, 6


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one row, in a process of its own.

    Args:
        options: ``kind`` (one of KINDS), ``passes``, ``latency_ms``, ``mb_per_second`` (of each
            connection).
    """
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    began = time.monotonic()
    latency, rate = options["latency_ms"] / 1000, options["mb_per_second"] * 1e6
    rounds: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        path = find_photographs().tfrecord
        if "blocks" in options["kind"]:
            path = _several_times(path, Path(folder) / "served")
        server = stack.enter_context(
            ServerProcess(path.parent, latency_seconds=latency, bytes_per_second=rate)
        )
        size = path.stat().st_size
        _pass(path, None, options["kind"])  # Finds the index, and what of the file is cached.
        for measured in _passes(options, path, server, Path(folder) / "cache"):
            for name, value in measured.items():
                rounds.setdefault(name, []).append(value)
    metrics = {name: statistics.median(values) for name, values in rounds.items()}
    record_bytes = size / metrics.pop("records")
    metrics["link_per_second"] = _link_limit(options, record_bytes)
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


def _several_times(path: Path, folder: Path) -> Path:
    """The records of a file one after another, so often, as another file with its index."""
    from adapters import RecordWriter, open_records

    folder.mkdir()
    copy = RecordWriter(folder / path.name, format="tfrecord")
    with open_records(path) as source, copy as writer:
        for _ in range(TIMES):
            for record in source:
                writer.write(record)
    return folder / path.name


def _link_limit(options: Mapping[str, Any], record_bytes: float) -> float:
    """Records a second that all connections deliver, if each always has a request."""
    from adapters.remote.fetch import MOST_THREADS, PIECE_BYTES

    request_bytes = PIECE_BYTES if "blocks" in options["kind"] else record_bytes
    request_seconds = options["latency_ms"] / 1000 + request_bytes / options["mb_per_second"] / 1e6
    return MOST_THREADS / request_seconds * request_bytes / record_bytes


def _passes(
    options: Mapping[str, Any], path: Path, server: ServerProcess, cache: Path
) -> Iterator[dict[str, float]]:
    url, kind = server.url(path.name), options["kind"]
    if kind in (FILLED, FIFTH):
        _pass(url, cache, kind, 0.2 if kind == FIFTH else 1.0)
        shutil.copytree(cache, f"{cache}-kept")
    for _ in range(options["passes"]):
        local = _pass(path, None, kind)
        if kind in (FILLING, FIFTH, BLOCKS_FILLING):
            shutil.rmtree(cache, ignore_errors=True)
        if kind == FIFTH:
            shutil.copytree(f"{cache}-kept", cache)
        server.ask()
        own = None if kind in (MEMORY, BLOCKS) else cache
        remote = _pass(url, own, kind)
        asked = server.ask()
        yield {
            **remote,
            "local_per_second": local["samples_per_second"],
            "requests": asked["requests"],
            "fetched_mib": asked["bytes"] / 2**20,
        }


def _pass(where: Any, cache: Path | None, kind: str, share: float = 1.0) -> dict[str, float]:
    """One epoch of what is opened anew, from the second batch on; and the wait for the first."""
    from adapters import Blocks, ImageDecoder, SafeSequence, open_records

    decode = ImageDecoder(SIDE, crop="random_resized", flip=True)
    shuffle = Blocks(BLOCK_BYTES, WINDOW) if "blocks" in kind else True
    opening = time.perf_counter()
    with open_records(where, decode=decode, cache=cache) as whole:
        opened = time.perf_counter()
        count = len(whole)
        source = whole if share == 1 else whole.select(range(int(count * share)))
        with SafeSequence(source, BATCH, shuffle=shuffle, workers=usable_cpus()) as sequence:
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
