"""Records behind a slow link: what arrives of what link and decoding allow, and a cache's worth."""

from __future__ import annotations

import pytest

from benchmarks.data.photographs import find_photographs
from benchmarks.experiments.storage import FILLED, KINDS
from benchmarks.harness.machine import usable_cpus
from benchmarks.harness.results import Column, Experiment
from benchmarks.harness.sweeps import RowSpec, Session, our_failures

COLUMNS = (
    Column("open_ms", "open ms", ",.0f"),
    Column("first_batch_ms", "first batch ms", ",.0f"),
    Column("samples_per_second", "samples/s", ",.0f"),
    Column("local_per_second", "local files", ",.0f"),
    Column("link_per_second", "link", ",.0f"),
    Column("share", "of the smaller", ".0%"),
    Column("requests", "requests", ",.0f"),
    Column("fetched_mib", "MiB fetched", ",.0f"),
)
PASSES = {"smoke": 1, "default": 5, "full": 11}
LATENCY_MS, MB_PER_SECOND = 30, 100
LEAST_OF_LOCAL = 0.95  # Of a cache that is filled.
LIMIT_SECONDS = 240


@pytest.mark.parametrize("kind", KINDS)
def test_storage(session: Session, kind: str) -> None:
    """Every row ends well; from a filled cache comes what local files give, and nothing else."""
    pytest.importorskip("obstore", reason="http:// is read by obstore: the extra remote")
    with session.uncaptured():
        find_photographs()
    runs = session.sweep(_experiment(session), [_row(session, kind)], repeats=1)
    assert our_failures(runs) == []
    for run in runs:
        if kind == FILLED:
            assert run.metrics["fetched_mib"] < 1
            assert session.size == "smoke" or run.metrics["share"] >= LEAST_OF_LOCAL


def _experiment(session: Session) -> Experiment:
    experiment = session.experiment(
        "storage",
        f"Storage: {LATENCY_MS} ms, {MB_PER_SECOND} MB/s a connection",
        "How much of the smaller of link and decoding do records behind a URL reach?",
    )
    experiment.columns = COLUMNS
    experiment.note(
        "2,000 JPEGs of 47 KB in random order, without near ranges to merge: a request each; 2,000 "
        "records of local files in turns with them; the server shares the cores",
    )
    return experiment


def _row(session: Session, kind: str) -> RowSpec:
    return RowSpec(
        framework="Keras",
        loader=kind,
        workers=usable_cpus(),
        ours=True,
        program="benchmarks.experiments.storage",
        options={
            "kind": kind,
            "passes": PASSES[session.size],
            "latency_ms": LATENCY_MS,
            "mb_per_second": MB_PER_SECOND,
        },
        limit_seconds=LIMIT_SECONDS,
    )
