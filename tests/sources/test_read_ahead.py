"""What an order in blocks announces is read ahead, once for each block, and no more than that."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

from adapters import Blocks, Feature, RecordWriter, open_images, open_records, split
from adapters.batch.arranging import order_of
from adapters.batch.sourceplan import SourcePlan
from adapters.records import ahead, example
from adapters.records.ahead import AHEAD
from adapters.records.storage import MappedFile
from benchmarks.harness.page_cache import cached_share, drop
from tests.engine.executors import wait_until
from tests.forking import forks
from tests.packing.materials import folder
from tests.plans import epoch_of

SIZE, BATCH = 200, 8


class Told(list):
    """What the system is told: (first byte, bytes)."""

    def all(self):
        """Once the thread is idle that tells it."""
        wait_until(lambda: AHEAD.is_idle)
        return [*self]


@pytest.fixture
def told(monkeypatch):
    calls = Told()
    monkeypatch.setattr(
        os, "posix_fadvise", lambda fd, offset, size, advice: calls.append((offset, size))
    )
    yield calls
    wait_until(lambda: AHEAD.is_idle)


def records_of(path):
    with RecordWriter(path, format="recordio") as writer:
        for number in range(SIZE):
            writer.write(bytes([number]) * 100)
    return open_records(path, decode=lambda payload: np.frombuffer(payload, np.uint8))


def test_each_block_of_a_file_is_read_once(told, tmp_path):
    with records_of(tmp_path / "x.rec") as source:
        blocks = Blocks(int(10 * source.sample_bytes), 4)
        order = order_of(SIZE, BATCH, blocks, source=source)
        plan = SourcePlan(source, order)
        read = np.concatenate(epoch_of(plan))
        told.all()
    assert sorted(read[:, 0].tolist()) == list(range(SIZE))
    arrangement = order.arrangement
    stride = os.path.getsize(tmp_path / "x.rec") // SIZE
    first_epoch = {(n * arrangement.block * stride) for n in range(arrangement.blocks)}
    begins = [offset for offset, _ in told]
    # And the first window of the next epoch.
    assert first_epoch <= set(begins)
    assert len(begins) <= len(first_epoch) + 1 + arrangement.window
    assert all(size <= arrangement.block * stride for _, size in told)


def test_parts_and_images_are_read_ahead(told, tmp_path):
    with records_of(tmp_path / "x.rec") as source:
        half, _ = split(source, [0.5, 0.5])
        half.will_read(10, 20)
        assert len(told.all()) == 1
        source.select(np.array([0, 199, 5])).will_read(0, 3)
        assert len(told.all()) == 1
    images = open_images(folder(tmp_path / "in", 6))
    images.will_read(1, 4)
    sizes = {os.path.getsize(images.files.path(number)) for number in range(1, 4)}
    assert {size for _, size in told.all()[1:]} == sizes
    assert len(told) == 4


PIECE = 4 << 20


@pytest.fixture
def cold(tmp_path):
    """A file of which nothing is in memory."""
    path = tmp_path / "cold"
    path.write_bytes(bytes(16 * PIECE))
    if drop([path]) > 0.1:
        pytest.skip("this file system keeps files in memory")
    return path


@pytest.mark.parametrize("read_ahead", [128 << 10, 8 << 20])
def test_block_is_read_whole_and_nothing_far_behind(monkeypatch, read_ahead, cold):
    monkeypatch.setattr(ahead, "_system_reads_ahead", lambda device: read_ahead)
    MappedFile(cold).will_read(0, 5 * PIECE + 1000)
    wait_until(lambda: AHEAD.is_idle)
    wait_until(lambda: cached_share([cold]) > 5 / 16)
    assert cached_share([cold]) < 12 / 16


@pytest.mark.parametrize(("offset", "size"), [(0, 3 * PIECE), (0, 1 << 60), (2**63 - 10, PIECE)])
def test_shorter_file_ends_it(offset, size, told, tmp_path):
    (tmp_path / "x").write_bytes(bytes(PIECE))
    AHEAD.read(str(tmp_path / "x"), offset, size)
    told.all()


def test_what_cannot_be_read_ahead_stops_nothing(told, tmp_path):
    with records_of(tmp_path / "x.rec") as source:
        os.remove(tmp_path / "x.rec")
        source.will_read(0, 5)
    (tmp_path / "x").write_bytes(bytes(1000))
    AHEAD.read("no\0path")
    AHEAD.read(str(tmp_path / "x"))
    assert told.all() == [(0, 1000)]


def test_closed_file_is_read_ahead_no_more(monkeypatch, tmp_path):
    (tmp_path / "x").write_bytes(bytes(1 << 20))
    begun, goes_on, told = threading.Event(), threading.Event(), []

    def tell(descriptor, offset, size, advice):
        begun.set()
        goes_on.wait(10)
        told.append(offset)

    monkeypatch.setattr(os, "posix_fadvise", tell)
    file = MappedFile(tmp_path / "x")
    file.will_read(0, 1000)
    assert begun.wait(10)
    file.will_read(4096, 1000)
    file.close()
    goes_on.set()
    wait_until(lambda: AHEAD.is_idle)
    assert told == [0]


@forks
def test_forked_child_reads_ahead(monkeypatch, tmp_path):
    (tmp_path / "x").write_bytes(bytes(1 << 20))
    monkeypatch.setattr(AHEAD, "_runs", True)  # As if its thread ran, which a child hasn't got.
    child = os.fork()
    if not child:
        MappedFile(tmp_path / "x").will_read(0, 1000)
        deadline = time.monotonic() + 10
        while not AHEAD.is_idle and time.monotonic() < deadline:
            time.sleep(0.01)
        os._exit(0 if AHEAD.is_idle else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_opening_reads_headers_alone(tmp_path):
    """Opening a large file, with its index, doesn't read it."""
    with RecordWriter(tmp_path / "x.tfrecord", format="tfrecord") as writer:
        for _ in range(640):
            writer.write(bytes(100_000))
    path = tmp_path / "x.tfrecord"
    if drop([path]) > 0.1:
        pytest.skip("this file system keeps files in memory")
    open_records(path).close()
    assert cached_share([path]) < 0.3


def test_labels_are_read_alone(tmp_path):
    """An order in blocks looks at some, to see whether they are sorted."""
    pixels, path = bytes(100_000), tmp_path / "x.tfrecord"
    with RecordWriter(path, format="tfrecord") as writer:
        for number in range(640):
            writer.write(example.encode({"image": pixels, "label": number}))
    if drop([path]) > 0.1:
        pytest.skip("this file system keeps files in memory")
    features = {"image": Feature("uint8", (100_000,), stored="raw"), "label": Feature("int64")}
    with open_records(path, decode=features, outputs=("image", "label")) as source:
        numbers = np.arange(639, 0, -20)
        assert source.labels_of(numbers).tolist() == numbers.tolist()
        assert cached_share([path]) < 0.2


@pytest.mark.parametrize("gone", [False, True])
def test_labels_of_several_files(gone, tmp_path):
    """A large one, of which pages are read, and a small one."""
    features = {"image": Feature("uint8", (None,), stored="raw"), "label": Feature("int64")}
    paths = [tmp_path / "large.tfrecord", tmp_path / "small.tfrecord"]
    for path, size in zip(paths, (100_000, 10)):
        with RecordWriter(path, format="tfrecord") as writer:
            for number in range(60):
                writer.write(example.encode({"image": bytes(size), "label": number + size}))
    with open_records(paths, decode=features, outputs=("image", "label")) as source:
        numbers = np.array([119, 3, 60, 59, 3, 0])
        labels = source.labels_of(numbers)
        if gone:  # The source has it open.
            os.remove(paths[0])
        assert source.labels_of(numbers).tolist() == labels.tolist()
        half = source.select(numbers).labels_of(np.array([5, 0]))
    assert half.tolist() == [100_000, 59 + 10]


def test_thread_that_cannot_start_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "x").write_bytes(bytes(1000))

    def fail(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        AHEAD.read(str(tmp_path / "x"))
    assert AHEAD.is_idle
    AHEAD.read(str(tmp_path / "x"))
    wait_until(lambda: AHEAD.is_idle)


def test_signal_handler_may_close_a_file(tmp_path):
    with AHEAD._lock:  # As when it comes while this thread has the lock.
        AHEAD.read(str(tmp_path / "x"))
        MappedFile(__file__).close()
    wait_until(lambda: AHEAD.is_idle)
