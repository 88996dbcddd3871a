"""Many records in many files: what it takes to know where they are, and in which order to read."""

from __future__ import annotations

import psutil
import pytest

from benchmarks.harness.results import Column, Experiment
from benchmarks.harness.sweeps import RowSpec, Session, our_failures
from benchmarks.lab.experiments.index_size import FILE_BYTES, ORDERED, RECORD_BYTES

COLUMNS = (
    Column("records", "records", ",.0f"),
    Column("files", "files", ",.0f"),
    Column("open_seconds", "open s", ",.2f"),
    Column("open_cpu_seconds", "CPU s", ",.2f"),
    Column("memory_mib", "memory MiB", ",.1f"),
    Column("stated_mib", "stated", ",.1f"),
    Column("read_us", "a record us", ",.1f"),
    Column("order_mib", "order MiB", ",.1f"),
    Column("order_ns", "a number ns", ",.0f"),
    Column("blocks_ns", "in blocks", ",.0f"),
)
# Files, and records of each: what files cost, what records cost, and both.
SIZES = {
    "smoke": [(50, 100)],
    "default": [(10_000, 100), (100, 100_000)],
    "full": [(10_000, 100), (100, 100_000), (100_000, 100), (100_000, 1000), (100_000, 10_000)],
}
ROWS = sorted({size for sizes in SIZES.values() for size in sizes})
MEMORY = "index: memory, share of what is stated"  # Has a bar.
MOST_ORDER_MIB = 8
ROOM = 1.25  # Times the stated memory must be free.
LIMIT_SECONDS = 900


@pytest.mark.parametrize(("files", "records"), ROWS)
def test_index(session: Session, files: int, records: int) -> None:
    """The memory is what docs/scale.md states; the order of 10^9 samples takes none."""
    if (files, records) not in SIZES[session.size]:
        pytest.skip("of another size")
    if files * records * RECORD_BYTES * ROOM > psutil.virtual_memory().available:
        pytest.skip("this machine hasn't enough memory free for that index")
    spec = RowSpec(
        framework="records",
        loader=f"{files:,} files of {records:,}",
        workers="",
        ours=True,
        program="benchmarks.lab.experiments.index_size",
        options={"files": files, "records": records},
        limit_seconds=LIMIT_SECONDS,
    )
    experiment = _experiment(session)
    runs = session.sweep(experiment, [spec], repeats=1)
    assert our_failures(runs) == []
    for run in runs:
        assert run.metrics["order_mib"] < MOST_ORDER_MIB
        share = run.metrics["memory_mib"] / run.metrics["stated_mib"]
        session.judge(experiment, MEMORY, share, of=run.loader)


def _experiment(session: Session) -> Experiment:
    experiment = session.experiment(
        "index",
        "Indexes: many records in many files",
        "How much memory and time does it take to open them?",
    )
    experiment.columns = COLUMNS
    experiment.note(
        "made-up TFRecord files, whose indexes are in the page cache; memory of the process alone; "
        f"stated: {RECORD_BYTES} bytes a record and {FILE_BYTES:,} a file; a number: CPU time of "
        f"the order of {ORDERED:,} samples on 1,024 shards, permuted and in blocks",
    )
    return experiment
