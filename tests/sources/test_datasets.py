"""Data of one's own as a source: map-style objects, whole batches, arrays, stored ones too."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from adapters import concatenate, materialize, split
from adapters.engine.autotune import obstacle_to_processes
from adapters.errors import FileChangedError
from adapters.sources import ArraySource, MapSource, SequenceSource, as_source
from adapters.sources.stored import Stored
from tests.batches import exact
from tests.engine.executors import opened, read
from tests.plans import batch_of, epoch_of, plan_of


class Squares:
    """Remembers what it was asked for."""

    def __init__(self, size: int = 10) -> None:
        self.size = size
        self.asked: list[Any] = []

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: Any) -> int:
        self.asked.append(number)
        return int(number) ** 2


class SquaresAtOnce(Squares):
    def __getitems__(self, numbers: Any) -> list[int]:
        self.asked.append(numbers)
        return [number**2 for number in numbers]


def test_file_of_several_arrays_is_a_dict_of_them(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3), y=np.arange(3) * 2)
    with np.load(tmp_path / "a.npz") as file:
        assert as_source(file).sample(2) == {"x": 2, "y": 4}


def test_samples_are_asked_for_by_number_one_at_a_time():
    """So that one raw sample is in memory, not a batch of them."""
    data = Squares()
    seen: list[int] = []
    batch = batch_of(plan_of(data, transform=lambda sample: seen.append(len(data.asked)) or sample))
    assert (batch.tolist(), seen) == ([0, 1, 4, 9], [1, 2, 3, 4])
    assert {type(number) for number in data.asked} == {int}


@pytest.mark.parametrize("transform", [None, lambda sample: sample + 0])
def test_getitems_is_asked_once_per_batch(transform):
    data = SquaresAtOnce()
    found = [batch.tolist() for batch in epoch_of(plan_of(data, transform=transform))]
    assert found == [[0, 1, 4, 9], [16, 25, 36, 49], [64, 81]]
    assert data.asked == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert {type(number) for numbers in data.asked for number in numbers} == {int}


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ((number for number in range(4)), TypeError, "a list of samples, got generator"),
        (dict.fromkeys(range(4)), TypeError, "a list of samples, got dict"),
        ([1], ValueError, "one .* got 1 for 4"),
    ],
)
def test_getitems_of_another_length_or_type_is_told(given, error, message):
    class Broken(Squares):
        def __getitems__(self, numbers: Any) -> Any:
            return given

    with pytest.raises(error, match=f"Broken must return {message}"):
        batch_of(plan_of(Broken()))


def test_array_like_is_not_read_whole():
    class File(Squares):
        shape, dtype = (10,), np.dtype(int)

    assert isinstance(as_source(File()), MapSource)


def test_sequence_without_batches_is_refused():
    with pytest.raises(ValueError, match="source must hold at least one batch, got 0"):
        SequenceSource([], False)


class Pair(NamedTuple):
    image: Any
    label: Any


class Frame:
    """A column as pandas has it: no array, but as good as one."""

    def to_numpy(self) -> np.ndarray:
        return np.arange(5, 13)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.to_numpy()


def gathered(data: Any, numbers: list[int]) -> Any:
    return ArraySource(data).gather(np.array(numbers), np.empty)


X = np.arange(100 * 6, dtype=np.int32).reshape(100, 2, 3)
Y = np.arange(100) * 10
ROWS = np.arange(24).reshape(8, 3)


def test_table_has_rows():
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow isn't installed")
    assert as_source(pyarrow.table({"a": [0, 2], "b": [1, 3]}))[1].tolist() == [2, 3]


@pytest.mark.parametrize(
    ("data", "batch"),
    [
        (np.arange(8), np.array([3, 0])),
        (ROWS[:, ::2], ROWS[[3, 0]][:, ::2]),
        (ROWS[::-1], ROWS[[4, 7]]),
        (np.asfortranarray(ROWS), ROWS[[3, 0]]),
        (np.zeros((8, 0)), np.zeros((2, 0))),
        (np.broadcast_to(ROWS[0], (8, 3)), ROWS[[0, 0]]),
        ((ROWS, np.arange(8)), (ROWS[[3, 0]], np.array([3, 0]))),
        (Pair(ROWS, np.arange(8)), Pair(ROWS[[3, 0]], np.array([3, 0]))),
        ({"x": (ROWS, None)}, {"x": (ROWS[[3, 0]], None)}),
        (([1, 2, 3, 4], [[1], [2], [3], [4]]), (np.array([4, 1]), np.array([[4], [1]]))),
        (Frame(), np.array([8, 5])),
        (np.array([(i, i) for i in range(8)], "i4,f8"), np.array([(3, 3), (0, 0)], "i4,f8")),
    ],
)
def test_batch_is_rows_of_every_array(data, batch):
    found = gathered(data, [3, 0])
    assert type(found) is type(batch)
    assert exact(found) == exact(batch)


@pytest.mark.parametrize("dtype", ["u1", "f2", "?", "c16", "g", ">i4", "M8[s]", "U3", "O"])
def test_any_dtype_is_gathered(dtype):
    array, numbers = np.arange(60).astype(dtype).reshape(30, 2), np.array([7, 29, 0, 7])
    for source in (ArraySource(array), concatenate([array[:9], array[9:]])):
        rows = source.gather(numbers, np.empty)
        assert rows.dtype == array.dtype
        np.testing.assert_array_equal(rows, array[numbers])


def test_batch_and_sample_are_copies():
    data = np.zeros(8)
    for numbers in ([2, 3, 4], [7, 0]):
        gathered(data, numbers)[:] = 1
    ArraySource((data[:, None], data)).sample(3)[0][:] = 1
    assert data.tolist() == [0] * 8


LARGE = np.ones((20_000, 16))


@pytest.mark.parametrize(
    "data",
    [LARGE, LARGE.astype(">f8"), np.asfortranarray(LARGE), LARGE[:, ::2], LARGE[::-1]],
    ids=["C", "big endian", "Fortran", "every other column", "reversed"],
)
def test_gathering_copies_rows_and_not_the_array(data):
    source, numbers = ArraySource(data), np.random.default_rng(0).permutation(20_000)[:32]
    tracemalloc.start()
    try:
        source.gather(numbers, np.empty)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < data.nbytes / 20


def test_pytorch_tensors_are_not_copied():
    torch = pytest.importorskip("torch", reason="PyTorch is one of the optional frameworks")
    tensor = torch.zeros(4, 2)
    source = as_source((tensor, torch.arange(4)))
    tensor[1] = 5
    found = source.gather(np.array([1]), np.empty)
    assert exact(found) == exact((np.array([[5, 5]], np.float32), np.array([1])))


def test_jax_arrays():
    jnp = pytest.importorskip("jax.numpy", reason="JAX is one of the optional frameworks")
    batch = batch_of(plan_of(jnp.arange(6, dtype=jnp.float32), 2), 0, 1)
    assert exact(batch) == exact(np.array([2, 3], np.float32))


NO_ACCESS = "got {}: .* turn a generator into a list"


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (([1, 2], [1]), ValueError, r"equal lengths, got source\[0\]: 2, source\[1\]: 1"),
        ({"x": (X, X), "y": Y[:2]}, ValueError, r"\['x'\]\[1\]: 100, source\['y'\]: 2"),
        ((), ValueError, "at least one array"),
        ((None,), ValueError, "at least one array"),
        ({}, ValueError, "at least one array"),
        (np.zeros((0, 3)), ValueError, "at least one sample, got 0"),
        (Squares(0), ValueError, "source must hold at least one sample, got 0"),
        ((LARGE, 5), TypeError, r"source\[1\] must be an array with one row per sample, got int"),
        (np.array(5), TypeError, "source must be an array with one row per sample, got ndarray"),
        ({"x": "text"}, TypeError, r"source\['x'\] must be an array with .*, got str"),
        (([[1, 2], [3]], [0, 1]), TypeError, r"list\(zip\(x, y\)\), with collate=pad"),
        (np.float32(5), TypeError, "random access"),
        ((number for number in range(3)), TypeError, NO_ACCESS.format("generator")),
        (type("IterableDataset", (Squares,), {})(3), TypeError, NO_ACCESS.format(".*Dataset")),
        (Squares, TypeError, r"got the class Squares: give Squares\(\.\.\.\)"),
        (b"bytes", TypeError, NO_ACCESS.format("bytes")),
    ],
)
def test_what_are_no_samples_is_refused(data, error, message):
    with pytest.raises(error, match=message):
        as_source(data)


def test_iterable_data_set_with_access_of_its_own():
    """Such as LitData's."""
    base = type("IterableDataset", (), {"__getitem__": None})
    assert as_source(type("Own", (Squares, base), {})(3))[2] == Squares(3)[2]


def test_array_made_shorter_is_an_error():
    array = np.arange(300).reshape(100, 3).copy()
    source = as_source((array, np.arange(100)))
    array.resize((50, 3), refcheck=False)
    with pytest.raises(ValueError, match="must keep their 100 rows, got 50 by now"):
        source.gather(np.array([5, 99]), np.empty)
    array.resize((200, 3), refcheck=False)
    rows, numbers = source.gather(np.array([5, 99]), np.empty)
    assert rows[0].tolist() == array[5].tolist()
    assert numbers.tolist() == [5, 99]


# --- on the disk ---


ORDERS = {
    "shuffled": np.random.default_rng(0).permutation(100)[:32],
    "in order": np.arange(20, 50),
    "backwards": np.arange(50, 20, -3),
    "several times": np.array([7, 7, 99, 0, 7]),
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
    x, y = as_source((file[name], file["labels"])).gather(numbers, np.empty)
    np.testing.assert_array_equal(x, X[numbers])
    np.testing.assert_array_equal(y, Y[numbers])


def test_samples_and_texts(file):
    (texts,) = ArraySource((file["texts"],)).gather(np.array([5, 3]), np.empty)
    assert texts.tolist() == [b"text 5", b"text 3"]
    x, y = ArraySource((file["plain"], file["labels"])).sample(5)
    assert (x.tolist(), y) == (X[5].tolist(), 50)


def test_rows_near_each_other_are_read_at_once():
    """At most 8 MiB of them."""
    numbers = [500_000, 3, 10_000, 500_100]
    assert asked(Reads((1_000_000, 8)), numbers) == [(3, 10_001), (500_000, 500_101)]
    for chunks in (None, (1 << 26, 1)):
        spans = asked(Reads((1 << 26, 8), chunks), np.arange(0, 1 << 22, 1 << 10))
        assert max(8 * (end - begin) for begin, end in spans) <= 8 << 20


def test_data_sets_are_not_read_into_memory(h5py, tmp_path):
    """A batch of 320 KB, of 40 MB."""
    with h5py.File(tmp_path / "large.h5", "w") as made:
        made.create_dataset("x", (2000, 20_000), "u1")
    with h5py.File(tmp_path / "large.h5", "r") as opened:
        tracemalloc.start()
        try:
            plan = plan_of((opened["x"], np.arange(2000)), 16, shuffle=True)
            for index in range(20):
                batch_of(plan, 0, index)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 10 << 20


def test_data_set_pickles_as_the_name_of_its_file(file):
    sent = pickle.dumps(ArraySource((file["chunked"], file["labels"])))
    assert len(sent) < 2000
    file.close()
    x, y = pickle.loads(pickle.dumps(pickle.loads(sent))).gather(np.array([9, 2]), np.empty)
    assert (x.tolist(), y.tolist()) == (X[[9, 2]].tolist(), [90, 20])


def test_file_replaced_after_it_was_opened_is_not_read(file, h5py, tmp_path):
    sent = pickle.dumps(ArraySource((file["plain"],)))
    with h5py.File(tmp_path / "new.h5", "w") as made:
        made["plain"] = X + 1
    (tmp_path / "new.h5").replace(file.filename)
    assert "has changed since it was opened" in str(obstacle_to_processes(plan_of(file["plain"])))
    with pytest.raises(FileChangedError):
        pickle.loads(sent).gather(np.array([9]), np.empty)


def test_file_open_for_writing_keeps_processes_out(h5py, tmp_path):
    with h5py.File(tmp_path / "w.h5", "w") as made:
        made["x"] = X
        said = str(obstacle_to_processes(plan_of((made["x"],), 4)))
    assert "'/x' of" in said
    assert 'h5py.File(path, "r")' in said


def stored(library: str, folder: Path) -> tuple[Any, Any]:
    """``X`` and ``Y`` on the disk."""
    if library == "h5py":
        import h5py

        with h5py.File(folder / "a.h5", "w") as made:
            made.create_dataset("group/x", data=X, chunks=(7, 2, 3), compression="gzip")
            made["y"] = Y
        file = h5py.File(folder / "a.h5", "r")
        return file["group/x"], file["y"]
    import zarr

    x = zarr.open(f"{folder}/x.zarr", mode="w", shape=X.shape, chunks=(7, 2, 3), dtype="i4")
    y = zarr.open(f"{folder}/y.zarr", mode="w", shape=Y.shape, chunks=(7,), dtype="i8")
    x[:], y[:] = X, Y
    return x, y


def parts(data: Any) -> Any:
    """A part of the data, and a part of another part."""
    return concatenate([split(data, [0.6])[0], split(data, [0.4])[0].select(range(20))])


def assert_changes_are_noticed(library: str, folder: Path) -> None:
    """By ``materialize``: in the rows on the disk, or beside them."""
    folder, out = folder / "again", folder / "decoded"
    folder.mkdir()
    x, y = stored(library, folder)
    for _ in range(2):
        materialize({"x": x, "y": Y}, out)
    if library == "h5py":
        x.file.close()
    x, y = stored(library, folder)
    for other in ({"x": x, "y": Y}, {"x": y, "y": Y}, {"x": x, "y": Y + 1}):
        with pytest.raises(ValueError, match="give another folder, or remove"):
            materialize(other, out)


def assert_batches_are_those_of_memory(library: str, folder: str) -> None:
    x, y = stored(library, Path(folder))
    on_disk = parts({"in": (x, {"again": x}), "out": (y, Y)})
    in_memory = parts({"in": (X, {"again": X}), "out": (Y, Y)})
    expected = [exact(each) for each in epoch_of(plan_of(in_memory, 16, shuffle=True), 1)]
    for executor in ("inline", "threads-2", "processes-1"):
        with opened(on_disk, executor, 16, shuffle=True) as engine:
            assert [exact(batch) for batch in read(engine, len(expected), 1)] == expected


def test_stored_batches_are_those_of_memory(h5py, tmp_path):
    assert_batches_are_those_of_memory("h5py", str(tmp_path))
    assert_changes_are_noticed("h5py", tmp_path)


ZARR = f"""
import sys
import tracemalloc
from pathlib import Path
from {__name__} import assert_batches_are_those_of_memory, assert_changes_are_noticed
assert_batches_are_those_of_memory("zarr", sys.argv[1])
assert_changes_are_noticed("zarr", Path(sys.argv[1]))
"""


def test_stored_batches_of_zarr(tmp_path):
    """In a process of its own, as zarr's threads stay."""
    pytest.importorskip("zarr", reason="zarr isn't installed")
    subprocess.run([sys.executable, "-c", ZARR, str(tmp_path)], check=True, timeout=100)


@pytest.mark.parametrize("rows", [7, 64, 1000])
def test_chunks_are_read_once_for_a_batch(rows):
    """However its samples are shuffled. Of 6,000 bytes a row, few lie near each other by chance."""
    numbers = np.random.default_rng(rows).permutation(20_000)[:500]
    spans = asked(Reads((20_000, 6_000), (rows, 6_000)), numbers)
    read = [chunk for first, end in spans for chunk in range(first // rows, -(-end // rows))]
    assert len(set(read)) == len(read)
    assert set(read) >= set((numbers // rows).tolist())
