"""What an order in blocks announces is read ahead, once for each block, and no more than that."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from unittest.mock import Mock

import numpy as np
import pytest

from adapters import Blocks, Feature, open_images, open_records, split
from adapters.batch.arranging import order_of
from adapters.batch.sourceplan import SourcePlan
from adapters.records import ahead, example
from adapters.records.ahead import AHEAD
from adapters.records.storage import MappedFile
from benchmarks.harness.page_cache import cached_share, drop
from tests.engine.executors import wait_until
from tests.packing.materials import folder
from tests.plans import epoch_of
from tests.sources.record_files import write

SIZE, BATCH = 200, 8


@pytest.fixture
def told(monkeypatch):
    """Gives what the system is told, (first byte, bytes), once the thread is idle that tells it."""
    calls = []
    monkeypatch.setattr(
        os, "posix_fadvise", lambda fd, offset, size, advice: calls.append((offset, size))
    )

    def all_calls():
        wait_until(lambda: AHEAD.is_idle)
        return [*calls]

    yield all_calls
    all_calls()


def records_of(path):
    write(path, "recordio", (bytes([number]) * 100 for number in range(SIZE)))
    return open_records(path, decode=lambda payload: np.frombuffer(payload, np.uint8))


def test_each_block_of_a_file_is_read_once(told, tmp_path):
    with records_of(tmp_path / "x.rec") as source:
        blocks = Blocks(int(10 * source.sample_bytes), 4)
        order = order_of(SIZE, BATCH, blocks, source=source)
        plan = SourcePlan(source, order)
        read = np.concatenate(epoch_of(plan))
        calls = told()
    assert sorted(read[:, 0].tolist()) == list(range(SIZE))
    arrangement = order.arrangement
    stride = os.path.getsize(tmp_path / "x.rec") // SIZE
    first_epoch = {(n * arrangement.block * stride) for n in range(arrangement.blocks)}
    begins = [offset for offset, _ in calls]
    # And the first window of the next epoch.
    assert first_epoch <= set(begins)
    assert len(begins) <= len(first_epoch) + 1 + arrangement.window
    assert all(size <= arrangement.block * stride for _, size in calls)


def test_parts_and_images_are_read_ahead(told, tmp_path):
    with records_of(tmp_path / "x.rec") as source:
        half, _ = split(source, [0.5, 0.5])
        half.prefetch_hint(10, 20)
        assert len(told()) == 1
        source.select(np.array([0, 199, 5])).prefetch_hint(0, 3)
        assert len(told()) == 1
    images = open_images(folder(tmp_path / "in", 6))
    images.prefetch_hint(1, 4)
    sizes = {os.path.getsize(images.files.path(number)) for number in range(1, 4)}
    assert {size for _, size in told()[1:]} == sizes
    assert len(told()) == 4


PIECE = 4 << 20
FEATURES = {"image": Feature("uint8", (None,), stored="raw"), "label": Feature("int64")}


def labelled(path, count, size):
    """Images of that size; their labels are their numbers and the size."""
    images = ({"image": bytes(size), "label": number + size} for number in range(count))
    return write(path, "tfrecord", map(example.encode, images))


def in_no_memory(path):
    """The file, of which nothing is in memory."""
    if drop([path]) > 0.1:
        pytest.skip("this file system keeps files in memory")
    return path


@pytest.mark.parametrize("read_ahead", [None, 128 << 10, 8 << 20])
def test_block_is_read_whole_and_nothing_far_behind(monkeypatch, read_ahead, tmp_path):
    if read_ahead is not None:
        monkeypatch.setattr(ahead, "_system_reads_ahead", lambda device: read_ahead)
    (tmp_path / "x").write_bytes(bytes(16 * PIECE))
    path = in_no_memory(tmp_path / "x")
    MappedFile(path).prefetch_hint(0, 5 * PIECE + 1000)
    wait_until(lambda: AHEAD.is_idle)
    wait_until(lambda: cached_share([path]) > 5 / 16)
    assert cached_share([path]) < 12 / 16


def test_what_cannot_be_read_ahead_stops_nothing(told, tmp_path):
    with records_of(tmp_path / "x.rec") as source:
        os.remove(tmp_path / "x.rec")
        source.prefetch_hint(0, 5)
    (tmp_path / "x").write_bytes(bytes(1000))
    AHEAD.read("no\0path")
    AHEAD.read(str(tmp_path / "x"))
    AHEAD.read(str(tmp_path / "x"), 2**63 - 10, PIECE)
    AHEAD.read(str(tmp_path / "x"), 500, 1 << 60)
    assert told() == [(0, 1000), (500, 500)]


def test_opening_reads_headers_alone(tmp_path):
    """Nor are more than labels, which an order in blocks looks at: are they sorted?"""
    path = in_no_memory(labelled(tmp_path / "x.tfrecord", 640, 100_000))
    with open_records(path, decode=FEATURES, outputs=("image", "label")) as source:
        numbers = np.arange(639, 0, -20)
        assert source.labels_of(numbers).tolist() == (numbers + 100_000).tolist()
        assert cached_share([path]) < 0.2


def test_labels_of_several_files(tmp_path):
    """A large one, of which pages are read, and a small one."""
    paths = [labelled(tmp_path / f"{size}.tfrecord", 60, size) for size in (100_000, 10)]
    with open_records(paths, decode=FEATURES, outputs=("image", "label")) as source:
        numbers = np.array([119, 3, 60, 59, 3, 0])
        labels = source.labels_of(numbers)
        os.remove(paths[0])  # The source has it open.
        assert source.labels_of(numbers).tolist() == labels.tolist()
        half = source.select(numbers).labels_of(np.array([5, 0]))
    assert half.tolist() == [100_000, 59 + 10]


def test_closed_file_is_read_ahead_no_more(monkeypatch, tmp_path):
    (tmp_path / "x").write_bytes(bytes(1 << 20))
    begun, goes_on, told = threading.Event(), threading.Event(), []

    def tell(descriptor, offset, size, advice):
        begun.set()
        goes_on.wait(10)
        told.append(offset)

    monkeypatch.setattr(os, "posix_fadvise", tell)
    file = MappedFile(tmp_path / "x")
    file.prefetch_hint(0, 1000)
    assert begun.wait(10)
    file.prefetch_hint(4096, 1000)
    file.close()
    goes_on.set()
    wait_until(lambda: AHEAD.is_idle)
    assert told == [0]


FORKED = """
import os, sys, threading
from adapters.records.ahead import AHEAD
begun, goes_on = threading.Event(), threading.Event()
def tell(descriptor, offset, size, advice):
    begun.set()
    goes_on.wait(10)
os.posix_fadvise = tell
AHEAD.read(sys.argv[1])
assert begun.wait(10)
if not (child := os.fork()):  # It hasn't got the thread, which is busy.
    told = threading.Event()
    os.posix_fadvise = lambda *_: told.set()
    AHEAD.read(sys.argv[1])
    os._exit(0 if told.wait(10) else 1)
goes_on.set()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_forked_child_reads_ahead(tmp_path):
    (tmp_path / "x").write_bytes(bytes(1000))
    command = [sys.executable, "-W", "ignore", "-c", FORKED, tmp_path / "x"]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


def test_signal_handler_may_close_a_file(tmp_path):
    with AHEAD._lock:  # As when it comes while this thread has the lock.
        AHEAD.read(str(tmp_path / "x"))
        MappedFile(__file__).close()
    wait_until(lambda: AHEAD.is_idle)


def test_thread_that_cannot_start_is_no_error(monkeypatch, told, tmp_path):
    (tmp_path / "x").write_bytes(bytes(1000))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError))
        AHEAD.read(str(tmp_path / "x"))
    assert told() == []
    AHEAD.read(str(tmp_path / "x"))
    assert told() == [(0, 1000)]
