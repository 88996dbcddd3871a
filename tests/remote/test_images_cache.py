"""A cache of images behind URLs and of slow disks: nothing twice, and never a wrong byte."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import Cache, ImageDecoder, SafeSequence, materialize, open_images
from adapters.remote import wholes
from tests.remote.photos import assert_equal, batches, serve, urls_of
from tests.sources.image_folders import jpeg, varied

DECODE = ImageDecoder(16)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Pictures in the folders of three classes."""
    return varied(tmp_path / "photos", 24)


@pytest.fixture
def listed(server: Any, photos: Path) -> list[str]:
    """Their URLs."""
    serve(server, photos)
    return urls_of(server, photos)


def contents(photos: Path) -> list[bytes]:
    with open_images(photos) as source:
        return [source.read(number) for number in range(len(source))]


def read(source: Any) -> list[bytes]:
    source.bring(np.arange(len(source)))
    return [source.read(number) for number in range(len(source))]


def test_a_second_reader_fetches_nothing(server, listed, photos, tmp_path):
    assert read(open_images(listed, cache=tmp_path / "cache")) == contents(photos)
    server.counted.bytes = 0
    assert read(open_images(listed, cache=str(tmp_path / "cache"))) == contents(photos)
    assert server.counted.bytes == 0


def test_a_second_epoch_asks_for_nothing(server, listed, tmp_path):
    source = open_images(listed, cache=tmp_path / "cache")
    read(source)
    server.counted.requests = 0
    read(source)
    assert server.counted.requests == 0


def test_materialized_pictures_are_not_fetched_again(server, listed, photos, tmp_path):
    decode = ImageDecoder(16, crop="random", resize_short=18, flip=True)
    with open_images(photos, decode=decode) as local:
        expected = [batches(local, workers=1) for _ in range(2)]
    with open_images(listed, decode=decode) as source:
        decoded = materialize(source, tmp_path / "decoded")
    server.counted.ranges.clear()
    for each in expected:
        assert_equal(batches(decoded, workers=1), each)
    assert not server.counted.ranges
    server.objects["photos/bee/001.jpg"] = jpeg(77)
    with (
        open_images(listed, decode=decode) as source,
        pytest.raises(ValueError, match="have changed since"),
    ):
        materialize(source, tmp_path / "decoded")


def test_what_is_used_is_what_is_kept(listed, photos, tmp_path):
    cache = Cache(tmp_path / "cache")
    with open_images(listed, cache=cache) as source:
        source.read(0)
        source.read(1)
    files = list((tmp_path / "cache").rglob("*.seg"))
    (kept,) = cache.objects()
    assert (len(files), kept.url.endswith("/photos/ant/"), kept.size) == (2, True, 0)
    assert cache.used == kept.kept == sum(file.stat().st_blocks * 512 for file in files)


def test_another_version_is_another_object(server, listed, photos, tmp_path):
    cache = tmp_path / "cache"
    read(open_images(listed, cache=cache))
    server.objects["photos/ant/000.jpg"] = jpeg(77)
    expected = [jpeg(77), *contents(photos)[1:]]
    assert read(open_images(listed, cache=cache)) == expected


def test_files_of_a_slow_disk_are_kept(photos, tmp_path, monkeypatch):
    expected = contents(photos)
    assert read(open_images(photos, cache=tmp_path / "cache")) == expected
    source = open_images(photos, cache=tmp_path / "cache")
    monkeypatch.setattr("adapters.sources.objectreader.read_file", None)
    assert read(source) == expected


def test_a_file_of_a_slow_disk_that_changed_is_read_anew(photos, tmp_path):
    read(open_images(photos, cache=tmp_path / "cache"))
    (photos / "ant/000.jpg").write_bytes(jpeg(77))
    assert open_images(photos, cache=tmp_path / "cache").read(0) == jpeg(77)


@pytest.mark.parametrize("what", ["bit", "cut", "longer", "empty"])
def test_a_damaged_file_is_fetched_again(listed, photos, tmp_path, what, caplog):
    cache = Cache(tmp_path / "cache")
    read(open_images(listed, cache=cache))
    for path in Path(cache.folder).rglob("*.seg"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 8
        path.write_bytes({"bit": data, "cut": data[:50], "longer": data * 2, "empty": b""}[what])
    assert read(open_images(listed, cache=cache)) == contents(photos)
    assert "is damaged" in caplog.text
    caplog.clear()
    assert read(open_images(listed, cache=cache)) == contents(photos)
    assert not caplog.text


def test_the_limit_is_kept(listed, photos, tmp_path):
    cache = Cache(tmp_path / "cache", 1 << 20)
    folder = wholes.Wholes(cache)
    for number in range(100):
        folder.keep(listed[0], number.to_bytes(16, "little"), bytes(50_000))
        assert cache.used <= cache.limit
    assert folder.get(listed[0], (99).to_bytes(16, "little")) == bytes(50_000)
    assert folder.get(listed[0], bytes(16)) is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_full_disk_is_done_without(listed, photos, tmp_path, monkeypatch, number, caplog):
    def full(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(wholes.Wholes, "_write", full)
    assert read(open_images(listed, cache=tmp_path / "cache")) == contents(photos)
    assert caplog.text.count("can't be written to") == 1


def test_an_object_without_a_version_is_not_kept(server, listed, photos, tmp_path, monkeypatch):
    from adapters.remote import obstore_client

    head = obstore_client._head
    monkeypatch.setattr(obstore_client, "_head", lambda meta: head(meta)._replace(version=""))
    assert read(open_images(listed, cache=tmp_path / "cache")) == contents(photos)
    assert not list((tmp_path / "cache").rglob("*.seg"))


def test_worker_processes_share_it(server, listed, photos, tmp_path):
    source = open_images(listed, decode=DECODE, cache=tmp_path / "cache")
    expected = batches(open_images(photos, decode=DECODE), workers=0)
    for _ in range(2):
        server.counted.bytes = 0
        found = batches(source, workers=1, use_multiprocessing=True)
        for mine, own in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine[0], own[0])
    assert server.counted.bytes == 0


def test_the_next_blocks_are_fetched_into_it(listed, photos, tmp_path):
    source = open_images(listed, decode=DECODE, cache=tmp_path / "cache")
    with SafeSequence(source, 4, workers=0, shuffle="blocks") as sequence:
        images = sum(len(batch[0]) for batch in sequence)
    assert images == 24
    source.close()


def test_cache_must_be_one(photos):
    with pytest.raises(TypeError, match="cache must be a folder"):
        open_images(photos, cache=5)
