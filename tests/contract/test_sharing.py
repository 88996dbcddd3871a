"""What processes are sent of arrays that are views, and of many Python objects."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from adapters import SafeSequence
from tests.contract import views
from tests.contract.front_ends import batches_of, loader_of, numpy_of
from tests.contract.views import MIB, VIEWS, Annotated, Pairs, Rows, Writing

_BASE_BYTES = 32 * MIB
# Of all batches that are ready or in progress, and of what the processes' code takes.
_OTHER_BYTES = 24 * MIB


def shared_bytes() -> int:
    """Bytes of all shared memory of this process and its children."""
    found = {}
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        place = Path(f"/proc/{process.pid}")
        for link in (*place.glob("fd/*"), *place.glob("map_files/*")):
            with contextlib.suppress(OSError):  # It has ended.
                target = os.readlink(link)
                if "memfd:" in target or "/dev/shm/" in target:
                    status = link.stat()
                    found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(found.values())


class Peak:
    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")
        self.before = self._bytes("VmRSS")

    def growth(self) -> int:
        return self._bytes("VmHWM") - self.before

    @staticmethod
    def _bytes(name: str) -> int:
        (kib,) = re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return int(kib) * 1024


def first_batches(front_end: str, source: Any, batches: int = 3, **arguments: Any) -> Any:
    """Batches from two processes, and the bytes of shared memory that these took."""
    before = shared_bytes()
    arguments = {"workers": "2 processes", "batch_size": 8, **arguments}
    with loader_of(front_end, source, **arguments) as loader:
        iterator = iter(loader)
        found = [numpy_of(next(iterator)) for _ in range(batches)]
        after = shared_bytes()
        del iterator
    return found, after - before


@pytest.mark.parametrize("held", [False, True], ids=["as the source", "in a data set"])
@pytest.mark.parametrize("name", VIEWS)
def test_view_is_sent_as_its_memory(name, held, tmp_path):
    """The samples are right, and nothing is sent that is larger than the array beneath."""
    view = VIEWS[name](tmp_path)
    peak = Peak()
    batches, shared = first_batches("keras", Rows(view) if held else view)
    assert peak.growth() < 2 * _BASE_BYTES + _OTHER_BYTES
    assert shared < _BASE_BYTES + _OTHER_BYTES
    for index, batch in enumerate(batches):
        np.testing.assert_array_equal(batch, view[8 * index : 8 * index + 8])


def test_windows_are_not_written_out(front_end):
    """943 MB of windows over 9 MiB."""
    windows = VIEWS["windows"](Path())
    peak = Peak()
    batches, shared = first_batches(front_end, windows, batch_size=32)
    assert peak.growth() < 100 * MIB
    assert shared < 9 * MIB + _OTHER_BYTES
    assert np.concatenate(batches).tolist() == windows[:96].tolist()


@pytest.mark.parametrize(
    "make",
    [
        lambda array: (array[:-1], array[1:]),
        lambda array: (array[:, :1000], array[:, 24:]),
        lambda array: (array.reshape(views.ROWS, 32, 32), array.T.T),
        Pairs,
    ],
    ids=["x and y", "columns", "reshaped", "in a data set"],
)
def test_views_of_one_array_are_sent_once(make):
    source = make(views.base())
    peak = Peak()
    batches, shared = first_batches("keras", source)
    assert shared < _BASE_BYTES + _OTHER_BYTES
    assert peak.growth() < 2 * _BASE_BYTES + _OTHER_BYTES
    if isinstance(source, tuple):
        for batch, expected in zip(batches[1], source, strict=True):
            np.testing.assert_array_equal(batch, expected[8:16])


@pytest.mark.parametrize("held", [False, True], ids=["as the source", "in a data set"])
def test_view_of_a_few_rows_is_sent_alone(held):
    """Of 400 MB that were never written."""
    rows = np.zeros((50_000, 1000))[20_000:20_100]
    peak = Peak()
    batches, shared = first_batches("keras", Rows(rows) if held else rows)
    assert peak.growth() < 3 * _OTHER_BYTES
    assert shared < _OTHER_BYTES
    assert batches[0].shape == (8, 1000)


def test_view_that_is_changed_meanwhile():
    """Workers have the array as it was when they were given it, and the user's own is writeable."""
    array = np.arange(400.0).reshape(40, 10)
    with SafeSequence(array[::2], 5, workers=2, use_multiprocessing=True) as sequence:
        found = np.concatenate(list(batches_of(sequence)))
        array[:] = 0
    assert found[:, 0].tolist() == list(range(0, 400, 20))


def test_view_that_a_process_writes_into():
    """A data set that changes its array in a process changes no other's."""
    array = np.zeros((40, 4))
    first_batches("keras", Writing(array[::2]))
    assert not array.any()


@pytest.mark.full
def test_objects_take_no_processes_unasked():
    """To send 400,000 dicts takes longer than processes save; the first batch is there at once."""
    data_set = Annotated(400_000)
    processes, longest, last = set(), 0.0, time.perf_counter()
    end = last + 4.0
    with SafeSequence(data_set, 16, shuffle=True, workers="auto") as sequence:
        for batch in sequence:
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
            processes |= {*batch[:, -1].tolist()}
            if now > end:
                break
    assert processes == {os.getpid()}
    # Ten times what a batch takes, and what a busy machine may add; to pickle them takes longer.
    assert longest < 1.5
