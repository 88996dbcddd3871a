"""``Lock``: one training at a time writes to a folder, by its rank 0."""

from __future__ import annotations

import errno
import fcntl
import logging
import multiprocessing
import os
import signal
import subprocess
import sys

import pytest

from adapters.resuming import Lock, read_only
from tests.forking import forks

_HOLDER = """
import sys
from pathlib import Path
from adapters.resuming import Lock
lock = Lock(Path(sys.argv[1]))
lock.take(0)
print("ready", flush=True)
sys.stdin.read()
"""


def test_another_process_is_named_and_a_killed_one_holds_nothing(tmp_path):
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


def test_rank_0_writes_and_the_others_read(tmp_path, caplog):
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


def test_a_rank_whose_folder_has_no_rank_0_is_warned_once(tmp_path, caplog):
    lock = Lock(tmp_path / "own")
    lock.take(3)
    with caplog.at_level(logging.WARNING, "adapters"):
        lock.check_writer()
        lock.check_writer()
    assert caplog.text.count(f"rank 3 has found no rank 0 in {tmp_path}/own") == 1
    assert not lock.writes
    lock.release()
    assert [*tmp_path.iterdir()] == []


def test_a_new_empty_folder_is_removed(tmp_path):
    lock = Lock(tmp_path / "new")
    lock.take(0)
    assert (tmp_path / "new").is_dir()
    lock.release()
    assert [*tmp_path.iterdir()] == []


def test_read_only_neither_locks_nor_makes_the_folder(tmp_path):
    lock = Lock(tmp_path / "new")
    with read_only():
        lock.take(0)
    assert not lock.writes
    assert [*tmp_path.iterdir()] == []


@forks
def test_a_forked_child_holds_nothing(tmp_path):
    """The child neither keeps the folder locked after its parent's release, nor releases it."""
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


def test_an_abandoned_training_of_the_same_thread_gives_up_its_lock(tmp_path):
    abandoned, lock = Lock(tmp_path), Lock(tmp_path)
    abandoned.take(0)
    lock.take(0, over=True)
    assert (abandoned.writes, lock.writes) == (False, True)
    lock.release()


def test_a_file_system_without_locks_is_a_warning(tmp_path, monkeypatch, caplog):
    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
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
