"""What comes from outside, one file and one line each: no package is changed for it."""

from __future__ import annotations

import itertools
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import RecordWriter, open_records, pack
from adapters.batch.order import Order
from adapters.batch.sourceplan import SourcePlan
from adapters.cli import main
from adapters.engine import Engine, Settings
from adapters.engine.executors import EXECUTORS
from adapters.engine.threads import Threads
from adapters.errors import RecordError
from adapters.records.codec import Codec
from adapters.records.formats import CODECS
from adapters.sources import Source, as_source, kinds

SIZE, BATCH = 10, 4


# --- a source ---


class Squares(Source):
    """The squares up to a number, which is all that is stored."""

    makes_samples = False
    gathers = True

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def sample(self, number: int, rng: Any = None) -> Any:
        return np.int64(number * number)

    def gather(self, numbers: Any, allocate: Any) -> Any:
        rows = allocate(numbers.shape, np.dtype(np.int64))
        np.multiply(numbers, numbers, out=rows)
        return rows


class UpTo:
    """What a user gives."""

    def __init__(self, size: int) -> None:
        self.size = size


def squares_of(data: Any) -> Source | None:
    return Squares(data.size) if isinstance(data, UpTo) else None


@pytest.fixture
def squares(monkeypatch: pytest.MonkeyPatch) -> UpTo:
    monkeypatch.setattr("adapters.sources.kinds", [squares_of, *kinds])
    return UpTo(SIZE)


@pytest.mark.parametrize(
    ("settings", "transform"),
    [(Settings(0), None), (Settings(0), float), (Settings(2), float), (Settings(1, True), None)],
)
def test_source(squares, settings, transform):
    plan = SourcePlan(as_source(squares), Order(SIZE, BATCH, shuffle=True), transform)
    with closing(Engine(plan, settings)) as engine:
        stream = engine.stream(0, 0, shuffled=False)
        found = np.sort(np.concatenate([stream.next() for _ in range(plan.num_batches)]))
    assert found.tolist() == [i * i for i in range(SIZE)]


# --- workers ---


class Counting(Threads):
    """Threads that count their jobs, in the place of machines."""

    name = "machines"

    def __init__(self, plan: Any, count: int) -> None:
        super().__init__(plan, count)
        self.jobs = 0

    def submit(self, job: Any, done: Any) -> bool:
        self.jobs += 1
        return super().submit(job, done)


def test_workers(monkeypatch):
    executors: list[Counting] = []

    def machines(
        plan: Any, count: int, settings: Any, lock: Any, changed: Callable[[], None]
    ) -> Counting:
        executors.append(Counting(plan, count))
        return executors[-1]

    monkeypatch.setitem(EXECUTORS, "machines", machines)
    plan = SourcePlan(as_source(list(range(SIZE))), Order(SIZE, BATCH))
    with closing(Engine(plan, Settings(2, kind="machines"))) as engine:
        stream = engine.stream(0, 0, shuffled=False)
        assert [stream.next().tolist() for _ in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert executors[0].count == 2
        assert executors[0].jobs >= 3
        assert engine.description == "2 machines"


# --- a format of record files ---


_MAGIC = b"TOY1"
_LENGTH = struct.Struct("<I")


def encode(payload: bytes) -> bytes:
    return _MAGIC + _LENGTH.pack(len(payload)) + payload


def end(storage: Any, offset: int, verify: bool = True) -> int:
    head = bytes(storage.read(offset, 8))
    if len(head) < 8 or not begins(head):
        raise RecordError(storage.name, None, offset, "a toy record", head.hex(" "))
    return offset + 8 + int(_LENGTH.unpack(head[4:])[0])


def read(
    storage: Any, offset: int, number: int, verify: bool = True, size: int | None = None
) -> memoryview:
    payload: memoryview = storage.read(offset + 8, end(storage, offset) - offset - 8)
    return payload


def begins(head: bytes) -> bool:
    return head.startswith(_MAGIC)


TOY = Codec("toy", "Toy", encode, read, end, begins, 8, has_sizes=True, suffixes=(".toy",))


@pytest.fixture
def toy_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CODECS, TOY.name, TOY)


def test_format(toy_format, tmp_path):
    path = tmp_path / "words.toy"
    words = [b"one", b"two", b"", b"four"]
    with RecordWriter(path, format="toy") as writer:
        for word in words:
            writer.write(word)
    assert open_records(path)[:] == words
    assert path.with_suffix(".idx").read_text().split()[:2] == ["0", "11"]
    path.write_bytes(b"TOY1\x03\x00\x00\x00oneTOY")
    with pytest.raises(RecordError, match="expected a toy record"):
        open_records(path)
    with pytest.raises(ValueError, match="or \"toy\", got 'csv'"):
        RecordWriter(tmp_path / "x", format="csv")


@pytest.fixture
def toy_images(toy_format, tmp_path: Path) -> Path:
    """Raw images, which are packed under a name that tells the format."""
    images = np.arange(SIZE * 6, dtype=np.uint8).reshape(SIZE, 2, 3)
    assert pack((images, range(SIZE)), tmp_path / "x.toy", format="toy", encoding="raw").files
    return tmp_path / "x.toy"


def test_format_is_packed_and_gathered(toy_images):
    with open_records(toy_images, decode="image") as source:
        plan = SourcePlan(source, Order(SIZE, SIZE))
        with closing(Engine(plan, Settings(0))) as engine:
            arrays, labels = engine.stream(0, 0, shuffled=False).next()
        assert arrays.ravel().tolist() == list(range(SIZE * 6))
        assert labels.tolist() == list(range(SIZE))


def test_format_is_verified(toy_images, capsys):
    assert main(["verify", str(toy_images), str(toy_images.with_suffix(".json"))]) == 0
    assert capsys.readouterr().out == f"{SIZE} good records, 0 problems\n"
    toy_images.write_bytes(toy_images.read_bytes()[:-1])
    assert main(["verify", str(toy_images)]) == 1


def test_format_is_converted(toy_images, capsys):
    first, second = toy_images.with_name("y.rec"), toy_images.with_name("z.toy")
    assert main(["convert", str(toy_images), str(first)]) == 0
    assert main(["convert", str(first), str(second)]) == 0
    assert second.read_bytes() == toy_images.read_bytes()


def test_format_reaches_worker_processes(toy_format, tmp_path):
    path = tmp_path / "numbers.toy"
    with RecordWriter(path, format="toy") as writer:
        for number in range(SIZE):
            writer.write(bytes([number]))
    plan = SourcePlan(open_records(path, decode=ord), Order(SIZE, SIZE))
    with closing(Engine(plan, Settings(1, True))) as engine:
        assert engine.stream(0, 0, shuffled=False).next().tolist() == list(range(SIZE))


# --- a framework ---


class Feed:
    """The face of a framework that takes lists."""

    def __init__(self, data: Any, batch_size: int, workers: int) -> None:
        plan = SourcePlan(as_source(data), Order(len(data), batch_size, shuffle=True))
        self._engine, self._epoch = Engine(plan, Settings(workers)), 0
        self._batches = plan.num_batches

    def __iter__(self) -> Iterator[list[Any]]:
        stream = self._engine.stream(self._epoch, 0, shuffled=False)
        for _ in range(self._batches):
            yield stream.next().tolist()
        self._epoch += 1
        self._engine.park(stream)

    def close(self) -> None:
        self._engine.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_front_end(workers):
    before = threading.active_count()
    feed = Feed(np.arange(SIZE), BATCH, workers)
    first, second = list(feed), list(feed)
    feed.close()
    assert sorted(itertools.chain(*first)) == sorted(itertools.chain(*second)) == [*range(SIZE)]
    assert first != second
    assert threading.active_count() == before
