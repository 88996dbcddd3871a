"""The cache: what it keeps, what it lets go of, and that it is never the cause of a wrong byte."""

from __future__ import annotations

import errno
import itertools
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import numpy as np
import pytest

from adapters import Cache, open_records
from adapters.records import region
from adapters.records.region import CachedRegion
from adapters.remote import Head, segments
from adapters.remote import cache as caching
from adapters.remote.cache import cache_of
from adapters.remote.fsspec_client import FileSystem
from tests.records.materials import encoded
from tests.remote.conftest import COUNT, opened, publish, read


@pytest.fixture
def url(server, tmp_path, expected):
    return publish(server, tmp_path, "records", expected)[0]


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        (5_000_000, 5_000_000),
        (np.int64(10**9), 10**9),
        ("200GB", 200 * 10**9),
        ("1.5 GiB", 3 << 29),
        ("2mb", 2_000_000),
        ("many", ValueError),
        (5, ValueError),
        (None, TypeError),
        (2.5, TypeError),
    ],
)
def test_limit_is_bytes_or_a_text(given, limit, tmp_path):
    if isinstance(limit, int):
        found = Cache(tmp_path, given).limit
        assert (type(found), found) == (int, limit)
        return
    with pytest.raises(limit, match="limit must be"):
        Cache(tmp_path, given)


def test_cache_is_a_folder_and_pickles(tmp_path):
    assert repr(cache_of(str(tmp_path))) == repr(Cache(tmp_path))
    sent = pickle.loads(pickle.dumps(Cache(tmp_path, "2GB")))
    assert (sent.folder, sent.limit) == (str(tmp_path), 2 * 10**9)
    assert Cache(tmp_path).clear() == 0
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TypeError, match="cache must be a folder"):
        cache_of(5)


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_folder_that_others_may_write_to_is_refused(tmp_path, mode, monkeypatch):
    tmp_path.chmod(mode)
    with pytest.raises(ValueError, match=rf"writable by no one else.* mode {mode:o}: run chmod"):
        Cache(tmp_path)
    tmp_path.chmod(0o755)
    assert Cache(tmp_path / "new").used == 0
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700  # Before another user does.
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    found = rf"must belong to this user .* of user {user} with mode \d+: give a folder of your own"
    with pytest.raises(ValueError, match=found):
        Cache(tmp_path)


def test_cache_keeps_what_is_read_in_private_folders(server, url, tmp_path):
    """A fifth of the records take a fifth of the room."""
    cache, before = Cache(tmp_path / "cache"), os.umask(0)
    try:
        open_records(url, cache=cache).__getitems__(list(range(COUNT // 5)))
    finally:
        os.umask(before)
    whole = len(server.objects["train.tfrecord"])
    assert 0.15 * whole < cache.used < 0.3 * whole
    folders = [tmp_path / "cache", *(tmp_path / "cache").rglob("*/")]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders if folder.is_dir()} == {0o700}


@pytest.mark.parametrize("pattern", ["objects/*/*.seg", "lock"])
def test_symbolic_links_are_not_followed(url, tmp_path, expected, pattern):
    cache = Cache(tmp_path / "cache")
    assert open_records(url, cache=cache)[:] == expected
    cache.evict()
    (file,) = (tmp_path / "cache").glob(pattern)
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    file.unlink()
    file.symlink_to(victim)
    assert open_records(url, cache=Cache(tmp_path / "cache"))[:] == expected
    cache.evict()
    assert victim.read_bytes() == b"precious"


def test_second_reader_fetches_nothing(server, what, urls, tmp_path, expected):
    """But another version is another object, if only its bytes differ."""
    with opened(what, urls, cache=tmp_path / "cache") as source:
        assert read(source) == expected
    server.counted.ranges.clear()
    with opened(what, urls, cache=str(tmp_path / "cache")) as source:
        assert read(source) == expected
    assert [name for name, _, _ in server.counted.ranges if not name.endswith(".idx")] == []
    others = [each[::-1] for each in expected]
    publish(server, tmp_path, what, others)
    with opened(what, urls, cache=tmp_path / "cache") as source:
        assert read(source) == others


def test_limit_is_kept(what, urls, tmp_path, expected):
    cache = Cache(tmp_path / "cache", 1 << 20)
    with opened(what, urls, cache=cache) as source:
        for some in np.split(np.random.default_rng(0).permutation(COUNT), 40):
            assert read(source, some) == [expected[number] for number in some]
            assert 0 < cache.used <= cache.limit


def test_file_larger_than_the_limit_is_fetched_once(bucket, tmp_path, monkeypatch, caplog):
    bucket.pipe_file("/b/a.rec", content := encoded("recordio", [b"1" * 50_000] * 200))
    fetched, get = [], FileSystem.get
    monkeypatch.setattr(
        FileSystem, "get", lambda *given: fetched.append(get(*given)) or fetched[-1]
    )
    cache = Cache(tmp_path, 4 << 20)
    with open_records("memory://b/a.rec", cache=cache) as source:
        assert sum(map(len, fetched)) <= len(content) + (64 << 10)
        source.fetch(np.arange(20))
        assert not cache.has_failed
        source.fetch(np.arange(100))
    assert "its limit of 4194304 bytes is too small to read" in caplog.text
    assert sum(map(len, fetched)) < 2 * len(content)


def kept(cache: Cache, name: str) -> Path:
    url, head = f"s3://b/{name}", Head(1 << 16, "1", 0)
    CachedRegion(cache, url, head).put(0, b"1" * (1 << 16))
    return Path(cache.segment(url, head, 0))


def test_limit_is_kept_by_processes_that_write_little(tmp_path):
    """Each begins anew with how much it has written."""
    for place in range(40):
        kept(cache := Cache(tmp_path, 1 << 20), str(place))
    assert cache.used <= cache.limit


def test_clear_does_not_hurt_readers(url, tmp_path, expected):
    cache = Cache(tmp_path / "cache")
    source = open_records(url, cache=cache)
    held = [source._files.read(number) for number in range(0, COUNT, 7)]
    assert cache.clear() > 0
    assert [bytes(each) for each in held] == expected[::7]
    assert source[:] == expected


@pytest.mark.parametrize("place", ["page", "table", "both zeros"])
def test_damaged_page_is_fetched_again(server, url, tmp_path, expected, place, caplog):
    cache, size = Cache(tmp_path / "cache"), len(server.objects["train.tfrecord"])
    assert open_records(url, cache=cache)[:] == expected
    (path,) = Path(cache.objects()[0].folder).glob("*.seg")
    page = segments.PAGE_BYTES
    data = bytearray(path.read_bytes())
    if place == "both zeros":  # As after a loss of power.
        data[: 20 * page] = bytes(20 * page)
    else:
        data[5 * page + 17 if place == "page" else -(-size // page) * page + 8 * 5] ^= 4
    path.write_bytes(data)
    server.counted.bytes = 0
    assert open_records(url, cache=cache)[:] == expected
    assert 0 < server.counted.bytes < size
    assert "damaged page" in caplog.text


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_full_disk_is_done_without(what, urls, tmp_path, expected, monkeypatch, number, caplog):
    def full(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(region, "write_all", full)
    monkeypatch.setattr(caching, "_describe", full)
    with opened(what, urls, cache=tmp_path / "cache") as source:
        assert read(source) == expected
    assert caplog.text.count("can't be written to") == 1
    assert os.strerror(number) in caplog.text


def test_local_file_of_the_same_size_and_time_is_read_again(what, tmp_path):
    path = tmp_path / {"records": "a.tfrecord", "images": "a.jpg"}[what]
    for content in (b"first", b"other"):
        path.write_bytes(encoded("tfrecord", [content]) if what == "records" else content)
        os.utime(path, ns=(1, 1))
        with opened(what, [str(path)], cache=tmp_path / "cache") as source:
            os.chmod(path, 0o600)  # No other content, so an open source is still read.
            assert read(source) == [content]
    kept = {each.url for each in Cache(tmp_path / "cache").objects()}
    assert what == "images" or kept == {str(path)}


HOLDING = """
import os, sys
from adapters.remote.privatefiles import locked
with locked(sys.argv[1], wait=True):
    os.fork()
    os.write(1, b"1")
    os.read(0, 1)  # Until the test is over, or this process is killed.
"""


def test_least_recently_used_goes_first(tmp_path):
    """One process evicts at a time; the fork of one that was killed doesn't keep its lock."""
    cache = Cache(tmp_path)
    first, second = (kept(cache, name) for name in "ab")
    os.utime(second, ns=(1, 1))
    command = [sys.executable, "-c", HOLDING, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout.read(2) == b"11"
        cache.evict(1)
        assert second.exists()
        parent.kill()
        parent.wait(20)
        cache.evict(1)
        assert (first.exists(), second.exists()) == (True, False)
        parent.stdin.close()
        assert parent.stdout.read() == b"", "the child has ended"


def test_what_cannot_be_cleared_is_an_error(tmp_path):
    cache = Cache(tmp_path)
    kept(cache, "a")
    (tmp_path / "lock").unlink(missing_ok=True)
    (tmp_path / "lock").mkdir()
    with pytest.raises(PermissionError, match="must be writable to be emptied"):
        cache.clear()
    assert cache.used


FOREIGN = [
    "objects/cars/1.jpg",
    "objects/0f/5e8a",
    f"objects/{'a' * 32}/mine.bin",
    f"objects/{'b' * 32}.jpg",
    f"objects/{'c' * 32}/index/b.npy",
    "decoded/features.npy",
    "decoded/0001.seg",
    "decoded/object.json",
    "photos/1.jpg",
]


@pytest.mark.parametrize("used", [False, True])
def test_files_of_others_stay(used, tmp_path):
    """As in .git, which has a folder ``objects``, too."""
    for name in FOREIGN:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    cache = Cache(tmp_path)
    if used:
        kept(cache, "a")
    cache.clear()
    assert cache.objects() == []
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files - {"lock"} == set(FOREIGN)


def test_full_disk_is_tried_again(url, tmp_path, expected, monkeypatch):
    answers = itertools.chain([OSError(errno.ENOSPC, "full")], itertools.repeat(DEFAULT))
    full_once = Mock(wraps=segments.write_all, side_effect=answers)
    monkeypatch.setattr(region, "write_all", full_once)
    monkeypatch.setattr(Cache, "evict", lambda self, least=0: None)
    with open_records(url, cache=tmp_path / "cache") as source:
        assert source[:] == expected
        assert source._files.shards[0].storage.cache is not None


def test_pages_of_another_crc_are_fetched_again(server, url, tmp_path, expected, monkeypatch):
    """zlib's are of a process without google-crc32c and without the kernel."""
    with monkeypatch.context() as patch:
        patch.setattr(segments, "load", lambda: None)
        patch.setattr(segments, "_crc32c", None)
        assert open_records(url, cache=tmp_path / "cache")[:] == expected
    server.counted.bytes = 0
    assert open_records(url, cache=tmp_path / "cache")[:] == expected
    assert server.counted.bytes > 0
