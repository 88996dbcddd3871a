"""``Lock``: a folder has one training at a time, whose ranks share it."""

from __future__ import annotations

import errno
import fcntl
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.resuming import Lock
from tests.forking import forks

_HOLDER = """
import sys
from pathlib import Path
from adapters.resuming import Lock
from tests.forking import forks
lock = Lock(Path(sys.argv[1]))
lock.take((int(sys.argv[2]), int(sys.argv[3])))
print("ready", flush=True)
sys.stdin.read()
"""


def test_another_process_is_named_and_a_killed_one_holds_nothing(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path), "0", "1"],
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
            lock.take((0, 1))
        with pytest.raises(RuntimeError, match=said):
            lock.take((1, 2))
        holder.send_signal(signal.SIGKILL)
        holder.wait(30)
        lock.take((0, 1))
        assert lock.writes
        lock.release()
    assert [*tmp_path.iterdir()] == []


def test_ranks_share_a_folder_and_rank_0_writes(tmp_path):
    locks = [Lock(tmp_path) for _ in range(3)]
    for rank in (2, 0, 1):
        locks[rank].take((rank, 3))
    assert [lock.writes for lock in locks] == [True, None, None]
    for lock in reversed(locks):
        lock.settle()
    assert [lock.writes for lock in locks] == [True, False, False]
    other = Lock(tmp_path)
    for shard in ((1, 3), (0, 1)):
        with pytest.raises(RuntimeError, match=f"which process {os.getpid()} on"):
            other.take(shard)
    for lock in locks:
        lock.release()
        assert not lock.writes
    other.take((0, 1))
    other.release()
    assert [*tmp_path.iterdir()] == []


def test_a_rank_of_another_number_of_ranks_is_refused(tmp_path):
    """It is another job's; those that run stay as they are, and their end lets it in."""
    locks = [Lock(tmp_path) for _ in range(2)]
    for rank, lock in enumerate(locks):
        lock.take((rank, 2))
    other = Lock(tmp_path)
    with pytest.raises(RuntimeError, match=f"which process {os.getpid()} on"):
        other.take((2, 5))
    for lock in locks:
        lock.settle()
    assert [lock.writes for lock in locks] == [True, False]
    assert not list(tmp_path.glob("*-of-5"))
    for lock in locks:
        lock.release()
    other.take((2, 5))
    other.release()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("shard", [(0, 1), (0, 2), (1, 3)])
def test_what_a_killed_job_has_left_is_removed_by_the_next(shard, tmp_path):
    command = [sys.executable, "-c", _HOLDER, str(tmp_path), "0", "3"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        holder.send_signal(signal.SIGKILL)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {".lock", ".lock-rank0-of-3", ".lock-writer"}
    lock = Lock(tmp_path)
    lock.take(shard)
    lock.settle()
    assert lock.writes
    own = set() if shard[1] == 1 else {f".lock-rank{shard[0]}-of-{shard[1]}", ".lock-writer"}
    assert {path.name for path in tmp_path.iterdir()} == {".lock", *own}
    lock.release()
    assert [*tmp_path.iterdir()] == []


def test_in_a_folder_without_rank_0_one_of_the_others_writes(tmp_path):
    """As each rank, or each machine, may have a folder of its own."""
    locks = [Lock(tmp_path) for _ in range(2)]
    for rank, lock in enumerate(locks, 4):
        lock.take((rank, 8))
        assert lock.writes is None
    for lock in locks:
        lock.settle()
    assert [lock.writes for lock in locks] == [True, False]
    for lock in locks:
        lock.release()


def test_a_folder_that_was_made_in_vain_goes(tmp_path):
    lock = Lock(tmp_path / "new")
    lock.take((0, 1))
    assert (tmp_path / "new").is_dir()
    lock.release()
    assert not (tmp_path / "new").exists()


@forks
def test_a_child_that_was_forked_off_holds_nothing(tmp_path):
    """It neither keeps the folder locked when its parent has died, nor releases it."""
    lock = Lock(tmp_path)
    lock.take((0, 1))
    read, write = os.pipe()
    child = multiprocessing.get_context("fork").Process(target=_waits, args=(lock, tmp_path, read))
    child.start()
    with pytest.raises(RuntimeError, match="one training at a time"):
        Lock(tmp_path).take((0, 1))
    lock.release()
    other = Lock(tmp_path)
    other.take((0, 1))
    other.release()
    os.write(write, b"1")
    child.join(30)
    assert child.exitcode == 0
    os.close(read)
    os.close(write)


def _waits(lock: Lock, path: Path, read: int) -> None:
    assert not lock.writes
    lock.release()
    os.read(read, 1)


def test_a_training_that_was_left_is_taken_over_in_its_thread(tmp_path):
    left, lock = Lock(tmp_path), Lock(tmp_path)
    left.take((0, 1))
    lock.take((0, 1), over=True)
    assert (left.writes, lock.writes) == (False, True)
    lock.release()


def test_a_file_system_without_locks_is_a_warning(tmp_path, monkeypatch, caplog):
    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    lock = Lock(tmp_path)
    with caplog.at_level(logging.WARNING, "adapters"):
        lock.take((0, 1))
    assert lock.writes
    assert f"{tmp_path} can't be locked" in caplog.text
    lock.release()
    ranks = [Lock(tmp_path) for _ in range(2)]
    for rank, each in enumerate(ranks):
        each.take((rank, 2))
    for each in ranks:
        each.settle()
    assert [each.writes for each in ranks] == [True, False]
    assert [*tmp_path.iterdir()] == []
