"""One row of the table of storage: JPEG records behind a server that is slow as it is told to be.

A server of our own on loopback, in a process of its own, waits before each answer and gives each
connection so many bytes a second (``harness.rangeserver``). A row reads the same records from local
files and from there, pass by pass in turns, decoded to boxes of 224x224. *Link* is arithmetic: as
many records a second as all connections together can bring, each record a request.

*Predicted* is what ``adapters plan`` computes (``adapters.planning.arrival``): of the link as the
server was told to be, the rate and the first batch of local files in the same turns, and the CPU
seconds of a request, both the reader's and those of the server, which shares the cores. These are
measured in turns with them, on the same records, fetched and not decoded. Where cores are the
limit and other programs have their share of them, seconds say little: CPU seconds are compared.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data.photographs import find_photographs
from benchmarks.harness.machine import usable_cpus
from benchmarks.harness.row import Measurement
from benchmarks.peers.pictures import SIDE
from tests.remote.rangeserver import ServerProcess

MEMORY, FILLING, FILLED, FIFTH = "no cache", "cache filling", "cache filled", "cache with a fifth"
BLOCKS, BLOCKS_FILLING = "blocks", "blocks, cache filling"
KINDS = (MEMORY, FILLING, FILLED, FIFTH, BLOCKS, BLOCKS_FILLING)
BATCH = 64
# Of 94 MiB, six times over, more than is kept in memory: twelve windows.
BLOCK_BYTES, WINDOW, TIMES = 12 << 20, 4, 6
# For the cost of a request.
RECORDS = 2_000
# Batches before an epoch's end: its last window has come, and nothing of the next epoch.
NEAR_END = 14


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one row, in a process of its own.

    Args:
        options: ``kind`` (one of KINDS), ``passes``, ``latency_ms``, ``mb_per_second`` (of each
            connection).
    """
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    from adapters.remote.fetching import MOST_THREADS

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
        _request_seconds(path, server)  # Imports.
        for measured in _passes(options, path, server, Path(folder) / "cache"):
            for name, value in measured.items():
                rounds.setdefault(name, []).append(value)
    metrics = {name: statistics.median(values) for name, values in rounds.items()}
    record_bytes = size / metrics["records"]
    metrics["link_per_second"] = MOST_THREADS / (latency + record_bytes / rate)
    bound = metrics["local_per_second"]
    if options["kind"] not in (FILLED, FIFTH):
        bound = min(bound, metrics["link_per_second"])
    metrics["share"] = metrics["samples_per_second"] / bound
    _predict(metrics, options, record_bytes)
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


def _request_seconds(path: Path, server: ServerProcess) -> float:
    """CPU seconds of the reader and of the server for a record that is fetched and not decoded."""
    from adapters import open_records

    with open_records(server.url(path.name)) as source:
        order = np.random.default_rng(0).permutation(len(source))[:RECORDS]
        batches = [order[at : at + BATCH] for at in range(0, len(order), BATCH)]
        server.ask()
        began = time.process_time()
        for place, batch in enumerate(batches):
            for ahead in batches[place + 1 : place + 4]:
                source.expect(ahead, elsewhere=False)
            source.bring(batch)
        fetched, asked = time.process_time() - began, server.ask()
    return (fetched + asked["cpu_seconds"]) / asked["requests"]


def _predict(metrics: dict[str, float], options: Mapping[str, Any], record_bytes: float) -> None:
    """Put beside what was measured what the plan says, and their ratios."""
    from adapters.planning import Link, Reading, arrival
    from adapters.planning.link import BYTE_CORE_SECONDS
    from adapters.remote.fetching import PIECE_BYTES

    kind, records = options["kind"], int(metrics.pop("records"))
    reading = Reading(
        records,
        record_bytes,
        BATCH,
        prepared_per_second=metrics["local_per_second"],
        cores=usable_cpus(),
        block_examples=int(BLOCK_BYTES / record_bytes) if "blocks" in kind else None,
        window=WINDOW,
        has_cache="cache" in kind and kind != MEMORY,
        cached={FILLED: 1.0, FIFTH: 0.2}.get(kind, 0.0),
        request_core_seconds=max(
            0.0, metrics.pop("request_seconds") - record_bytes * BYTE_CORE_SECONDS
        ),
    )
    found = arrival(Link(options["latency_ms"] / 1000, options["mb_per_second"] * 1e6), reading)
    metrics["predicted"] = found.examples_per_second
    metrics["ratio"] = metrics["samples_per_second"] / found.examples_per_second
    metrics["limited_by_link"] = float(found.limit == "link")
    metrics["predicted_requests"] = found.requests * records
    metrics["predicted_requests_of_pieces"] = records * record_bytes / PIECE_BYTES
    metrics["predicted_cpu_ms"] = metrics.pop("local_cpu_ms") + found.core_seconds * 1000
    metrics["cpu_ratio"] = metrics["cpu_ms"] / metrics["predicted_cpu_ms"]
    first = metrics.pop("local_first_ms") + found.first_bytes_seconds * 1000
    metrics["predicted_first_ms"] = first
    metrics["first_ratio"] = metrics["first_batch_ms"] / first


def _passes(
    options: Mapping[str, Any], path: Path, server: ServerProcess, cache: Path
) -> Iterator[dict[str, float]]:
    url, kind = server.url(path.name), options["kind"]
    counted: list[dict[str, float]] = []
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
        remote = _pass(url, own, kind, near_end=lambda: counted.append(server.ask()))
        most, rest = counted.pop(), server.ask()
        asked = {name: most[name] + rest[name] for name in ("requests", "bytes", "cpu_seconds")}
        if kind == BLOCKS:  # What comes after that is the next epoch's.
            asked["requests"] = most["requests"]
            remote["requests_of_pieces"] = most["requests"] - most["small"]
        remote["cpu_ms"] += asked["cpu_seconds"] / remote["records"] * 1000
        yield {
            **remote,
            "request_seconds": _request_seconds(path, server),
            "local_per_second": local["samples_per_second"],
            "local_first_ms": local["first_batch_ms"],
            "local_cpu_ms": local["cpu_ms"],
            "requests": asked["requests"],
            "fetched_mib": asked["bytes"] / 2**20,
        }


def _pass(
    where: Any,
    cache: Path | None,
    kind: str,
    share: float = 1.0,
    near_end: Callable[[], None] = lambda: None,
) -> dict[str, float]:
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
            began, began_cpu = time.perf_counter(), time.process_time()
            first, pictures = began, -BATCH
            for number, (images, _) in enumerate(sequence):
                if pictures < 0:
                    first = time.perf_counter()
                pictures += len(images)
                if number == len(sequence) - NEAR_END:
                    near_end()
            ended = time.perf_counter()
    return {
        "records": count,
        "open_ms": (opened - opening) * 1000,
        "first_batch_ms": (first - began) * 1000,
        "samples_per_second": pictures / (ended - first),
        "cpu_ms": (time.process_time() - began_cpu) / count * 1000,
    }
