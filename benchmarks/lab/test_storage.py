"""Records behind a slow link: what arrives of what link and decoding allow, and a cache's worth."""

from __future__ import annotations

import pytest

from benchmarks.data.photographs import find_photographs
from benchmarks.harness.machine import usable_cpus
from benchmarks.harness.results import Column, Experiment
from benchmarks.harness.sweeps import RowSpec, Session, our_failures
from benchmarks.lab.experiments.storage import BLOCKS, FILLED, KINDS, MEMORY

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
OF_FILLED = 3  # Times as many, as its passes are short, and what is asked of them is close.
LATENCY_MS, MB_PER_SECOND = 30, 100
FAR_MS = 250  # Where the link is the limit, also on two cores.
# Figures that have a bar.
SHARE = "storage: filled cache, share of local files"
ARRIVED = "storage: blocks, share of link and decoding"
FIRST = "storage: first batch, round trips"
LIMIT_SECONDS = 240


@pytest.mark.parametrize(
    ("kind", "latency_ms"), [*((kind, LATENCY_MS) for kind in KINDS), (MEMORY, FAR_MS)]
)
def test_storage(session: Session, kind: str, latency_ms: int) -> None:
    """Blocks bring what link and decoding allow, and a filled cache what local files give."""
    pytest.importorskip("obstore", reason="http:// is read by obstore: the extra remote")
    with session.uncaptured():
        find_photographs()
    experiment = _experiment(session)
    runs = session.sweep(experiment, [_row(session, kind, latency_ms)], repeats=1)
    assert our_failures(runs) == []
    for run in runs:
        found = run.metrics
        if kind == FILLED:
            assert found["fetched_mib"] < 1
            session.judge(experiment, SHARE, found["share"])
        if kind == BLOCKS:
            session.judge(experiment, ARRIVED, found["share"])
        if kind in (MEMORY, BLOCKS):
            session.judge(experiment, FIRST, found["first_batch_ms"] / latency_ms, of=run.loader)


def _experiment(session: Session) -> Experiment:
    experiment = session.experiment(
        "storage",
        f"Storage: {LATENCY_MS} ms, {MB_PER_SECOND} MB/s a connection",
        "How much of the smaller of link and decoding do records behind a URL reach?",
    )
    experiment.columns = COLUMNS
    experiment.note(
        "2,000 JPEGs of 47 KB in random order, near ranges merged, or 12,000 in blocks of 12 MiB, "
        "4 at a time; the same of local files in turns with them; the server shares the cores",
    )
    return experiment


def _row(session: Session, kind: str, latency_ms: int) -> RowSpec:
    return RowSpec(
        framework="Keras",
        loader=kind if latency_ms == LATENCY_MS else f"{kind}, {latency_ms} ms",
        workers=usable_cpus(),
        ours=True,
        program="benchmarks.lab.experiments.storage",
        options={
            "kind": kind,
            "passes": PASSES[session.size] * (OF_FILLED if kind == FILLED else 1),
            "latency_ms": latency_ms,
            "mb_per_second": MB_PER_SECOND,
        },
        limit_seconds=LIMIT_SECONDS,
    )
