"""What ``Resume`` stands on: files that are whole, a lock, a schedule, the order that was saved."""

from __future__ import annotations

import errno
import fcntl
import logging
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from adapters import mix
from adapters.batch.arranging import order_of
from adapters.resuming.checkpoint_dir import CheckpointDir, check_order
from adapters.resuming.lock import Lock, read_only
from adapters.resuming.schedule import Schedule
from tests.forking import forks


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is asked of the disk, in its order: the call, and the path that it is about."""
    seen: list[tuple[str, str]] = []

    def watched(owner: Any, name: str, of: Any) -> None:
        plain = getattr(owner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            seen.append((name, of(arguments)))
            return plain(*arguments, **options)

        monkeypatch.setattr(owner, name, call)

    watched(os, "fsync", lambda given: os.readlink(f"/proc/self/fd/{given[0]}"))
    watched(os, "replace", lambda given: str(given[1]))
    watched(Path, "unlink", lambda given: str(given[0]))
    return seen


NAMES = [f"{epoch:06d}-{0:09d}" for epoch in (1, 2, 3)]


def test_other_files_in_the_folder_are_left_alone(tmp_path):
    folder = CheckpointDir(tmp_path, keep=1)
    others = {tmp_path / name for name in ("000.npz", "split.npz", ".editor.tmp")}
    for each in others:
        each.touch()
    folder.save(NAMES[0], {})
    assert folder.begin(0) == {}
    folder.end()
    assert others <= set(tmp_path.iterdir())


def test_file_is_on_the_disk_before_an_old_one_goes(calls, tmp_path):
    folder = CheckpointDir(tmp_path / "deeper" / "run", keep=1)
    first, second = (str(folder.path / f"{name}.npz") for name in NAMES[:2])
    half = str(folder.path / f".{{}}.{os.getpid()}.tmp")
    folder.save(NAMES[0], {"weights": np.zeros(3)})
    made = [("fsync", str(tmp_path / "deeper")), ("fsync", str(tmp_path))]
    saved = ("fsync", half.format(NAMES[0])), ("replace", first), ("fsync", str(folder.path))
    assert calls == [*made, *saved]
    calls.clear()
    folder.save(NAMES[1], {"weights": np.ones(3)})
    saved = ("fsync", half.format(NAMES[1])), ("replace", second), ("fsync", str(folder.path))
    assert calls == [*saved, ("unlink", first)]


@pytest.fixture
def fsync_fails(monkeypatch: pytest.MonkeyPatch):
    """Makes ``os.fsync`` of folders fail with an error of this number."""
    plain = os.fsync

    def fail(number: int) -> None:
        def fsync(file: int) -> None:
            if stat.S_ISDIR(os.fstat(file).st_mode):
                raise OSError(number, "of a folder")
            plain(file)

        monkeypatch.setattr(os, "fsync", fsync)

    return fail


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_file_system_without_fsync_of_folders(number, tmp_path, fsync_fails):
    """What was saved there is saved, what is too old goes, and the folder is locked."""
    fsync_fails(number)
    folder = CheckpointDir(tmp_path / "run", keep=1)
    for name in NAMES:
        folder.save(name, {"saved": name})
    assert [path.name for path in folder.path.iterdir()] == [f"{NAMES[2]}.npz"]
    lock = Lock(tmp_path / "new")
    lock.take(0)
    with open(tmp_path / "new" / ".lock") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    lock.release()


def test_failed_fsync_of_a_folder_is_an_error(tmp_path, fsync_fails):
    fsync_fails(errno.EIO)
    with pytest.raises(OSError, match="of a folder"):
        CheckpointDir(tmp_path / "run", keep=1).save(NAMES[0], {})


@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
def test_failed_save_leaves_what_was_there(fails, tmp_path, monkeypatch):
    folder = CheckpointDir(tmp_path, keep=1)
    folder.save(NAMES[0], {"weights": np.zeros(3)})

    where = "numpy.lib.format.write_array" if fails == "write" else f"os.{fails}"
    monkeypatch.setattr(where, Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        folder.save(NAMES[1], {"weights": np.ones(3)})
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAMES[0]}.npz"]
    assert folder.newest()["weights"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "name", ["os.listdir", "zipfile._EndRecData", "numpy.lib.format.read_array"]
)
def test_file_that_cannot_be_read_at_present_is_an_error(name, tmp_path, monkeypatch):
    CheckpointDir(tmp_path, keep=1).save(NAMES[0], {"weights": np.zeros(3)})
    monkeypatch.setattr(name, Mock(side_effect=OSError(errno.ESTALE, "Stale file handle")))
    with pytest.raises(OSError, match="Stale"):
        CheckpointDir(tmp_path, keep=1).newest()


def test_folder_without_an_intact_file_is_refused(tmp_path, monkeypatch, caplog):
    folder = CheckpointDir(tmp_path, keep=2)
    folder.save(NAMES[0], {})
    monkeypatch.setattr("adapters.resuming.checkpoint_dir._FORMAT", 2)
    with pytest.raises(ValueError, match=r"format 2, .* got 1: resume with the version"):
        folder.newest()
    for name in NAMES[:2]:
        (tmp_path / f"{name}.npz").write_bytes(b"")
    with pytest.raises(ValueError, match=f"{NAMES[0]}.npz is damaged .* give Resume a new folder"):
        folder.newest()
    assert [NAMES[1] in line and "the one saved before" in line for line in caplog.messages] == [1]


def test_arrays_of_ml_dtypes(tmp_path):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    saved = [np.array(1.5, bfloat16), np.ones((2, 3), bfloat16), np.float32(2.5)]
    folder = CheckpointDir(tmp_path, keep=1)
    folder.save(NAMES[0], {"values": saved})
    found = folder.newest()["values"]
    assert [(each.shape, each.dtype) for each in found] == [(e.shape, e.dtype) for e in saved]
    assert all((one == other).all() for one, other in zip(found, saved))


def test_array_of_records_refused(tmp_path):
    records = np.zeros(3, [("a", "i4"), ("b", "f8")])
    with pytest.raises(TypeError, match="an array of records can't be saved"):
        CheckpointDir(tmp_path, keep=1).save(NAMES[0], {"values": records})


# --- one training at a time writes to a folder, by its rank 0 ---


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who find a folder locked don't wait a second for it."""
    monkeypatch.setattr("adapters.resuming.lock._PATIENCE_SECONDS", 0.1)


_HOLDER = """
import sys
from pathlib import Path
from adapters.resuming.lock import Lock
lock = Lock(Path(sys.argv[1]))
lock.take(0)
print("ready", flush=True)
sys.stdin.read()
"""


def test_lock_names_the_process_and_survives_its_kill(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        lock = Lock(tmp_path)
        said = f"got {tmp_path}, which process {holder.pid} on .* uses: end that one, or give"
        with pytest.raises(RuntimeError, match=said):
            lock.take(0)
        assert not lock.writes
        holder.send_signal(signal.SIGKILL)
        holder.wait(30)
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
        lock.take(0)
        assert lock.writes
        lock.release()
    assert [*tmp_path.iterdir()] == []


def test_lock_of_several_ranks(tmp_path, caplog):
    locks = [Lock(tmp_path) for _ in range(3)]
    with caplog.at_level(logging.WARNING, "adapters"):
        for rank in (2, 0, 1):
            locks[rank].take(rank)
        for lock in locks:
            lock.check_writer()
    assert [lock.writes for lock in locks] == [True, False, False]
    assert not caplog.text
    with pytest.raises(RuntimeError, match=f"which process {os.getpid()} on"):
        Lock(tmp_path).take(0)
    for lock in locks:
        lock.release()
        assert not lock.writes
    assert [*tmp_path.iterdir()] == []


def test_lock_read_only(tmp_path):
    lock = Lock(tmp_path / "new")
    with read_only():
        lock.take(0)
    assert not lock.writes
    assert [*tmp_path.iterdir()] == []


@forks
def test_lock_after_fork(tmp_path):
    lock = Lock(tmp_path)
    lock.take(0)
    read, write = os.pipe()
    child = multiprocessing.get_context("fork").Process(target=_waits, args=(lock, read))
    child.start()
    with pytest.raises(RuntimeError, match="one training at a time"):
        Lock(tmp_path).take(0)
    lock.release()
    other = Lock(tmp_path)
    other.take(0)
    other.release()
    os.write(write, b"1")
    child.join(30)
    assert child.exitcode == 0
    os.close(read)
    os.close(write)


def _waits(lock: Lock, read: int) -> None:
    assert not lock.writes
    lock.release()
    os.read(read, 1)


def test_lock_of_an_abandoned_training(tmp_path):
    abandoned, lock = Lock(tmp_path), Lock(tmp_path)
    abandoned.take(0)
    lock.take(0, over=True)
    assert (abandoned.writes, lock.writes) == (False, True)
    lock.release()


def test_lock_on_a_file_system_without_locks(tmp_path, monkeypatch, caplog):
    refused = OSError(errno.ENOLCK, "No locks available")
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=refused))
    locks = [Lock(tmp_path) for _ in range(2)]
    with caplog.at_level(logging.WARNING, "adapters"):
        for rank, lock in enumerate(locks):
            lock.take(rank)
            lock.check_writer()
    assert [lock.writes for lock in locks] == [True, False]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        f"{tmp_path} can't be locked ([Errno {errno.ENOLCK}] No locks available)"
    ]
    for lock in locks:
        lock.release()
    assert [*tmp_path.iterdir()] == []


# --- how often it is saved, and in which order ---


@pytest.mark.parametrize("every", [np.int64(30), np.float32(30), "30 s"])
def test_schedule_of_any_number(every):
    assert Schedule(every).every == 30.0


def test_schedule_of_batches_is_due_at_multiples():
    schedule, due = Schedule("4 batches"), []
    for batch in range(14):
        if schedule.due:
            due.append(batch)
            if batch != 8:  # A file is still being written.
                schedule.saved()
        schedule.count(1)
    assert due == [0, 4, 8, 12]


SIZE = 1000
LENGTHS = np.arange(SIZE) % 50 + 1
IN_A_BATCH = {"epoch": 0, "batch": 3}


def order(batch_size: int = 10, shard: tuple[int, int] = (0, 1), **options: Any) -> Any:
    return order_of(SIZE, batch_size, True, seed=1, shard=shard, **options)


def swapped(values: np.ndarray, first: int, second: int) -> np.ndarray:
    other = values.copy()
    other[[first, second]] = values[[second, first]]
    return other


@pytest.mark.parametrize("places", [(0, 7), (512, 730)])
@pytest.mark.parametrize("name", ["bucket_by", "weights"])
def test_order_of_two_that_changed_places(name, places):
    """Wherever they are: in an order of 1000 samples few are at the positions that are compared."""
    saved = order(**{name: LENGTHS}).fingerprint()
    check_order(saved, order(**{name: LENGTHS.copy()}).fingerprint(), IN_A_BATCH, "run")
    other = order(**{name: swapped(LENGTHS, *places)}).fingerprint()
    with pytest.raises(ValueError, match=r"order of samples must|checksum of weights, lengths or"):
        check_order(saved, other, IN_A_BATCH, "run")


def test_order_of_a_mix_of_other_lengths():
    """Of which the first epoch is the same, and the second isn't."""
    sources = [mix([np.zeros(30), np.zeros(length)], [1, 1]) for length in (40, 50)]
    one, other = (order_of(len(each), 10, False, source=each).fingerprint() for each in sources)
    with pytest.raises(ValueError, match="the checksum of weights, lengths or sources must be"):
        check_order(one, other, IN_A_BATCH, "run")


def test_order_counted_in_batches():
    saved = order(4, (0, 2)).fingerprint()
    check_order(saved, order(8, (0, 1)).fingerprint(), IN_A_BATCH, "run")
    with pytest.raises(ValueError, match=r"batch_size must be 4, .* got 8"):
        check_order(saved, order(8, (0, 2)).fingerprint(), IN_A_BATCH, "run")
    with pytest.raises(ValueError, match="batch_size times the number of shards must be 8"):
        check_order(saved, order(4, (0, 3)).fingerprint(), IN_A_BATCH, "run")
