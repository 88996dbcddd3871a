"""The row of the table of cold files: a record file whose pages are dropped before each pass.

Examples of 64 KB, raw pixels and a label, gathered into batches: in their order, in blocks, at
random. *Pieces*
is a sequential read of the same file in pieces of 1 MiB, by as many threads as there are workers,
without a loader: what the disk gives. Passes take turns. ``mincore`` says what is still cached; a
disk's own cache, or that of a virtual machine's host, isn't seen from here.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data.photographs import find_photographs
from benchmarks.harness.machine import usable_cpus
from benchmarks.harness.page_cache import drop
from benchmarks.harness.row import Measurement

SHAPE, CLASSES = (128, 128, 4), 1000
PIECE_BYTES = 1 << 20
BATCH = 64
PIECES, SEQUENTIAL, IN_BLOCKS, RANDOM = "pieces", "sequential", "blocks", "random"


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run the row, in a process of its own.

    Args:
        options: ``records``, ``passes``, ``block_bytes``, ``window``.
    """
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    from adapters import Blocks

    began = time.monotonic()
    orders = {
        SEQUENTIAL: False,
        IN_BLOCKS: Blocks(options["block_bytes"], options["window"]),
        RANDOM: True,
    }
    rounds: dict[str, list[float]] = {name: [] for name in (PIECES, *orders)}
    cached = []
    # Beside the pictures, so on the disk on which data sets are.
    beside = find_photographs().tfrecord.parents[1]
    with tempfile.TemporaryDirectory(dir=beside, prefix="cold-") as folder:
        path = _written(Path(folder) / "train.tfrecord", options["records"])
        contestants: dict[str, Callable[[], int]] = {PIECES: lambda: _in_pieces(path)}
        for name, order in orders.items():
            contestants[name] = lambda order=order: _loaded(path, order)  # type: ignore[misc]
        for contestant in contestants.values():
            contestant()  # Imports; starts threads.
        for _ in range(options["passes"]):
            for name, contestant in contestants.items():
                cached.append(drop([path]))
                started = time.perf_counter()
                size = contestant()
                rounds[name].append(size / (time.perf_counter() - started) / 1e6)
    metrics = {f"{name}_mb": statistics.median(values) for name, values in rounds.items()}
    for name in (PIECES, SEQUENTIAL, RANDOM):
        ratios = [ours / theirs for ours, theirs in zip(rounds[IN_BLOCKS], rounds[name])]
        metrics[f"to_{name}"] = statistics.median(ratios)
    metrics["still_cached"] = max(cached)
    return Measurement(
        software=f"keras {keras.__version__}",
        device="the CPU",
        metrics=metrics,
        rounds={f"{name}_mb": values for name, values in rounds.items()},
        window=(began, time.monotonic()),
    )


def _written(path: Path, records: int) -> Path:
    from adapters import RecordWriter
    from adapters.records import example

    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, SHAPE, np.uint8)
    with RecordWriter(path, format="tfrecord") as writer:
        for label in rng.integers(0, CLASSES, records).tolist():
            pixels[0, 0] = label % 256
            writer.write(example.encode({"image": pixels.tobytes(), "label": label}))
    return path


def _in_pieces(path: Path) -> int:
    """Read a file from begin to end; how many bytes it has."""
    size, workers = path.stat().st_size, usable_cpus()
    descriptor = os.open(path, os.O_RDONLY)
    buffers = [bytearray(PIECE_BYTES) for _ in range(workers)]

    def read(worker: int) -> None:
        for at in range(worker * PIECE_BYTES, size, workers * PIECE_BYTES):
            os.preadv(descriptor, [buffers[worker]], at)

    try:
        with ThreadPoolExecutor(workers) as threads:
            list(threads.map(read, range(workers)))
    finally:
        os.close(descriptor)
    return size


def _loaded(path: Path, order: Any) -> int:
    """Go through an epoch; how many bytes it has."""
    from adapters import Feature, SafeSequence, open_records

    features = {"image": Feature("uint8", SHAPE, stored="raw"), "label": Feature("int64")}
    total = 0
    with (
        open_records(path, decode=features, outputs=("image", "label"), verify=False) as source,
        SafeSequence(source, BATCH, shuffle=order, workers=usable_cpus()) as sequence,
    ):
        for images, _ in sequence:
            total += images.nbytes
    return total
