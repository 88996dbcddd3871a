"""Where bytes lie: memory, open files, changed files, pickling, threads, forks."""

from __future__ import annotations

import gc
import gzip
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from adapters.errors import RecordError
from adapters.records import RecordFiles, storage
from adapters.records.inflation import InflatedFile
from adapters.records.mapping import living
from adapters.records.storage import MappedFile
from tests.records.materials import encoded, written
from tests.records.processes import mapped, run, unnamed

_LIMIT_SECONDS = 30


@pytest.fixture
def shards(tmp_path):
    """Forty files of ten records each, every second one compressed."""
    for number in range(40):
        records = [b"%d %d" % (number, record) for record in range(10)]
        content = encoded("tfrecord", records)
        path = tmp_path / f"{number:02}.tfrecord"
        path.write_bytes(gzip.compress(content) if number % 2 else content)
    return str(tmp_path / "*.tfrecord")


def expected(number: int) -> bytes:
    return b"%d %d" % divmod(number, 10)


def test_a_range_is_read(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    file = MappedFile(path)
    assert [bytes(file.read(*at)) for at in ((0, 3), (8, 5), (10, 1), (20, 1))] == [
        b"012",
        b"89",
        b"",
        b"",
    ]


def test_what_was_read_stays_valid_when_the_file_is_closed_and_gone(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    file = MappedFile(path)
    held = file.read(2, 3)
    file.close()
    path.unlink()
    del file
    assert bytes(held) == b"234"


def test_a_closed_file_is_opened_again_when_it_is_read(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    file = MappedFile(path)
    file.read(0, 1)
    file.close()
    assert bytes(file.read(2, 3)) == b"234"


def test_files_that_nobody_needs_are_unmapped(tmp_path):
    files = RecordFiles(written(tmp_path, "recordio", [b"x"]))
    files.read(0)
    assert mapped(tmp_path) == 1
    del files
    gc.collect()
    assert mapped(tmp_path) == 0


def test_a_file_read_again_and_again_counts_as_one(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_MOST_MAPPED", living() + 2)
    one, other = (
        RecordFiles(written(tmp_path, "recordio", [stem.encode()], stem)) for stem in ("a", "b")
    )
    other.read(0)
    for _ in range(5):
        one.read(0)
        one.shards[0].storage.close()
    one.read(0)
    assert mapped(tmp_path) == 2


@pytest.mark.parametrize("change", [b"0123456789+", b"9876543210"], ids=["size", "content"])
def test_a_file_changed_after_it_was_opened_is_an_error(change, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    file = MappedFile(path)
    path.write_bytes(change)
    os.utime(path, ns=(1, 1))
    with pytest.raises(RecordError, match=r"changed since, .* open it again"):
        file.read(0, 1)


def test_a_file_changed_after_it_was_pickled_is_an_error(tmp_path):
    path = written(tmp_path, "recordio", [b"old"])
    sent = pickle.dumps(RecordFiles(path))
    path.write_bytes(encoded("recordio", [b"newer"]))
    with pytest.raises(RecordError, match="open it again"):
        pickle.loads(sent).read(0)


def test_a_compressed_file_changed_after_it_was_pickled_is_an_error(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(gzip.compress(encoded("tfrecord", [b"old"])))
    sent = pickle.dumps(RecordFiles(path))
    path.write_bytes(gzip.compress(encoded("tfrecord", [b"newer"])))
    with pytest.raises(RecordError, match="open it again"):
        pickle.loads(sent).read(0)


def test_a_file_replaced_by_another_is_read_as_it_was(tmp_path):
    """Until it is unmapped: what has its name now is another file."""
    path = written(tmp_path, "recordio", [b"old"])
    files = RecordFiles(path)
    files.read(0)
    other = written(tmp_path, "recordio", [b"new"], "b")
    os.replace(other, path)
    assert bytes(files.read(0)) == b"old"


def test_files_are_pickled_without_what_is_in_them(shards):
    files = RecordFiles(shards)
    files.read(0)
    sent = pickle.dumps(files)
    copy = pickle.loads(sent)
    assert b"39 9" not in sent
    assert [bytes(copy.read(number)) for number in range(400)] == list(map(expected, range(400)))


def test_threads_that_read_at_once_get_the_right_bytes(shards, monkeypatch):
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


def test_threads_that_close_while_others_read_do_no_harm(shards):
    files, start = RecordFiles(shards), Barrier(4, timeout=_LIMIT_SECONDS)

    def work(closes: bool) -> bool:
        start.wait()
        for number in range(400):
            shard, own = files.locate(number)
            if closes:
                shard.close()
            elif bytes(shard.read(own)) != expected(number):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, [False, True, False, True]))


def test_threads_that_open_at_once_map_a_file_once(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    file, start = MappedFile(path), Barrier(8, timeout=_LIMIT_SECONDS)

    def work(_: int) -> object:
        start.wait()
        return file.whole_view()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(map(id, pool.map(work, range(8))))) == 1


FORKED = """
import os, sys, threading
from adapters.records import RecordFiles, storage
files = RecordFiles(sys.argv[1])
if sys.argv[2] == "mapped":
    files.read(0)
else:
    for shard in files.shards:
        shard.storage._let_go()
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


@pytest.mark.parametrize("state", ["mapped", "unmapped"])
def test_a_forked_process_reads_though_another_thread_was_opening(state, shards):
    assert run(FORKED, shards, state) == "0\n"


def test_an_inflated_file_that_is_closed_takes_no_room(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"0123456789"))
    before = unnamed()
    file = InflatedFile(MappedFile(path))
    file.read(0, 1)
    file.close()
    assert unnamed() == before


def test_an_inflated_file_is_inflated_again_after_close(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"0123456789"))
    file = InflatedFile(MappedFile(path))
    file.close()
    assert bytes(file.read(2, 3)) == b"234"


def test_an_inflated_file_that_nobody_needs_takes_no_room(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"0123456789"))
    before = unnamed()
    InflatedFile(MappedFile(path)).read(0, 1)
    gc.collect()
    assert unnamed() == before


def test_a_file_that_cannot_be_inflated_takes_no_room(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"0123456789")[:11])
    before = unnamed()
    with pytest.raises(RecordError):
        InflatedFile(MappedFile(path))
    gc.collect()
    assert unnamed() == before


def test_another_process_finds_a_relative_path_from_where_it_works(tmp_path, monkeypatch):
    path = written(tmp_path, "recordio", [b"there"])
    monkeypatch.chdir(tmp_path)
    files = RecordFiles(os.path.basename(path))
    monkeypatch.chdir("/")
    assert bytes(pickle.loads(pickle.dumps(files)).read(0)) == b"there"
