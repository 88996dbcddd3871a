"""Arrays on the disk in nested structures, by every executor: whole, in part, and put together."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from adapters.sources.stored import Stored
from tests.sources.test_stored import Reads

# In a process of its own, as zarr's threads stay.
SCRIPT = """
import sys
import numpy as np
from adapters import concatenate, split
from adapters.sources import as_source
from tests.batches import exact
from tests.engine.executors import opened, read
from tests.plans import epoch_of, plan_of

library, folder = sys.argv[1:]
X = np.arange(90 * 6, dtype=np.int32).reshape(90, 2, 3)
Y = np.arange(90) * 10
if library == "h5py":
    import h5py
    with h5py.File(folder + "/a.h5", "w") as made:
        made.create_dataset("group/x", data=X, chunks=(7, 2, 3), compression="gzip")
        made["y"] = Y
    file = h5py.File(folder + "/a.h5", "r")
    x, y = file["group/x"], file["y"]
elif library == "zarr":
    import zarr
    x = zarr.open(folder + "/x.zarr", mode="w", shape=X.shape, chunks=(7, 2, 3), dtype="i4")
    x[:] = X
    y = zarr.open(folder + "/y.zarr", mode="w", shape=Y.shape, chunks=(7,), dtype="i8")
    y[:] = Y
else:
    np.save(folder + "/x.npy", X)
    np.save(folder + "/y.npy", Y)
    x, y = (np.load(f"{folder}/{name}.npy", mmap_mode="r") for name in "xy")

stored = {"in": (x, {"again": x}), "out": (y, Y)}
in_memory = {"in": (X, {"again": X}), "out": (Y, Y)}


def main():
    for make in (
        as_source,
        lambda data: split(data, [0.6])[0],
        lambda data: concatenate([data, split(data, [0.4])[0].select(range(20))]),
    ):
        plan = plan_of(make(in_memory), 16, shuffle=True)
        expected = [exact(batch) for batch in epoch_of(plan, 1)]
        for executor in ("inline", "threads-2", "processes-1"):
            with opened(make(stored), executor, 16, shuffle=True) as engine:
                assert [exact(batch) for batch in read(engine, len(expected), 1)] == expected
    print("done")


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("library", ["h5py", "zarr", "mapped"])
def test_nested_arrays_on_the_disk_have_the_batches_of_arrays_in_memory(library, tmp_path):
    if library != "mapped":
        pytest.importorskip(library, reason=f"{library} isn't installed")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    said = subprocess.check_output(
        [sys.executable, str(script), library, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        text=True,
        timeout=100,
    )
    assert said == "done\n"


@pytest.mark.parametrize("rows", [7, 64, 1000])
def test_each_chunk_is_read_once_for_a_batch(rows):
    """However its samples are shuffled. Of 6,000 bytes a row, few lie near each other by chance."""
    numbers = np.random.default_rng(rows).permutation(20_000)[:500]
    data = Reads((20_000, 6_000), (rows, 6_000))
    Stored(data).read(numbers, np.empty((500, 6_000), np.uint8))
    read = [chunk for first, end in data.asked for chunk in range(first // rows, -(-end // rows))]
    assert len(set(read)) == len(read)
    assert set(read) >= set((numbers // rows).tolist())
