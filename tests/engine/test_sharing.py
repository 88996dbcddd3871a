"""What worker processes are sent: once, by reference where that is possible, whatever it is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.engine import usable_cpus
from tests.engine.executors import end_idle_workers, opened, read, wait_until, workers
from tests.engine.workloads import Numbers

PROCESSES = "processes-2"
MEGABYTE = 2**20
BIG = 200 * MEGABYTE


def own_megabytes(pid: int) -> float:
    """Memory of a process that is no part of any file: what it has copied, or made."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
    return sizes["Anonymous"] / 1024


def touch(sample: Any) -> int:
    """Read the sample, and say who did."""
    np.asarray(sample).sum()
    return os.getpid()


def workers_megabytes(data: Any, transform: Callable[..., Any] = touch) -> list[float]:
    """What each of two new workers has for itself, after both have read all over ``data``."""
    # One that was kept may have imported a framework for somebody before.
    end_idle_workers()
    with opened(data, PROCESSES, 16, shuffle=True, transform=transform) as engine:
        stream = engine.stream(0, 0, False)
        pids: set[int] = set()
        wait_until(lambda: pids.update(stream.next().tolist()) or len(pids) == 2)
        megabytes = [own_megabytes(pid) for pid in pids]
        stream.close()
    return megabytes


ROWS = 3200


def columns() -> Any:
    half = BIG // 2 // ROWS // 8
    return np.ones((ROWS, half)), {"more": np.ones((ROWS, half))}


@pytest.mark.skipif(usable_cpus() < 2, reason="one CPU has one process that computes")
@pytest.mark.parametrize(
    "make",
    [
        columns,
        pytest.param(
            lambda: np.asfortranarray(np.ones((ROWS, BIG // ROWS // 8))),
            marks=pytest.mark.full,
        ),
        lambda: list(np.ones((ROWS, BIG // ROWS // 8))),
        lambda: SharedRows(),
        pytest.param(
            lambda: np.ones((2 * ROWS, BIG // ROWS // 8))[::2],
            marks=pytest.mark.full,
        ),
    ],
    ids=["arrays", "Fortran order", "a list of arrays", "a data set's arrays", "every other row"],
)
def test_arrays_are_shared_with_workers_not_copied_to_each(make):
    def first(sample: Any) -> int:
        return touch(sample[0] if isinstance(sample, tuple) else sample)

    # A worker takes about 25 MB for Python and NumPy.
    assert max(workers_megabytes(make(), first)) < 25 + BIG / MEGABYTE / 4


class SharedRows:
    """A data set with an array in an attribute."""

    def __init__(self) -> None:
        self.rows = np.ones((ROWS, BIG // ROWS // 8))

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, number: int) -> Any:
        return self.rows[number]


@pytest.mark.skipif(usable_cpus() < 2, reason="one CPU has one process that computes")
def test_an_array_in_a_transform_is_shared_too():
    table = np.ones(BIG // 8)

    def look_up(sample: int) -> int:
        return touch(table[sample::1000])

    assert max(workers_megabytes(Numbers(3200), look_up)) < 25 + BIG / MEGABYTE / 4


def test_a_transform_that_writes_into_its_data_set_changes_its_own_copy_only():
    table = np.zeros(8)

    def spoil(sample: int) -> float:
        table[sample] += 1
        return float(table[sample])

    with opened(Numbers(8), PROCESSES, transform=spoil) as engine:
        read(engine, 4)
    assert table.tolist() == [0] * 8


# --- memory-mapped files ---


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_memory_mapped_file_travels_as_its_name(tmp_path: Path, mode):
    path = tmp_path / "rows.npy"
    np.save(path, np.ones((ROWS, 16)))
    data = np.load(path, mmap_mode=mode)

    def maps_file(sample: Any) -> bool:
        return str(path) in Path("/proc/self/maps").read_text()

    with opened(data, PROCESSES, transform=maps_file) as engine:
        assert read(engine, 2)[1].tolist() == [True] * 4


@pytest.mark.parametrize(
    "piece",
    [
        lambda rows: rows,
        lambda rows: rows[50:],
        lambda rows: rows[50:][10:60],
        lambda rows: rows[:, 2:3],
        lambda rows: rows[::-2],
        lambda rows: rows.reshape(200, 2, 4),
        lambda rows: rows[7:9].reshape(16, 1),
        lambda rows: np.asarray(rows),
        lambda rows: rows.view(np.uint8),
        lambda rows: np.asfortranarray(rows),
        lambda rows: np.load(rows.filename, mmap_mode="c"),
    ],
    ids=[
        "whole",
        "a slice",
        "a slice of a slice",
        "a column",
        "backwards",
        "reshaped",
        "a slice reshaped",
        "as an array",
        "as bytes",
        "Fortran order",
        "copy on write",
    ],
)
def test_a_piece_of_a_memory_mapped_file_has_the_same_rows_in_a_worker(tmp_path: Path, piece):
    np.save(tmp_path / "rows.npy", np.arange(1600).reshape(200, 8))
    data = piece(np.load(tmp_path / "rows.npy", mmap_mode="r"))
    count = len(data) // 4
    with opened(data, "processes-1", transform=lambda sample: sample) as engine:
        assert np.concatenate(read(engine, count)).tolist() == data[: count * 4].tolist()


def test_what_was_changed_in_a_copy_on_write_map_arrives_changed(tmp_path: Path):
    np.save(tmp_path / "rows.npy", np.zeros(8))
    data = np.load(tmp_path / "rows.npy", mmap_mode="c")
    data[:] = 5
    with opened(data, "processes-1") as engine:
        assert read(engine, 1)[0].tolist() == [5] * 4


def test_a_job_is_small_however_many_arrays_the_source_has():
    with opened([np.zeros(3)] * 10 + [np.zeros(3) for _ in range(2000)], "processes-1") as engine:
        read(engine, 1)
        (worker,) = workers()
        before = worker.io_counters().read_chars
        read(engine, 20)
        assert (worker.io_counters().read_chars - before) / 24 < 4096


def test_the_plan_is_sent_once():
    """A worker doesn't unpickle it for every batch."""

    class Counted:
        loads = 0

        def __setstate__(self, state: Any) -> None:
            Counted.loads += 1

        def __getstate__(self) -> Any:
            return {"some": "state"}

        def __call__(self, sample: int) -> int:
            return Counted.loads

    with opened(Numbers(80), "processes-1", transform=Counted()) as engine:
        assert set(np.concatenate(read(engine, 20)).tolist()) == {1}


def test_workers_are_not_restarted_for_the_memory_that_they_share():
    """Loky, which looks every second, would take a large data set for a leak."""
    rows = np.ones((400, MEGABYTE), np.uint8)

    def slow_sum(row: Any) -> int:
        time.sleep(0.004)
        return int(row.sum())

    with opened(rows, "processes-1", transform=slow_sum) as engine:
        stream = engine.stream(0, 0, False)
        stream.next()
        before = workers()
        for _ in range(100):
            stream.next()
        assert workers() == before
        stream.close()
