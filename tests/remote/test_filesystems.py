"""What fsspec knows: the wide fallback, here its file system in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from adapters import RecordError, open_records, pack
from tests.remote.conftest import payloads, written

fsspec = pytest.importorskip("fsspec", reason="the fallback is fsspec's")


@pytest.fixture
def files() -> Iterator[Any]:
    """An empty file system."""
    found = fsspec.filesystem("memory")
    found.store.clear()
    yield found
    found.store.clear()


def test_a_glob_finds_objects_and_leaves_out_indexes(files, tmp_path):
    for name in ("train-0", "train-1"):
        path = written(tmp_path, "tfrecord", [name.encode()], name)
        files.pipe_file(f"/data/{path.name}", path.read_bytes())
        files.pipe_file(f"/data/{name}.idx", path.with_suffix(".idx").read_bytes())
    assert open_records("memory://data/train-*")[:] == [b"train-0", b"train-1"]


def test_nothing_found_says_what_was_asked_for(files):
    with pytest.raises(FileNotFoundError, match=r"no object matches 'memory://data/\*.rec'"):
        open_records("memory://data/*.rec")


def test_a_missing_object_is_named(files):
    with pytest.raises(FileNotFoundError, match=r"memory://data/none.rec"):
        open_records("memory://data/none.rec")


def test_another_version_is_an_error(files, tmp_path):
    path = written(tmp_path, "tfrecord")
    files.pipe_file("/a.tfrecord", path.read_bytes())
    source = open_records("memory://a.tfrecord")
    files.pipe_file("/a.tfrecord", path.read_bytes()[::-1])
    source._files.shards[0].storage.close()
    with pytest.raises(RecordError, match="changed since"):
        source[len(payloads()) // 2]


def test_packing_puts_files_indexes_and_at_last_the_manifest(files):
    images = np.arange(40 * 48, dtype=np.uint8).reshape(40, 4, 4, 3)
    options = {"format": "tfrecord", "encoding": "raw", "shard_bytes": 2000, "seed": None}
    manifest = pack((images, range(40)), "memory://data/train", **options)
    names = [path.rpartition("/")[2] for path in files.find("/data")]
    assert len(manifest.files) > 1
    records = {each.name for each in manifest.files}
    assert set(names) == {*records, *(name[:-8] + "idx" for name in records), "train.json"}
    # What was written last is the newest.
    assert max(files.store.values(), key=lambda each: each.created).path.endswith("train.json")
    with open_records("memory://data/train*.tfrecord", decode="image") as source:
        np.testing.assert_array_equal(np.stack([image for image, _ in source]), images)


def test_packing_for_no_name_is_refused(files):
    with pytest.raises(ValueError, match="out must end in a name"):
        pack((np.zeros((1, 2, 2, 3), np.uint8), [0]), "memory://data/", format="recordio")


def test_an_unknown_kind_names_the_command():
    with pytest.raises(ImportError, match=r"pip install 'loader-adapters\[remote\]'"):
        open_records("nobody-knows://a.rec")
