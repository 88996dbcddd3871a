"""``adapters cache``, and the other commands over URLs."""

from __future__ import annotations

import numpy as np
import pytest

from adapters import open_images, open_records, pack
from adapters.cli import main
from adapters.remote import fsspec_client
from tests.remote.conftest import payloads, written
from tests.remote.rangeserver import RangeServer
from tests.sources.image_folders import varied

fsspec = pytest.importorskip("fsspec", reason="memory:// is fsspec's")


@pytest.fixture
def files():
    """What is in fsspec's memory: nothing at first."""
    files = fsspec.filesystem("memory")
    files.store.clear()
    yield files
    files.store.clear()


@pytest.fixture
def pictures(tmp_path, files):
    """A folder of pictures in fsspec's memory."""
    for path in varied(tmp_path / "photos", 12).rglob("*.jpg"):
        files.pipe_file(f"/data/photos/{path.parent.name}/{path.name}", path.read_bytes())
    return "memory://data/photos/"


@pytest.fixture
def url(tmp_path, files):
    """A record file in fsspec's memory, without its index."""
    path = written(tmp_path, "tfrecord", payloads(600))
    files.pipe_file(f"/data/{path.name}", path.read_bytes())
    return f"memory://data/{path.name}"


def test_cache_is_filled_shown_and_cleared(url, tmp_path, told):
    folder = tmp_path / "cache"
    assert "600 records of 1 file" in told("cache", "warm", folder, url, "--limit", "1GB")
    assert f"{url}: 0.9 of 0.9 MiB (100%)" in told("cache", "show", folder)
    assert "0.9 MiB removed" in told("cache", "clear", folder)
    assert ": 0.0 MiB" in told("cache", "show", folder)
    assert "no such folder" in told("cache", "show", tmp_path / "none", status=1)


def test_cache_is_filled_with_pictures(pictures, tmp_path, told, monkeypatch):
    folder = tmp_path / "cache"
    assert "12 images, 0.0 MiB" in told("cache", "warm", folder, pictures, "--limit", "1GB")
    assert f"{pictures}ant/: 0.0 MiB of whole objects" in told("cache", "show", folder)
    monkeypatch.setattr(fsspec_client.FileSystem, "get_all", None)
    with open_images(pictures, cache=folder) as images:
        assert images[11][1] == 2


def test_cache_that_cannot_be_written_to(pictures, tmp_path, told, monkeypatch):
    folder = tmp_path / "cache"
    folder.write_text("a file")
    monkeypatch.setattr(fsspec_client.FileSystem, "get_all", None)
    expected = f"adapters cache: [Errno 17] File exists: '{folder}'"
    assert told("cache", "warm", folder, pictures, status=1).startswith(expected)


def test_cache_that_keeps_nothing_is_status_1(url, tmp_path, caplog):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/objects").write_text("a file")
    assert main(["cache", "warm", str(tmp_path / "cache"), url]) == 1
    assert "can't be written to" in caplog.text


def test_inspect_of_pictures(pictures, tmp_path, told):
    said = told("inspect", pictures, "--count", 1, "--sheet", tmp_path / "a.png")
    assert f"{pictures}: 12 images, classes: 3" in said
    assert f"0: {pictures}ant/000.jpg, " in said
    assert (tmp_path / "a.png").exists()


def test_index_is_written_beside_the_object(url, told):
    assert "memory://data/train.idx: 600 records\n" in told("verify", "--write-index", url)
    with open_records(url) as source:
        assert source[599] == payloads(600)[599]


def test_object_is_verified_and_shown(url, told):
    assert "600 good records, 0 problems" in told("verify", url)
    assert "600 records" in told("inspect", url)


@pytest.mark.parametrize("ending", ["idx", "tfrecord.idx"])
@pytest.mark.parametrize("of", ["itself", "another file", "nothing"])
def test_index_beside_an_object_is_verified(url, tmp_path, say, ending, of):
    written(tmp_path, "tfrecord", payloads(600)[:0:-1] if of == "another file" else payloads(600))
    index = (tmp_path / "train.idx").read_bytes() if of != "nothing" else b"something else"
    fsspec.filesystem("memory").pipe_file(f"/data/train.{ending}", index)
    told = f"memory://data/train.{ending}: doesn't fit {url}: it lists other records"
    status, output, _ = say("verify", url)
    assert (status, told in output) == (of == "another file", of == "another file")


@pytest.mark.parametrize("harm", ["", "missing", "changed", "none"])
def test_manifest_and_its_files_are_verified(url, say, harm):
    images = np.zeros((40, 4, 4, 3), np.uint8)
    options = {"format": "tfrecord", "encoding": "raw", "shard_bytes": 2000}
    pack((images, range(40)), "memory://data/packed", **options)
    files, name = fsspec.filesystem("memory"), "/data/packed-00001-of-00006.tfrecord"
    if harm == "missing":
        files.rm_file(name)
    elif harm == "changed":
        files.pipe_file(name, files.cat_file("/data/packed-00002-of-00006.tfrecord"))
    manifest = "memory://data/none.json" if harm == "none" else "memory://data/packed.json"
    told = {
        "": "40 good records, 0 problems",
        "missing": f"memory:/{name}: No such object",
        "changed": f"memory:/{name}: SHA-256 ",
        "none": "memory://data/none.json: No such object",
    }
    status, output, _ = say("verify", manifest)
    assert (status, told[harm] in output) == (bool(harm), True)


def test_verify_fetches_many_records_at_once(tmp_path):
    pytest.importorskip("obstore", reason="http:// is read by obstore")
    path = written(tmp_path, "tfrecord", payloads(600))
    with RangeServer({path.name: path.read_bytes()}) as server:
        assert main(["verify", server.url(path.name)]) == 0
        assert server.counted.requests < 30
