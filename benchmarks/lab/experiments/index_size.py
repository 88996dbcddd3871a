"""A row of the table of indexes: many record files, opened; and the order of 10^9 samples.

The files are made up: each is another name (a hard link) of one small TFRecord, and so is its
index, so that 10^5 of them take no room on the disk. Indexes come from the page cache. Memory is
what the process has of its own (RssAnon), so pages of files don't count. Time is CPU time.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.row import Measurement

# Stated in docs/scale.md. A record of a TFRecord takes its offset and size, int64 each, and whether
# its CRC was checked; a file takes objects and arrays.
RECORD_BYTES, FILE_BYTES = 17, 3 << 10
_FOLDER_FILES = 1000
_READS = 2000
ORDERED = 10**9
_BATCH, _BATCHES = 256, 200


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one row, in a process of its own.

    Args:
        options: ``files``, and ``records`` of each.
    """
    import adapters
    from adapters import open_records

    began = time.monotonic()
    files, records = options["files"], options["records"]
    with tempfile.TemporaryDirectory() as folder:
        names = list(_made_up(Path(folder), files, records))
        with open_records(names[:1]) as source:  # Imports.
            source.read(0)
        before, wall, cpu = _own_bytes(), time.perf_counter(), time.process_time()
        with open_records(names) as source:
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            own_bytes = _own_bytes() - before
            if len(source) != files * records:
                raise ValueError(f"{files * records} records were made, {len(source)} opened")
            chosen = np.random.default_rng(0).integers(0, len(source), _READS).tolist()
            reading = time.process_time()
            for number in chosen:
                source.read(number)
            reading = time.process_time() - reading
    return Measurement(
        software=f"adapters {adapters.__version__}",
        device="the CPU",
        metrics={
            "records": files * records,
            "files": files,
            "open_seconds": wall,
            "open_cpu_seconds": cpu,
            "memory_mib": own_bytes / 2**20,
            "read_us": reading / _READS * 1e6,
            "stated_mib": (files * records * RECORD_BYTES + files * FILE_BYTES) / 2**20,
            **_order(),
        },
        window=(began, time.monotonic()),
    )


def _order() -> dict[str, float]:
    """Of 10^9 samples on 1,024 shards, permuted and in blocks: memory, CPU time of a sample."""
    from adapters import Blocks
    from adapters.batch.order import Order

    before, found = _own_bytes(), {}
    of_blocks = Blocks(window=1024).of(ORDERED, 64 << 10, seed=1)
    for name, arrangement in (("order_ns", None), ("blocks_ns", of_blocks)):
        order = Order(
            ORDERED, _BATCH, shuffle=True, seed=1, shard=(7, 1024), arrangement=arrangement
        )
        order.batch(0, 0)
        cpu = time.process_time()
        for index in range(1, _BATCHES + 1):
            order.batch(0, index)
        found[name] = (time.process_time() - cpu) / _BATCHES / _BATCH * 1e9
    return {"order_mib": (_own_bytes() - before) / 2**20, **found}


def _made_up(folder: Path, files: int, records: int) -> Iterator[str]:
    from adapters import RecordWriter

    whole = folder / "whole.tfrecord"
    with RecordWriter(whole, format="tfrecord") as writer:
        for _ in range(records):
            writer.write(b"a record")
    (index,) = [path for path in folder.iterdir() if path != whole]
    for number in range(files):
        # A few thousand links an inode are what a file system may allow.
        part = folder / f"{number // _FOLDER_FILES:03}"
        if not part.exists():
            part.mkdir()
            own = [part / f"whole{path.name[5:]}" for path in (whole, index)]
            for path, copy in zip((whole, index), own):
                copy.write_bytes(path.read_bytes())
        name = part / f"train-{number:06}.tfrecord"
        os.link(own[0], name)
        os.link(own[1], name.with_suffix(".idx"))
        yield str(name)


def _own_bytes() -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise OSError("the system doesn't tell a process's own memory")
    return int(found[1]) << 10
