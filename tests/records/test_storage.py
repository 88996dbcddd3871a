"""Where bytes lie: memory, maps, changed files, pickling, threads, forks."""

from __future__ import annotations

import gc
import gzip
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from adapters.errors import RecordError
from adapters.records import RecordFiles, storage
from adapters.records.mapping import NoMapError, living
from tests.records.materials import encoded, written


def mapped(folder: Path) -> int:
    """How many files of a folder this process has mapped."""
    return Path("/proc/self/maps").read_text().count(f"{folder}/")


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.check_output(command, text=True, timeout=60)


def unnamed() -> int:
    """How many temporary files without a name this process holds, mapped or open."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    maps = {line.split()[4] for line in lines if line.endswith(" (deleted)")}
    files = [os.path.realpath(file) for file in Path("/proc/self/fd").iterdir()]
    return len(maps) + sum(file.endswith(" (deleted)") for file in files)


_LIMIT_SECONDS = 30


@pytest.fixture
def shards(tmp_path):
    for number in range(40):
        records = [b"%d %d" % (number, record) for record in range(10)]
        content = encoded("tfrecord", records)
        path = tmp_path / f"{number:02}.tfrecord"
        path.write_bytes(gzip.compress(content) if number % 2 else content)
    return str(tmp_path / "*.tfrecord")


def expected(number: int) -> bytes:
    return b"%d %d" % divmod(number, 10)


def test_files_that_nobody_needs_are_unmapped(tmp_path):
    files = RecordFiles(written(tmp_path, "recordio", [b"x"]))
    files.read(0)
    assert mapped(tmp_path) == 1
    del files
    gc.collect()
    assert mapped(tmp_path) == 0


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("change", [b"newer", b"new"], ids=["size", "content"])
@pytest.mark.parametrize("sent", [False, True], ids=["here", "pickled"])
def test_changed_file_is_an_error(sent, change, compress, tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(compress(encoded("tfrecord", [b"old"])))
    files = RecordFiles(path)
    files.shards[0].close()  # As if there were too many files to keep it mapped.
    path.write_bytes(compress(encoded("tfrecord", [change])))
    os.utime(path, ns=(1, 1))
    with pytest.raises(RecordError, match=r"changed since, .* open it again"):
        (pickle.loads(pickle.dumps(files)) if sent else files).read(0)


def test_threads_read_the_right_bytes(shards, monkeypatch):
    monkeypatch.setattr(storage, "_MOST_MAPPED", 2)
    files, start = RecordFiles(shards), Barrier(8, timeout=_LIMIT_SECONDS)

    def work(first: int) -> bool:
        start.wait()
        return all(
            bytes(files.read(number)) == expected(number)
            for number in ((first + 37 * step) % 400 for step in range(800))
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(0, 400, 50)))


FORKED = """
import os, sys, threading
from adapters.records import RecordFiles, storage
files = RecordFiles(sys.argv[1])
for shard in files.shards[1:]:
    shard.close()
files.read(0)
held, done = threading.Event(), threading.Event()
def hold():
    with storage._map_lock:
        held.set()
        done.wait(20)
thread = threading.Thread(target=hold)
thread.start()
held.wait(20)
child = os.fork()
if not child:
    right = all(files.read(n) == b"%d %d" % divmod(n, 10) for n in range(len(files)))
    os._exit(0 if right else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
done.set()
thread.join()
"""


def test_forked_process_reads(shards):
    """Files that are mapped and others, though a thread of the parent was about to map one."""
    assert run(FORKED, shards) == "0\n"


def test_inflated_file_takes_no_room(tmp_path):
    """When it is closed, or nobody needs it, or it can't be inflated."""
    path, before = tmp_path / "a.tfrecord.gz", unnamed()
    path.write_bytes(gzip.compress(encoded("tfrecord", [b"payload"])))
    files = RecordFiles(path)
    for _ in range(2):
        assert bytes(files.read(0)) == b"payload"
        assert unnamed() > before
        files.shards[0].close()
        assert unnamed() == before
    RecordFiles(path).read(0)
    path.write_bytes(path.read_bytes()[:11])
    with pytest.raises(RecordError):
        RecordFiles(path).read(0)
    gc.collect()
    assert unnamed() == before


def test_relative_path_in_another_process(tmp_path, monkeypatch):
    path = written(tmp_path, "recordio", [b"there"])
    monkeypatch.chdir(tmp_path)
    files = RecordFiles(os.path.basename(path))
    monkeypatch.chdir("/")
    assert bytes(pickle.loads(pickle.dumps(files)).read(0)) == b"there"


MANY = """
import os, resource, sys
from concurrent.futures import ThreadPoolExecutor
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
from adapters.records import RecordFiles, storage
storage._MOST_MAPPED = int(sys.argv[2])
files, before = RecordFiles(sys.argv[1]), len(os.listdir("/proc/self/fd"))
with ThreadPoolExecutor(4) as pool:
    held = list(pool.map(files.read, range(len(files))))  # All at once, as a batch does.
assert [bytes(payload) for payload in held] == [b"%d" % n for n in range(400)]
assert len(os.listdir("/proc/self/fd")) <= before + 2, os.listdir("/proc/self/fd")
"""


@pytest.mark.parametrize("most", [20, 1000])
def test_many_files_take_no_descriptors(most, tmp_path):
    """400 files under a limit of 100, a part of each held: a map of one needs no descriptor."""
    for number in range(400):
        content = encoded("recordio" if number % 4 else "tfrecord", [b"%d" % number])
        compress = gzip.compress if number % 8 == 0 else bytes
        (tmp_path / f"{number:03}").write_bytes(compress(content))
    run(MANY, str(tmp_path / "???"), str(most))


def test_only_so_many_files_stay_mapped(tmp_path, monkeypatch):
    for number in range(30):
        written(tmp_path, "recordio", [b"%d" % number], f"{number:03}")
    gc.collect()  # What goes meanwhile makes room.
    monkeypatch.setattr(storage, "_MOST_MAPPED", living() + 10)
    files = RecordFiles(str(tmp_path / "*.rec"))
    assert [bytes(files.read(number)) for number in range(30)] == [b"%d" % n for n in range(30)]
    assert 0 < mapped(tmp_path) <= 10


def no_room(*_) -> None:
    raise NoMapError(12, "no room")


@pytest.mark.parametrize("kind", ["plain", "compressed"])
def test_file_is_read_without_room_for_a_map(kind, tmp_path, monkeypatch):
    path = tmp_path / "a"
    content = encoded("tfrecord", [b"one", b"two"])
    path.write_bytes(content if kind == "plain" else gzip.compress(content))
    files = RecordFiles(path)
    files.shards[0].close()
    monkeypatch.setattr(storage, "Mapping", no_room)
    assert [bytes(files.read(number)) for number in range(2)] == [b"one", b"two"]
