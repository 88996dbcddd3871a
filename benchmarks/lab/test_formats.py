"""What packing is worth and costs: JPEG files, records and raw records, in both frameworks.

Records of JPEGs are no larger than the files, and packed in seconds; raw ones are several times as
large, and need no decoding. Without the page cache each costs what the disk makes of it.
"""

from __future__ import annotations

import importlib.util
import tempfile

import pytest

from benchmarks.data.photographs import find_photographs
from benchmarks.harness.machine import usable_cpus
from benchmarks.harness.results import Column, Experiment
from benchmarks.harness.sweeps import RowSpec, Session, our_failures
from benchmarks.lab.experiments.record_formats import FIRST_BATCH, FORMATS, MOST_CACHED
from benchmarks.lab.experiments.shards import find_many_records

COLUMNS = (
    Column("size_mib", "MiB on disk", ",.0f"),
    Column("packing_seconds", "packing s", ".2f"),
    Column("packing_least", "least", ".2f"),
    Column("packing_most", "most", ".2f"),
    Column("cold_samples_per_second", "cold samples/s", ",.0f"),
    Column("cold_least", "least", ",.0f"),
    Column("cold_most", "most", ",.0f"),
    Column("still_cached", "still cached", ".0%"),
    Column("samples_per_second", "warm samples/s", ",.0f"),
    Column("first_batch_ms", "first batch ms", ",.1f"),
    Column("peak_pss_mib", "peak PSS MiB", ",.0f"),
)
PANELS = (
    ("samples_per_second", "samples per second, warm"),
    ("cold_samples_per_second", "samples per second, cold"),
)
# Packings, warm passes, cold passes.
TIMES = {"smoke": (1, 1, 1), "default": (2, 3, 2), "full": (5, 10, 5)}
LIMIT_SECONDS = 240
NOTES = (
    "2,000 JPEGs of 500x375; raw records: arrays of 341x256; as many threads as cores",
    "samples/s: of whole passes with the opening of the files; packing: to the disk, once for both",
    "cold: after POSIX_FADV_DONTNEED; still cached: what mincore finds of the files after that; "
    "folders and inodes stay in memory, which speaks for the 2,000 files",
)


FRAMEWORKS = ("Keras", *(["Gluon"] if importlib.util.find_spec("mxnet") else []))


@pytest.mark.parametrize("format", FORMATS)
def test_formats(session: Session, format: str) -> None:
    """Every row ends well; what it packed is gone with it."""
    with session.uncaptured():
        photographs = find_photographs()
    experiment = _experiment(session)
    # Beside the JPEG files, so on the same disk.
    cache = photographs.tfrecord.parents[1]
    with tempfile.TemporaryDirectory(dir=cache, prefix="packed-") as folder:
        specs = [_row(session, framework, format, folder) for framework in FRAMEWORKS]
        runs = session.sweep(experiment, specs, repeats=1)
    assert our_failures(runs) == []
    for run in runs:
        if run.metrics["still_cached"] > MOST_CACHED:
            experiment.notes.append(f"{run.name}: not measured cold, as its files stay cached")


def test_first_batch(session: Session) -> None:
    """How soon a file of 100,000 records gives its first batch."""
    with session.uncaptured():
        find_many_records()
    row = _row(session, "Keras", FIRST_BATCH, folder="")
    experiment = _experiment(session)
    runs = session.sweep(experiment, [row], repeats=1)
    assert our_failures(runs) == []
    for run in runs:
        here = run.metrics["first_batch_ms"]
        session.judge(experiment, "formats: first batch of 100,000 records, ms", here)


def _experiment(session: Session) -> Experiment:
    experiment = session.experiment(
        "formats",
        "Formats: 2,000 pictures, random boxes of 224x224",
        "Files, TFRecord and RecordIO, encoded and raw: which is the fastest?",
    )
    experiment.columns, experiment.panels = COLUMNS, PANELS
    experiment.note(*NOTES)
    return experiment


def _row(session: Session, framework: str, loader: str, folder: str) -> RowSpec:
    packings, warm, cold = TIMES[session.size]
    return RowSpec(
        framework=framework,
        loader=loader,
        workers=usable_cpus(),
        ours=True,
        program="benchmarks.lab.experiments.record_formats",
        options={
            "framework": framework,
            "folder": folder,
            "packings": packings,
            "warm": warm,
            "cold": cold,
        },
        limit_seconds=LIMIT_SECONDS,
    )
