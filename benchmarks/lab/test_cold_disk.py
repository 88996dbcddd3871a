"""A record file that isn't in memory: an order in blocks against a sequential and a random one."""

from __future__ import annotations

import shutil

import pytest

from benchmarks.data.photographs import find_photographs
from benchmarks.harness.machine import usable_cpus
from benchmarks.harness.results import Column
from benchmarks.harness.sweeps import RowSpec, Session, our_failures
from benchmarks.lab.experiments.record_formats import MOST_CACHED

COLUMNS = (
    Column("pieces_mb", "pieces MB/s", ",.0f"),
    Column("sequential_mb", "sequential", ",.0f"),
    Column("blocks_mb", "blocks", ",.0f"),
    Column("random_mb", "random", ",.0f"),
    Column("to_sequential", "blocks to sequential", ".0%"),
    Column("to_random", "to random", ".0%"),
    Column("to_pieces", "to pieces", ".0%"),
    Column("still_cached", "still cached", ".0%"),
)
# Records of 64 KB, passes, MiB of a block, blocks of a window: 16 windows, as while the first is
# read nothing else can be done. The smallest size has two.
SIZES = {"smoke": (256, 1, 1, 8), "default": (65_536, 3, 32, 8), "full": (131_072, 7, 32, 16)}
RECORD_BYTES = 64 << 10
TO_PIECES = "cold: blocks, share of plain reads"  # Has a bar.
LIMIT_SECONDS = 400


def test_cold_disk(session: Session) -> None:
    """Blocks come nearly as fast as pieces are read from begin to end, of a file that is cold."""
    with session.uncaptured():
        folder = find_photographs().folder
    needed = 3 * SIZES[session.size][0] * RECORD_BYTES // 2
    if shutil.disk_usage(folder).free < needed:
        pytest.skip(f"it needs {needed / 1e9:.1f} GB of free disk beside {folder}")
    experiment = session.experiment(
        "cold",
        "Cold files: Examples of 64 KB from the disk",
        "How much of a sequential read does an order in blocks reach?",
    )
    experiment.columns = COLUMNS
    records, passes, block_mib, window = SIZES[session.size]
    experiment.note(
        f"{records:,} records, {window} blocks of {block_mib} MiB at a time; medians of {passes} "
        "turns; pieces: of 1 MiB, without a loader; cold: after POSIX_FADV_DONTNEED, as mincore "
        "finds, which sees no disk's and no host's cache",
    )
    spec = RowSpec(
        framework="Keras",
        loader="cold disk",
        workers=usable_cpus(),
        ours=True,
        program="benchmarks.lab.experiments.cold_disk",
        options={
            "records": records,
            "passes": passes,
            "block_bytes": block_mib << 20,
            "window": window,
        },
        limit_seconds=LIMIT_SECONDS,
    )
    runs = session.sweep(experiment, [spec], repeats=1)
    assert our_failures(runs) == []
    for run in runs:
        if run.metrics["still_cached"] > MOST_CACHED:
            experiment.note("not measured cold: this file system keeps the file in memory")
        else:
            session.judge(experiment, TO_PIECES, run.metrics["to_pieces"])
