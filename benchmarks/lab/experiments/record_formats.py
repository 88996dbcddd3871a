"""One row of the comparison of formats: pictures out of files, of records, and of raw records.

A row packs the JPEG files with `adapters.pack`, or takes what the row before it packed, then reads
that pass after pass: first out of the page cache, then without it. JPEG records hold the files as
they are, 500x375; raw ones hold arrays whose shorter side is 256 pixels, as one packs them.
Whatever the pictures lie in, `ImageDecoder` makes the same of them: of each, in random order,
a random box (area 0.08 to 1, width / height 3/4 to 4/3), resized to 224x224, every other one turned
left to right, in batches of 64, uint8. A pass is all pictures once, and its time is that from
opening the files to the last batch. The workers are as many threads as there are cores, as "auto"
would take batches to choose.
"""

from __future__ import annotations

import importlib.metadata
import os
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data.photographs import PICTURES, find_photographs
from benchmarks.harness import page_cache
from benchmarks.harness.ratios import BATCH
from benchmarks.harness.row import Measurement
from benchmarks.lab.experiments.shards import find_many_records
from benchmarks.peers.pictures import SIDE, Files, rows

FILES = "JPEG files"
# Format and encoding of what `pack` makes.
PACKED = {
    "JPEG TFRecord": ("tfrecord", "jpeg"),
    "JPEG RecordIO": ("recordio", "jpeg"),
    "raw TFRecord": ("tfrecord", "raw"),
    "raw RecordIO": ("recordio", "raw"),
}
FORMATS = (FILES, *PACKED)
SUFFIXES = (".tfrecord", ".rec")
FIRST_BATCH = "first batch"
RAW_SHORT = 256  # pixels
MOST_CACHED = 0.05  # of the files: with more of them still in the cache, a pass isn't cold


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one row, in a process of its own.

    Args:
        options: `framework`, `loader` (what the pictures lie in), `workers`, `folder` (to pack
            into, unless that was done already), and `packings`, `warm` and `cold`: how often each
            is measured.
    """
    framework = options["framework"]
    os.environ["KERAS_BACKEND"] = "jax"
    began = time.monotonic()
    speeds: list[float] = []
    if options["loader"] == FIRST_BATCH:
        metrics = {"first_batch_ms": _first_batch_seconds() * 1000}
    else:
        metrics, speeds = _formats(options)
    name = "keras" if framework == "Keras" else "mxnet"
    return Measurement(
        software=f"{name} {importlib.metadata.version(name)}",
        device="the CPU",
        metrics=metrics,
        window=(began, time.monotonic()),
        rounds={"samples_per_second": speeds} if speeds else {},
    )


def _formats(options: Mapping[str, Any]) -> tuple[dict[str, float], list[float]]:
    """Metrics, and the speeds of the warm passes."""
    format = options["loader"]
    metrics: dict[str, float] = {}
    folder = Path(options["folder"])
    if format == FILES:
        paths = list(find_photographs().paths)
    else:
        if not any(folder.iterdir()):
            seconds = [_pack(format, folder) for _ in range(options["packings"])]
            metrics |= _spread("packing", seconds, "seconds")
        paths = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
    metrics["size_mib"] = sum(path.stat().st_size for path in paths) / 2**20

    def speed() -> float:
        return _speed(options["framework"], format, paths, options["workers"])

    speed()  # Imports, memory that is new to the process.
    warm = [speed() for _ in range(options["warm"])]
    metrics["samples_per_second"] = statistics.median(warm)
    cold = []
    for _ in range(options["cold"]):
        metrics["still_cached"] = page_cache.drop(paths)
        if metrics["still_cached"] > MOST_CACHED:
            break  # What would follow isn't cold.
        cold.append(speed())
    else:
        metrics |= _spread("cold", cold, "samples_per_second")
    return metrics, warm


def _spread(name: str, values: list[float], unit: str) -> dict[str, float]:
    """The median under `<name>_<unit>`, and the extremes beside it."""
    return {
        f"{name}_{unit}": statistics.median(values),
        f"{name}_least": min(values),
        f"{name}_most": max(values),
    }


def _pack(format: str, folder: Path) -> float:
    """Pack the pictures into a folder, anew; returns how many seconds that took.

    Until they are on the disk: what is only in the page cache isn't packed yet.
    """
    from adapters import pack

    kind, encoding = PACKED[format]
    for path in folder.iterdir():
        path.unlink()
    began = time.perf_counter()
    manifest = pack(
        find_photographs().paths[0].parents[1],
        folder / "train",
        format=kind,
        encoding=encoding,
        resize=RAW_SHORT if encoding == "raw" else None,
    )
    for file in manifest.files:
        descriptor = os.open(folder / file.name, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    return time.perf_counter() - began


def _speed(framework: str, format: str, paths: list[Path], workers: int) -> float:
    """Samples per second of one pass over the pictures, from opening them on."""
    from adapters import open_records

    began = time.perf_counter()
    transform = None
    # SafeSequence and gluon_loader take the same source.
    if format == FILES:
        source: Any = Files(find_photographs())
        transform = Decode()
    else:
        source = open_records(paths, decode=_decoder())
    with _loader_of(framework, source, transform, workers) as loader:
        found = sum(rows(batch) for batch in loader)
        seconds = time.perf_counter() - began
    if format != FILES:
        source.close()  # Nor could its pages be dropped while they are mapped.
    assert found == PICTURES, found
    return found / seconds


class Decode:
    """The transform of JPEG files."""

    def __init__(self) -> None:
        self.decoder = _decoder()

    def __call__(self, sample: tuple[bytes, int], rng: np.random.Generator) -> tuple[Any, int]:
        """(uint8 (224, 224, 3), label)."""
        return self.decoder.decode(sample[0], rng), sample[1]


def _decoder() -> Any:
    from adapters import ImageDecoder

    return ImageDecoder(SIDE, crop="random_resized", flip=True)


def _loader_of(framework: str, source: Any, transform: Any, workers: int) -> Any:
    if framework == "Keras":
        from adapters import SafeSequence

        return SafeSequence(source, BATCH, transform=transform, shuffle=True, workers=workers)
    from adapters import gluon_loader  # Asks for MXNet.

    if transform is not None:
        source = _Transformed(source, transform)
    return gluon_loader(source, BATCH, shuffle=True, num_workers=workers, thread_pool=True)


class _Transformed:
    """A data set for Gluon whose boxes are drawn as users do it there: from NumPy's generator."""

    def __init__(self, source: Any, transform: Any) -> None:
        self._source, self._transform = source, transform

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, number: int) -> Any:
        return self._transform(self._source[number], np.random)


def _first_batch_seconds() -> float:
    """From opening an indexed file to its first batch, in a process that has imported all it needs.

    The median of five; what the operating system has of the file in its cache stays there.
    """
    from adapters import SafeSequence, open_records

    path = find_many_records()
    seconds = []
    for _ in range(6):
        started = time.perf_counter()
        with SafeSequence(open_records(path, decode="image"), BATCH, shuffle=True) as sequence:
            next(iter(sequence))
            seconds.append(time.perf_counter() - started)
    return float(np.median(seconds[1:]))
