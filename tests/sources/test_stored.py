"""Data sets of h5py and zarr as a source: on the disk, a batch in few reads."""

from __future__ import annotations

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from adapters.engine.tuning import obstacle_to_processes
from adapters.sources import ArraySource
from adapters.sources.stored import Stored
from tests.plans import batch_of, plan_of

h5py = pytest.importorskip("h5py", reason="h5py isn't installed")
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
def file(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as made:
        made["plain"], made["labels"] = X, Y
        made.create_dataset("chunked", data=X, chunks=(7, 2, 3), compression="gzip")
        made["texts"] = [b"text %d" % n for n in range(100)]
    with h5py.File(tmp_path / "a.h5", "r") as opened:
        yield opened


# In a process of its own, as zarr's threads stay.
ZARR = """
import pickle, sys
import numpy as np, zarr
from adapters.sources import ArraySource, as_source
from tests.sources.test_stored import ORDERS, X, Y
made = zarr.open(sys.argv[1], mode="w", shape=X.shape, chunks=(7, 2, 3), dtype="i4")
made[:] = X
for numbers in ORDERS.values():
    for data in (made, pickle.loads(pickle.dumps(made))):
        batch = ArraySource({"x": data, "y": Y}).gather(numbers, np.empty)
        np.testing.assert_array_equal(batch["x"], X[numbers])
        np.testing.assert_array_equal(batch["y"], Y[numbers])
        np.testing.assert_array_equal(as_source(data).gather(numbers, np.empty), X[numbers])
"""


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
def test_a_batch_is_the_rows_of_each_data_set(file, name, order):
    numbers = ORDERS[order]
    x, y = ArraySource((file[name], file["labels"])).gather(numbers, np.empty)
    np.testing.assert_array_equal(x, X[numbers])
    np.testing.assert_array_equal(y, Y[numbers])


def test_an_array_of_zarr_is_read_by_rows(tmp_path):
    pytest.importorskip("zarr", reason="zarr isn't installed")
    subprocess.run([sys.executable, "-c", ZARR, str(tmp_path / "a.zarr")], timeout=100, check=True)


def test_a_single_data_set_is_read_as_several_are(file):
    batch = batch_of(plan_of(file["chunked"], 100, shuffle=True))
    np.testing.assert_array_equal(np.sort(batch[:, 0, 0]), X[:, 0, 0])


def test_texts_stay_objects(file):
    (texts,) = ArraySource((file["texts"],)).gather(np.array([5, 3]), np.empty)
    assert texts.tolist() == [b"text 5", b"text 3"]


def test_a_transform_is_given_rows(file):
    source = ArraySource((file["plain"], file["labels"]))
    x, y = source.sample(5)
    assert (x.tolist(), y) == (X[5].tolist(), 50)


def test_rows_of_one_chunk_are_read_at_once():
    """A chunk is decoded whole, whatever is asked of it; of 1 MB, it wouldn't be kept."""
    data = Reads((4000, 10_000), (100, 10_000))
    assert asked(data, [399, 5, 95, 301, 2050]) == [(5, 96), (301, 400), (2050, 2051)]


def test_rows_that_lie_near_each_other_are_read_at_once():
    data = Reads((1_000_000, 8))
    assert asked(data, [500_000, 3, 10_000, 500_100]) == [(3, 10_001), (500_000, 500_101)]


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


def test_a_tuple_of_data_sets_is_not_read_into_memory(tmp_path):
    """80 MB of them."""
    path = tmp_path / "large.h5"
    with h5py.File(path, "w") as made:
        made.create_dataset("x", (4000, 20_000), "u1")[...] = 1
        made["y"] = np.arange(4000)
    grown = subprocess.check_output([sys.executable, "-c", MEMORY, str(path)], timeout=100)
    assert int(grown) < 30


def test_it_travels_to_another_process_as_the_name_of_its_file(file):
    sent = pickle.dumps(ArraySource((file["chunked"], file["labels"])))
    assert len(sent) < 2000
    file.close()
    x, y = pickle.loads(pickle.dumps(pickle.loads(sent))).gather(np.array([9, 2]), np.empty)
    assert (x.tolist(), y.tolist()) == (X[[9, 2]].tolist(), [90, 20])


def test_a_file_open_for_writing_says_why_processes_cannot_read_it(tmp_path):
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


def test_unequal_lengths_are_refused(file):
    with pytest.raises(ValueError, match=r"source\[0\]: 100, source\[1\]: 3"):
        ArraySource((file["plain"], np.arange(3)))
