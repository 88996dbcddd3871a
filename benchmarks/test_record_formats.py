"""What packing is worth: JPEG files against records against raw records, in both frameworks."""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks.photographs import find_many_records, find_photographs, find_square_records
from benchmarks.record_formats import FIRST_BATCH, FORMATS, FRAMEWORKS
from benchmarks.results import Column
from benchmarks.sweeps import RowSpec, Session, our_failures

COLUMNS = (
    Column("samples_per_second", "samples/s", ",.0f"),
    Column("first_batch_ms", "first batch ms", ",.1f"),
    Column("peak_pss_mib", "peak PSS MiB", ",.0f"),
)
BATCHES = {"smoke": 2, "default": 30, "full": 100}
REPEATS = {"smoke": 1, "default": 1, "full": 5}
LIMIT_SECONDS = 240
MOST_FIRST_BATCH_MS = 200


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_formats(session: Session, framework: str) -> None:
    """Every row ends well; a file of 100,000 records gives its first batch in under 200 ms."""
    if framework == "Gluon" and importlib.util.find_spec("mxnet") is None:
        pytest.skip("MXNet has no wheels for this Python")
    with session.uncaptured():
        find_photographs()
        find_square_records()
        find_many_records()
    experiment = session.experiment("formats", "Formats: 2,000 pictures, random boxes of 224x224")
    experiment.columns = COLUMNS
    loaders = FORMATS + ((FIRST_BATCH,) if framework == "Keras" else ())
    specs = [
        RowSpec(
            framework=framework,
            loader=loader,
            workers="auto",
            ours=True,
            program="benchmarks.record_formats",
            options={"framework": framework, "batches": BATCHES[session.size]},
            limit_seconds=LIMIT_SECONDS,
        )
        for loader in loaders
    ]
    runs = session.sweep(experiment, specs, REPEATS[session.size])
    assert our_failures(runs) == []
    waits = [run.metrics["first_batch_ms"] for run in runs if run.loader == FIRST_BATCH]
    assert all(each < MOST_FIRST_BATCH_MS for each in waits), waits
