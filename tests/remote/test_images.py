"""Images behind URLs: the samples of the local ones, what goes wrong, and a cache of them."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import (
    Cache,
    ImageDecoder,
    RecordError,
    SafeSequence,
    materialize,
    open_images,
    open_records,
    pack,
)
from adapters.remote import client_of
from adapters.sources import files, objectreader
from tests.forking import forks
from tests.remote.conftest import read
from tests.sources.image_folders import jpeg, put

DECODE = ImageDecoder(16, crop="random_resized", flip=True)


def upload(bucket: Any, root: Path, to: str = "/bucket/photos") -> None:
    """Put all files below a folder into the store."""
    for path in root.rglob("*"):
        if path.is_file():
            bucket.pipe_file(f"{to}/{path.relative_to(root)}", path.read_bytes())


def serve_photos(server: Any, root: Path, prefix: str = "photos/") -> None:
    """Have the web server give all files below a folder."""
    for path in root.rglob("*"):
        if path.is_file():
            server.objects[prefix + str(path.relative_to(root))] = path.read_bytes()


def urls_of(server: Any, root: Path) -> list[str]:
    """Where it gives the images of a folder, in their order."""
    files = open_images(root).files
    return [server.url(f"photos/{Path(each).relative_to(root)}") for each in files]


def batches(source: Any, **options: Any) -> list[Any]:
    """All of an epoch."""
    with SafeSequence(source, 5, shuffle=True, seed=3, **options) as sequence:
        return [[np.array(leaf) for leaf in batch] for batch in sequence]


def assert_equal(found: list[Any], expected: list[Any]) -> None:
    for mine, own in zip(found, expected, strict=True):
        for one, other in zip(mine, own, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("end", ["", "/"])
def test_folder_in_a_store_is_that_on_a_disk(bucket, photos, end, caplog):
    put(photos, "ant/deep/1.jpg", "ant/.hidden/1.jpg", "ant/deep.jpg", "loose.jpg", "bee/.2.jpg")
    (photos / "ant/notes.txt").write_text("none")
    upload(bucket, photos)
    here = open_images(photos)
    caplog.clear()
    there = open_images("memory://bucket/photos" + end)
    assert "left out 1 files that aren't named like images (1 .txt) and 1 images" in caplog.text
    names = [str(Path(each).relative_to(photos)) for each in here.files]
    assert list(there.files) == [f"memory://bucket/photos/{name}" for name in names]
    assert there.classes == here.classes
    np.testing.assert_array_equal(there.labels, here.labels)
    for one, other in zip(there, here, strict=True):
        np.testing.assert_array_equal(one[0], other[0])


def test_block_order_is_that_of_a_disk(bucket, photos, monkeypatch):
    """Some sizes stand for all, the same ones."""
    monkeypatch.setattr(files, "_MEASURED", 3)
    for number in range(7):
        (photos / f"bee/more{number}.jpg").write_bytes(bytes(1 + 1000 * number))
    upload(bucket, photos)
    here, there = open_images(photos), open_images("memory://bucket/photos/")
    assert there.sample_bytes == here.sample_bytes != 0


def test_wrong_folders_are_told(bucket, server, photos):
    with pytest.raises(FileNotFoundError, match="no object below 'memory://bucket/photos'"):
        open_images("memory://bucket/photos")
    upload(bucket, photos)
    with pytest.raises(ValueError, match="classes must be folders in 'memory://bucket/photos/'"):
        open_images("memory://bucket/photos/", classes=["dog"])
    serve_photos(server, photos)
    with pytest.raises(ValueError, match=r"where must be a list of URLs or a table for a web ser"):
        open_images(server.url("photos/"))


@pytest.mark.timeout(40)
@pytest.mark.parametrize("status", ["501 Not Implemented", "405 Method Not Allowed"])
def test_server_that_refuses_to_list_is_told(server, status):
    server.settings.status = status
    with pytest.raises(ValueError, match="where must be a list of URLs or a table"):
        open_images(server.url("photos/"))
    with pytest.raises(ValueError, match="doesn't list its objects; give a list of URLs"):
        open_records(server.url("photos/*.rec"))


@pytest.mark.parametrize("labelled", [False, True])
def test_list_of_urls(server, photos, labelled):
    serve_photos(server, photos)
    here = open_images(photos)
    listed: Any = urls_of(server, photos)
    if labelled:
        listed = list(zip(listed, [here.classes[label] for label in here.labels]))
    there = open_images(listed)
    assert (there.classes, there.labels.tolist()) == (here.classes, here.labels.tolist())
    np.testing.assert_array_equal(there[7][0], here[7][0])


def test_urls_and_local_files_in_one_list(server, photos, tmp_path):
    """And a local table of names that are relative to a URL."""
    serve_photos(server, photos)
    here = open_images(photos)
    names = [str(Path(each).relative_to(photos)) for each in here.files]
    (tmp_path / "train.csv").write_text("".join(f"{name},x\n" for name in names))
    table = open_images(tmp_path / "train.csv", root=server.url("photos"))
    mixed = open_images(urls_of(server, photos)[:3] + list(here.files)[3:6])
    for source in (table, mixed):
        for one, other in zip(source, here):
            np.testing.assert_array_equal(one[0], other[0])


@pytest.mark.parametrize("names", ["relative", "urls", "above"])
@pytest.mark.parametrize("ending", ["csv", "lst"])
def test_table_behind_a_url(server, photos, names, ending):
    serve_photos(server, photos)
    here = open_images(photos)
    paths = [str(Path(each).relative_to(photos)) for each in here.files]
    begin = {"relative": "", "urls": server.url("photos/"), "above": "../photos/./"}[names]
    rows = [(number, here.labels[number], begin + path) for number, path in enumerate(paths)]
    text = "\n".join(f"{number}\t{label}\t{path}" for number, label, path in rows)
    if ending == "csv":
        text = "\n".join(["filename,class", *(f"{path},{label}" for _, label, path in rows)])
    where = ("lists" if names == "above" else "photos") + f"/train.{ending}"
    server.objects[where] = text.encode()
    there = open_images(server.url(where))
    assert there.labels.tolist() == here.labels.tolist()
    np.testing.assert_array_equal(there[5][0], here[5][0])


def test_names_that_urls_escape(server, tmp_path):
    put(tmp_path, "big cat/100% #1.jpg")
    serve_photos(server, tmp_path)
    server.objects["photos/train.csv"] = b"filename,class\nbig cat/100% #1.jpg,cat\n"
    assert open_images(server.url("photos/train.csv"))[0][0].shape == (20, 30, 3)
    (url,) = open_images(server.url("photos/train.csv")).files
    assert open_images([url]).classes == ["big cat"]


@pytest.mark.parametrize("query", ["", "?sig=1"], ids=["obstore", "fsspec"])
def test_hash_is_a_part_of_a_name(server, tmp_path, loop, query):
    for name in ("c#/1.jpg", "f#/1.jpg"):
        put(tmp_path, name)
    serve_photos(server, tmp_path)
    with open_images([server.url(f"photos/{each}#/1.jpg{query}") for each in "cf"]) as source:
        assert source.classes == ["c#", "f#"]
        assert source.files.named(1) == server.url("photos/f#/1.jpg")
        assert source[1][0].shape == (20, 30, 3)


@pytest.mark.parametrize(
    ("workers", "processes", "cached"), [(0, False, False), (2, False, True), (1, True, False)]
)
def test_batches_are_those_of_local_files(server, photos, tmp_path, workers, processes, cached):
    serve_photos(server, photos)
    cache = tmp_path / "cache" if cached else None
    there = open_images(urls_of(server, photos), decode=DECODE, cache=cache)
    expected = batches(open_images(photos, decode=DECODE), workers=0)
    assert_equal(batches(there, workers=workers, use_multiprocessing=processes), expected)


@pytest.mark.parametrize("end", ["", "/"])
def test_sequence_takes_the_url_of_a_folder(bucket, photos, end):
    equal = put(photos / "equal", "a/1.jpg", "b/2.jpg")
    upload(bucket, equal)
    with SafeSequence("memory://bucket/photos" + end, 2) as sequence:
        images, labels = sequence[0]
    assert (images.shape, labels.tolist()) == ((2, 20, 30, 3), [0, 1])


def test_gluon_loader_takes_the_url_of_a_folder(bucket, photos):
    gluon = pytest.importorskip("adapters.gluon", reason="MXNet isn't here", exc_type=ImportError)
    upload(bucket, put(photos / "equal", "a/1.jpg", "b/2.jpg"))
    with gluon.gluon_loader("memory://bucket/photos/", 2) as loader:
        ((images, labels),) = [[each.asnumpy() for each in batch] for batch in loader]
    assert (images.shape, labels.tolist()) == ((2, 20, 30, 3), [0, 1])


class Gate:
    """Holds a client's requests until so many wait at once."""

    def __init__(self, monkeypatch: Any, url: str, wanted: int) -> None:
        self.most = self._now = 0
        self._wanted, self._change = wanted, threading.Condition()
        client, _ = client_of(url)
        get_all = client.get_all

        def held(key: str) -> Any:
            with self._change:
                self._now += 1
                self.most = max(self.most, self._now)
                self._change.notify_all()
                self._change.wait_for(lambda: self.most >= self._wanted, 10)
                self._now -= 1
            return get_all(key)

        monkeypatch.setattr(client, "get_all", held)


@pytest.mark.parametrize("way", ["fill", "samples", "slice"])
def test_batch_is_fetched_at_once(server, photos, monkeypatch, way):
    serve_photos(server, photos)
    source = open_images(urls_of(server, photos), decode=DECODE if way == "fill" else None)
    gate = Gate(monkeypatch, server.url(), 16)
    numbers = np.arange(16)
    if way == "fill":
        rows = [np.empty((16, *shape), dtype) for shape, dtype in source.leaves]
        assert source.fill(numbers, lambda place: np.random.default_rng(place), rows) == []
    elif way == "samples":
        source.__getitems__(numbers.tolist())
    else:
        assert len(source[:16]) == 16
    assert gate.most >= 16


def test_files_are_asked_for_once_an_epoch(server, photos):
    serve_photos(server, photos)
    source = open_images(urls_of(server, photos), decode=DECODE)
    with SafeSequence(source, 5, workers=2, max_queue_size=4, shuffle=True) as sequence:
        list(sequence)
        asked = Counter(name for name, *_ in server.counted.ranges)
    source.close()
    assert len(asked) == 24
    # What is made ahead reaches into the next epoch.
    assert sum(asked.values()) <= 2 * 24


def test_fetched_images_are_bounded(server, photos, monkeypatch):
    serve_photos(server, photos)
    here, there = open_images(photos), open_images(urls_of(server, photos))
    monkeypatch.setattr(objectreader, "_MOST_HELD_BYTES", 3000)
    there.bring(np.arange(24))
    for fetch in list(there._files._requests.values()):
        fetch.wait()
    assert there._files._held_bytes <= 3000
    for one, other in zip(there, here, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
    assert there._files._held_bytes >= 0


def test_pack_images_of_a_store(bucket, photos, tmp_path):
    upload(bucket, photos)
    options: Any = {"format": "tfrecord", "seed": 1}
    pack(photos, tmp_path / "here", **options)
    manifest = pack("memory://bucket/photos/", tmp_path / "there", **options)
    assert manifest.packed == 24
    (here,), (there,) = tmp_path.glob("here*.tfrecord"), tmp_path.glob("there*.tfrecord")
    assert here.read_bytes() == there.read_bytes()


@pytest.mark.parametrize("way", ["sample", "batch"])
def test_what_is_no_image_names_the_url(server, photos, way):
    serve_photos(server, photos)
    listed = urls_of(server, photos)
    source, place = (
        open_images(listed, decode=DECODE),
        listed.index(server.url("photos/bee/001.jpg")),
    )
    server.objects["photos/bee/001.jpg"] = b"nothing"
    with pytest.raises(RecordError, match=r"http://127.*photos/bee/001.jpg, byte 0: expected"):
        source[place] if way == "sample" else batches(source, workers=0)
    server.objects["photos/bee/001.jpg"] = b""
    with pytest.raises(RecordError, match="expected an image, found an empty object"):
        open_images([listed[place]])[0]


def test_missing_image_is_told(server, photos, loop):
    with pytest.raises(FileNotFoundError, match="No such object: open the images again") as raised:
        open_images([server.url("photos/bee/1.jpg?sig=secret")])[0]
    assert raised.value.filename == server.url("photos/bee/1.jpg")


def test_dead_store_gives_no_block_order(server, photos, monkeypatch):
    """Ranks whose stores answer would have another order."""
    monkeypatch.setenv("ADAPTERS_REMOTE_SECONDS", "0.2")
    serve_photos(server, photos)
    source = open_images([*urls_of(server, photos), server.url("photos/gone.jpg")])
    assert source.sample_bytes > 1  # What isn't there isn't there for anybody.
    server.settings.down = True
    with pytest.raises(OSError, match="no answer"):
        _ = open_images(urls_of(server, photos)).sample_bytes


@pytest.mark.parametrize("what", [b"nothing", None])
def test_skip_takes_what_cannot_be_read(server, photos, what):
    serve_photos(server, photos)
    listed = urls_of(server, photos)
    if what is None:
        del server.objects["photos/bee/001.jpg"]
    else:
        server.objects["photos/bee/001.jpg"] = what
        (photos / "bee/001.jpg").write_bytes(what)
    expected = open_images(photos, decode=DECODE)
    if what is None:
        (photos / "bee/001.jpg").unlink()
    found = batches(open_images(listed, decode=DECODE), workers=0, on_error="skip")
    assert_equal(found, batches(expected, workers=0, on_error="skip"))


@pytest.mark.parametrize("asked", ["one", "batch"])
def test_failed_read_ahead_is_fetched_again(server, photos, monkeypatch, asked):
    """A store that was down for a while, as files were fetched ahead."""
    serve_photos(server, photos)
    with open_images(photos, decode=DECODE) as local:
        expected = batches(local, workers=0)
    source = open_images(urls_of(server, photos), decode=DECODE)
    numbers = np.arange(len(source))
    with monkeypatch.context() as patched:
        patched.setenv("ADAPTERS_REMOTE_SECONDS", "0.2")
        server.settings.down = True
        source.expect(numbers, elsewhere=False)
        for fetch in [*source._files._requests.values()]:
            fetch.wait()
            assert isinstance(fetch.error, ConnectionError)
        server.settings.down = False
    if asked == "one":
        assert source.read(3) == Path(open_images(photos).files[3]).read_bytes()
    else:
        assert_equal(batches(source, workers=0), expected)
    assert source._files._ahead == (len(source) - 1 if asked == "one" else 0)


def test_object_changed_since_it_was_listed(bucket, photos, monkeypatch):
    def tagged(named: str) -> Any:
        """The method of the store, which tells ETags."""
        method = getattr(type(bucket), named)

        def told(self: Any, path: str, *arguments: Any, **options: Any) -> Any:
            found = method(self, path, *arguments, **options)
            for each in found.values() if named == "find" else [found]:
                if each["type"] == "file":
                    each["ETag"] = str(hash(self.store[each["name"]].getvalue()))
            return found

        return told

    upload(bucket, photos)
    for named in ("find", "info"):
        monkeypatch.setattr(type(bucket), named, tagged(named))
    source = open_images("memory://bucket/photos/")
    bucket.pipe_file("/bucket/photos/ant/000.jpg", jpeg(77))
    with pytest.raises(RecordError, match="found one that was changed since"):
        source[0]
    assert source[1][1] == 0


def test_secrets_are_not_shown(server, photos):
    source = open_images([server.url("photos/bee/1.jpg?sig=secret/x")])
    assert "secret" not in repr(source.files) + source.files.named(0)
    assert source.files[0].endswith("?sig=secret/x")
    assert source.classes == ["bee"]


@forks
def test_forked_process_waits_for_nothing(bucket, photos, monkeypatch):
    upload(bucket, photos)
    source = open_images("memory://bucket/photos/")
    client, _ = client_of("memory://bucket/photos/")
    get_all, begun, may_go_on = client.get_all, threading.Event(), threading.Event()

    def held(key: str) -> Any:
        begun.set()
        assert may_go_on.wait(20)
        return get_all(key)

    monkeypatch.setattr(client, "get_all", held)
    source.bring(np.arange(24))
    assert begun.wait(20)
    monkeypatch.setattr(client, "get_all", get_all)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, source.read(5))
        os._exit(0)
    may_go_on.set()
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as file:
            assert select.select([file], [], [], 20)[0], "the child waits"
            assert file.read() == Path(open_images(photos).files[5]).read_bytes()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.fixture
def listed(server: Any, photos: Path) -> list[str]:
    """Their URLs."""
    serve_photos(server, photos)
    return urls_of(server, photos)


def contents(photos: Path) -> list[bytes]:
    with open_images(photos) as source:
        return read(source)


def test_materialized_images_are_not_fetched_again(server, listed, photos, tmp_path):
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


def test_cache_of_a_slow_disk(photos, tmp_path, monkeypatch):
    expected = contents(photos)
    assert read(open_images(photos, cache=tmp_path / "cache")) == expected
    source = open_images(photos, cache=tmp_path / "cache")
    with monkeypatch.context() as patch:
        patch.setattr("adapters.sources.objectreader.read_file", None)
        assert read(source) == expected
    (photos / "ant/000.jpg").write_bytes(jpeg(77))
    assert open_images(photos, cache=tmp_path / "cache").read(0) == jpeg(77)


@pytest.mark.parametrize("what", ["bit", "cut", "longer", "empty"])
def test_cache_damage_is_fetched_again(listed, photos, tmp_path, what, caplog):
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


def test_cache_is_shared_by_processes(server, listed, photos, tmp_path):
    source = open_images(listed, decode=ImageDecoder(16), cache=tmp_path / "cache")
    expected = batches(open_images(photos, decode=ImageDecoder(16)), workers=0)
    for _ in range(2):
        server.counted.bytes = 0
        found = batches(source, workers=1, use_multiprocessing=True)
        for mine, own in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine[0], own[0])
    assert server.counted.bytes == 0
