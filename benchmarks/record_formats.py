"""One row of the comparison of formats: pictures out of files, of records, and of raw records.

Whatever they lie in, `ImageDecoder` makes the same of them: of each, in random order, a random box
(area 0.08 to 1, width / height 3/4 to 4/3), resized to 224x224, every other one turned left to
right, in batches of 64, uint8. Raw pictures are 256x256, so their boxes are smaller.
"""

from __future__ import annotations

import importlib.metadata
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.comparisons import BATCH, endless, pace
from benchmarks.photographs import find_many_records, find_photographs, find_square_records
from benchmarks.record_peers import SIDE, Files, rows
from benchmarks.row import Measurement

FRAMEWORKS = ("Keras", "Gluon")
FORMATS = ("JPEG files", "JPEG TFRecord", "JPEG RecordIO", "raw TFRecord")
FIRST_BATCH = "first batch"
SKIPPED = 14  # Batches before the clock starts: "auto" takes up to a dozen of them to choose.


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one row, in a process of its own."""
    framework, format = options["framework"], options["loader"]
    os.environ["KERAS_BACKEND"] = "jax"
    began = time.monotonic()
    if format == FIRST_BATCH:
        metrics = {"first_batch_ms": _first_batch_seconds() * 1000}
    else:
        # SafeSequence and gluon_loader take the same source.
        source, transform = _source_of(format)
        with _loader_of(framework, source, transform, options["workers"]) as loader:
            speed = pace(endless(loader), SKIPPED, options["batches"], rows)
        metrics = {"samples_per_second": speed}
    name = "keras" if framework == "Keras" else "mxnet"
    return Measurement(
        software=f"{name} {importlib.metadata.version(name)}",
        device="the CPU",
        metrics=metrics,
        window=(began, time.monotonic()),
    )


class Decode:
    """The transform of JPEG files; a class, as worker processes must be able to import it."""

    def __init__(self) -> None:
        self.decoder = _decoder()

    def __call__(self, sample: tuple[bytes, int], rng: np.random.Generator) -> tuple[Any, int]:
        """(uint8 (224, 224, 3), label)."""
        return self.decoder.decode(sample[0], rng), sample[1]


def _decoder() -> Any:
    from adapters import ImageDecoder

    return ImageDecoder(SIDE, crop="random_resized", flip=True)


def _source_of(format: str) -> tuple[Any, Any]:
    """A source and its transform."""
    from adapters import open_records

    if format == "JPEG files":
        return Files(find_photographs()), Decode()
    photographs = find_photographs()
    path = {
        "JPEG TFRecord": photographs.tfrecord,
        "JPEG RecordIO": photographs.recordio,
        "raw TFRecord": find_square_records(),
    }[format]
    return open_records(path, decode=_decoder()), None


def _loader_of(framework: str, source: Any, transform: Any, workers: Any) -> Any:
    from adapters import SafeSequence, gluon_loader

    if framework == "Keras":
        return SafeSequence(source, BATCH, transform=transform, shuffle=True, workers=workers)
    if transform is not None:
        source = _Transformed(source, transform)
    return gluon_loader(source, BATCH, shuffle=True, num_workers=workers)


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
