"""Data sets of h5py and zarr, and mapped arrays, as a source: on the disk, a batch in few reads."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import concatenate, split
from adapters.engine.tuning import obstacle_to_processes
from adapters.sources import ArraySource, as_source
from adapters.sources.stored import Stored
from tests.batches import exact
from tests.engine.executors import opened, read
from tests.plans import epoch_of, plan_of

X = np.arange(100 * 6, dtype=np.int32).reshape(100, 2, 3)
Y = np.arange(100) * 10
ORDERS = {
    "shuffled": np.random.default_rng(0).permutation(100)[:32],
    "in order": np.arange(20, 50),
    "backwards": np.arange(50, 20, -3),
    "several times": np.array([7, 7, 99, 0, 7]),
    "one": np.array([41]),
}


@pytest.fixture
def h5py():
    return pytest.importorskip("h5py", reason="h5py isn't installed")


@pytest.fixture
def file(h5py, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as made:
        made["plain"], made["labels"] = X, Y
        made.create_dataset("chunked", data=X, chunks=(7, 2, 3), compression="gzip")
        made["texts"] = [b"text %d" % n for n in range(100)]
    with h5py.File(tmp_path / "a.h5", "r") as opened:
        yield opened


class Reads:
    """Rows that note how they were asked for."""

    def __init__(self, shape, chunks=None):
        self.shape, self.dtype, self.chunks, self.asked = shape, np.dtype("u1"), chunks, []

    def __getitem__(self, rows):
        self.asked.append((rows.start, rows.stop))
        return np.zeros((rows.stop - rows.start, *self.shape[1:]), np.uint8)


def asked(data, numbers):
    numbers = np.array(numbers)
    Stored(data).read(numbers, np.empty((len(numbers), *data.shape[1:]), data.dtype))
    return data.asked


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["plain", "chunked"])
def test_batch_is_the_rows_of_each_data_set(file, name, order):
    numbers = ORDERS[order]
    x, y = ArraySource((file[name], file["labels"])).gather(numbers, np.empty)
    np.testing.assert_array_equal(x, X[numbers])
    np.testing.assert_array_equal(y, Y[numbers])
    np.testing.assert_array_equal(as_source(file[name]).gather(numbers, np.empty), X[numbers])


def test_samples_and_texts(file):
    (texts,) = ArraySource((file["texts"],)).gather(np.array([5, 3]), np.empty)
    assert texts.tolist() == [b"text 5", b"text 3"]
    x, y = ArraySource((file["plain"], file["labels"])).sample(5)
    assert (x.tolist(), y) == (X[5].tolist(), 50)
    with pytest.raises(ValueError, match=r"source\[0\]: 100, source\[1\]: 3"):
        ArraySource((file["plain"], np.arange(3)))


@pytest.mark.parametrize(
    ("shape", "chunks", "numbers", "spans"),
    [
        # A chunk is decoded whole, whatever is asked of it; of 1 MB, it wouldn't be kept.
        (
            (4000, 10_000),
            (100, 10_000),
            [399, 5, 95, 301, 2050],
            [(5, 96), (301, 400), (2050, 2051)],
        ),
        ((1_000_000, 8), None, [500_000, 3, 10_000, 500_100], [(3, 10_001), (500_000, 500_101)]),
    ],
)
def test_rows_near_each_other_are_read_at_once(shape, chunks, numbers, spans):
    assert asked(Reads(shape, chunks), numbers) == spans


@pytest.mark.parametrize("chunks", [None, (1 << 26, 1)], ids=["no chunks", "columns"])
def test_no_read_is_larger_than_8_mib(chunks):
    data = Reads((1 << 26, 8), chunks)
    spans = asked(data, np.arange(0, 1 << 22, 1 << 10))
    assert max(8 * (end - begin) for begin, end in spans) <= 8 << 20


MEMORY = """
import h5py, numpy as np, psutil, sys
from adapters.batch.sourceplan import SourcePlan
from adapters.batch.key import BatchKey
from adapters.batch.order import Order
from adapters.sources import as_source
file = h5py.File(sys.argv[1], "r")
process = psutil.Process()
before = process.memory_info().rss
plan = SourcePlan(as_source((file["x"], file["y"])), Order(4000, 16, shuffle=True))
for index in range(100):
    plan.batch(BatchKey(0, index), np.empty)
print((process.memory_info().rss - before) >> 20)
"""


def test_data_sets_are_not_read_into_memory(h5py, tmp_path):
    """80 MB of them."""
    path = tmp_path / "large.h5"
    with h5py.File(path, "w") as made:
        made.create_dataset("x", (4000, 20_000), "u1")[...] = 1
        made["y"] = np.arange(4000)
    grown = subprocess.check_output([sys.executable, "-c", MEMORY, str(path)], timeout=100)
    assert int(grown) < 30


def test_data_set_pickles_as_the_name_of_its_file(file):
    sent = pickle.dumps(ArraySource((file["chunked"], file["labels"])))
    assert len(sent) < 2000
    file.close()
    x, y = pickle.loads(pickle.dumps(pickle.loads(sent))).gather(np.array([9, 2]), np.empty)
    assert (x.tolist(), y.tolist()) == (X[[9, 2]].tolist(), [90, 20])


def test_file_open_for_writing_keeps_processes_out(h5py, tmp_path):
    with h5py.File(tmp_path / "w.h5", "w") as made:
        made["x"] = X
        said = str(obstacle_to_processes(plan_of((made["x"],), 4)))
    assert "'/x' of" in said
    assert 'h5py.File(path, "r")' in said


def test_threads_read_at_once(file):
    source = ArraySource((file["chunked"], file["labels"]))

    def right(seed: int) -> bool:
        numbers = np.random.default_rng(seed).permutation(100)[:20]
        x, y = source.gather(numbers, np.empty)
        return bool((x == X[numbers]).all() and (y == Y[numbers]).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(right, range(100)))


def stored(library: str, folder: Path) -> tuple[Any, Any]:
    """``X`` and ``Y`` on the disk."""
    if library == "h5py":
        h5py = importlib.import_module("h5py")
        with h5py.File(folder / "a.h5", "w") as made:
            made.create_dataset("group/x", data=X, chunks=(7, 2, 3), compression="gzip")
            made["y"] = Y
        file = h5py.File(folder / "a.h5", "r")
        return file["group/x"], file["y"]
    if library == "zarr":
        zarr = importlib.import_module("zarr")
        x = zarr.open(f"{folder}/x.zarr", mode="w", shape=X.shape, chunks=(7, 2, 3), dtype="i4")
        y = zarr.open(f"{folder}/y.zarr", mode="w", shape=Y.shape, chunks=(7,), dtype="i8")
        x[:], y[:] = X, Y
        return x, y
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", Y)
    x, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "xy")
    return x, y


PARTS = (
    as_source,
    lambda data: split(data, [0.6])[0],
    lambda data: concatenate([data, split(data, [0.4])[0].select(range(20))]),
)


def assert_batches_are_those_of_memory(library: str, folder: str, parts: Any = PARTS) -> None:
    x, y = stored(library, Path(folder))
    on_disk = {"in": (x, {"again": x}), "out": (y, Y)}
    in_memory = {"in": (X, {"again": X}), "out": (Y, Y)}
    for make in parts:
        expected = [exact(each) for each in epoch_of(plan_of(make(in_memory), 16, shuffle=True), 1)]
        for executor in ("inline", "threads-2", "processes-1"):
            with opened(make(on_disk), executor, 16, shuffle=True) as engine:
                assert [exact(batch) for batch in read(engine, len(expected), 1)] == expected


@pytest.mark.parametrize("library", ["h5py", "mapped"])
def test_stored_batches_are_those_of_memory(library, tmp_path):
    if library == "h5py":
        pytest.importorskip("h5py", reason="h5py isn't installed")
    assert_batches_are_those_of_memory(library, str(tmp_path))


ZARR = f"""
import sys
from {__name__} import as_source, assert_batches_are_those_of_memory
assert_batches_are_those_of_memory("zarr", sys.argv[1], [as_source])
"""


def test_stored_batches_of_zarr(tmp_path):
    """In a process of its own, as zarr's threads stay."""
    pytest.importorskip("zarr", reason="zarr isn't installed")
    subprocess.run([sys.executable, "-c", ZARR, str(tmp_path)], check=True, timeout=100)


@pytest.mark.parametrize("rows", [7, 64, 1000])
def test_chunks_are_read_once_for_a_batch(rows):
    """However its samples are shuffled. Of 6,000 bytes a row, few lie near each other by chance."""
    numbers = np.random.default_rng(rows).permutation(20_000)[:500]
    data = Reads((20_000, 6_000), (rows, 6_000))
    Stored(data).read(numbers, np.empty((500, 6_000), np.uint8))
    read = [chunk for first, end in data.asked for chunk in range(first // rows, -(-end // rows))]
    assert len(set(read)) == len(read)
    assert set(read) >= set((numbers // rows).tolist())
