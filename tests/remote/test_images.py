"""Images behind URLs: the samples of the local ones, what goes wrong, and a cache of them."""

from __future__ import annotations

import os
import select
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adapters
from adapters import Cache, ImageDecoder, RecordError, materialize, open_images, open_records, pack
from adapters.remote import client_of
from adapters.sources import as_source, files, objectreader
from tests.forking import forks
from tests.remote.conftest import assert_equal, read
from tests.sources.image_folders import jpeg, put

DECODE = ImageDecoder(16, crop="random_resized", flip=True)


def upload(bucket: Any, root: Path) -> None:
    for path in root.rglob("*"):
        if path.is_file():
            bucket.pipe_file(f"/bucket/photos/{path.relative_to(root)}", path.read_bytes())


def names_of(root: Path) -> list[str]:
    return [str(Path(each).relative_to(root)) for each in open_images(root).files]


def serve_photos(server: Any, root: Path) -> list[str]:
    """Have the web server give the images of a folder; their URLs, in their order."""
    server.objects |= {f"photos/{name}": (root / name).read_bytes() for name in names_of(root)}
    return [server.url(f"photos/{name}") for name in names_of(root)]


@pytest.fixture
def listed(server: Any, photos: Path) -> list[str]:
    return serve_photos(server, photos)


def batches(source: Any, **options: Any) -> list[Any]:
    with adapters.SafeSequence(source, 5, shuffle=True, seed=3, **options) as sequence:
        return [[np.array(leaf) for leaf in batch] for batch in sequence]


@pytest.mark.parametrize("end", ["", "/"])
def test_folder_in_a_store_is_that_on_a_disk(bucket, photos, end, caplog):
    put(photos, "ant/deep/1.jpg", "ant/.hidden/1.jpg", "ant/deep.jpg", "loose.jpg", "bee/.2.jpg")
    (photos / "ant/notes.txt").write_text("none")
    upload(bucket, photos)
    here = open_images(photos)
    caplog.clear()
    there = as_source("memory://bucket/photos" + end)
    assert "left out 1 file without an image's ending (1 .txt) and 1 image beside" in caplog.text
    assert list(there.files) == [f"memory://bucket/photos/{name}" for name in names_of(photos)]
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


def test_wrong_folders_are_told(bucket, photos):
    with pytest.raises(FileNotFoundError, match="no object below 'memory://bucket/photos'"):
        open_images("memory://bucket/photos")
    upload(bucket, photos)
    with pytest.raises(ValueError, match="classes must be folders in 'memory://bucket/photos/'"):
        open_images("memory://bucket/photos/", classes=["dog"])


@pytest.mark.timeout(40)
@pytest.mark.parametrize("status", ["501 Not Implemented", "405 Method Not Allowed"])
def test_server_that_refuses_to_list_is_told(server, listed, status):
    with pytest.raises(ValueError, match="where must be a list of URLs or a table for a web ser"):
        open_images(server.url("photos/"))
    server.settings.status = status
    with pytest.raises(ValueError, match="where must be a list of URLs or a table"):
        open_images(server.url("photos/"))
    with pytest.raises(ValueError, match="doesn't list its objects; give a list of URLs"):
        open_records(server.url("photos/*.rec"))


@pytest.mark.parametrize("kind", ["URLs", "labelled", "with local files"])
def test_list_of_urls(listed, photos, kind):
    here = open_images(photos)
    given: Any = {
        "URLs": listed,
        "labelled": list(zip(listed, [here.classes[label] for label in here.labels])),
        "with local files": listed[:9] + list(here.files)[9:],
    }[kind]
    there = open_images(given)
    assert (there.classes, there.labels.tolist()) == (here.classes, here.labels.tolist())
    for number in (7, 20):
        np.testing.assert_array_equal(there[number][0], here[number][0])


@pytest.mark.parametrize(
    ("where", "before"),
    [("photos/a.csv", ""), ("photos/a.lst", "URL"), ("lists/a.csv", "../photos/./"), ("", "")],
    ids=["relative", "URLs", "above", "a local table"],
)
def test_table_of_urls(server, listed, photos, tmp_path, where, before):
    here, names = open_images(photos), names_of(photos)
    paths = listed if before == "URL" else [before + name for name in names]
    text = "".join(f"{path},{label}\n" for path, label in zip(paths, here.labels))
    if where.endswith("lst"):
        rows = enumerate(zip(here.labels, paths))
        text = "".join(f"{number}\t{label}\t{path}\n" for number, (label, path) in rows)
    server.objects[where] = text.encode()
    (tmp_path / "a.csv").write_text(text)
    there = (
        open_images(server.url(where))
        if where
        else open_images(tmp_path / "a.csv", root=server.url("photos"))
    )
    assert there.labels.tolist() == here.labels.tolist()
    np.testing.assert_array_equal(there[5][0], here[5][0])


def test_names_that_urls_escape(server, tmp_path):
    serve_photos(server, put(tmp_path, "big cat/100% #1.jpg"))
    server.objects["photos/train.csv"] = b"filename,class\nbig cat/100% #1.jpg,cat\n"
    table = open_images(server.url("photos/train.csv"))
    assert table[0][0].shape == (20, 30, 3)
    assert open_images(list(table.files)).classes == ["big cat"]


@pytest.mark.parametrize("query", ["", "?sig=secret/x"], ids=["obstore", "fsspec"])
def test_hash_is_a_part_of_a_name(server, tmp_path, loop, query):
    serve_photos(server, put(tmp_path, "c#/1.jpg", "f#/1.jpg"))
    with open_images([server.url(f"photos/{each}#/1.jpg{query}") for each in "cf"]) as source:
        assert source.classes == ["c#", "f#"]
        assert source.files.named(1) == server.url("photos/f#/1.jpg")
        assert source.files[1].endswith(query)
        assert source[1][0].shape == (20, 30, 3)
        assert "secret" not in repr(source.files)
    gone = server.url("photos/gone.jpg")
    with pytest.raises(FileNotFoundError, match="No such object: open the images again") as raised:
        open_images([gone + query])[0]
    assert raised.value.filename == gone


@pytest.mark.parametrize(("workers", "processes", "cached"), [(2, False, False), (1, True, True)])
def test_batches_are_those_of_local_files(
    server, listed, photos, tmp_path, workers, processes, cached
):
    """What is in the cache isn't asked for."""
    there = open_images(listed, decode=DECODE, cache=tmp_path / "cache" if cached else None)
    expected = batches(open_images(photos, decode=DECODE), workers=0)
    for turn in range(2):
        server.counted.ranges.clear()
        assert_equal(batches(there, workers=workers, use_multiprocessing=processes), expected)
        assert not (cached and turn and server.counted.ranges)


@pytest.mark.parametrize("way", ["fill", "samples", "slice"])
def test_batch_is_fetched_at_once(server, listed, way):
    source, numbers = open_images(listed, decode=DECODE if way == "fill" else None), np.arange(16)
    server.settings.latency_seconds = 0.5
    if way == "fill":
        rows = [np.empty((16, *shape), dtype) for shape, dtype in source.leaves]
        assert source.fill(numbers, lambda place: np.random.default_rng(place), rows) == []
    elif way == "samples":
        source.__getitems__(numbers.tolist())
    else:
        assert len(source[:16]) == 16
    assert server.counted.at_once >= 16


def test_fetched_images_are_bounded(listed, photos, monkeypatch):
    here, there = open_images(photos), open_images(listed)
    monkeypatch.setattr(objectreader, "_MOST_HELD_BYTES", 3000)
    there.fetch(np.arange(24))
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


@pytest.mark.parametrize(
    ("content", "said"), [(b"nothing", "byte 0: expected"), (b"", ".*found an empty object")]
)
def test_what_is_no_image_names_the_url(server, listed, content, said):
    server.objects["photos/bee/001.jpg"] = content
    source, place = open_images(listed, decode=DECODE), 8
    for get in (lambda: source[place], lambda: batches(source, workers=0)):
        with pytest.raises(RecordError, match=rf"http://127.*photos/bee/001.jpg, {said}"):
            get()


def test_dead_store_gives_no_block_order(server, listed, monkeypatch):
    """Ranks whose stores answer would have another order."""
    monkeypatch.setenv("ADAPTERS_REMOTE_SECONDS", "0.2")
    source = open_images([*listed, server.url("photos/gone.jpg")])
    assert source.sample_bytes > 1  # What isn't there isn't there for anybody.
    server.settings.down = True
    with pytest.raises(OSError, match="no answer"):
        _ = open_images(listed).sample_bytes


@pytest.mark.parametrize("what", [b"nothing", None])
def test_skip_takes_what_cannot_be_read(server, listed, photos, what):
    expected = open_images(photos, decode=DECODE)
    if what is None:
        del server.objects["photos/bee/001.jpg"]
        (photos / "bee/001.jpg").unlink()
    else:
        server.objects["photos/bee/001.jpg"] = what
        (photos / "bee/001.jpg").write_bytes(what)
    found = batches(open_images(listed, decode=DECODE), workers=0, on_error="skip")
    assert_equal(found, batches(expected, workers=0, on_error="skip"))


def test_failed_read_ahead_is_fetched_again(server, listed, photos, monkeypatch):
    """A store that was down for a while, as files were fetched ahead."""
    source, local = open_images(listed, decode=DECODE), open_images(photos, decode=DECODE)
    with monkeypatch.context() as patched:
        patched.setenv("ADAPTERS_REMOTE_SECONDS", "0.2")
        server.settings.down = True
        source.prefetch(np.arange(len(source)), elsewhere=False)
        for fetch in [*source._files._requests.values()]:
            fetch.wait()
            assert isinstance(fetch.error, ConnectionError)
        server.settings.down = False
    assert source.read(3) == local.read(3)
    assert_equal(batches(source, workers=0), batches(local, workers=0))


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

    with monkeypatch.context() as patch:
        patch.setattr(client, "get_all", held)
        source.fetch(np.arange(24))
        assert begun.wait(20)
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
            assert file.read() == open_images(photos).read(5)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_materialized_images_are_not_fetched_again(server, listed, photos, tmp_path):
    decode = ImageDecoder(16, crop="random", resize_short=18, flip=True)
    expected = batches(open_images(photos, decode=decode), workers=1)
    with open_images(listed, decode=decode) as source:
        decoded = materialize(source, tmp_path / "decoded")
    server.counted.ranges.clear()
    assert_equal(batches(decoded, workers=1), expected)
    assert not server.counted.ranges
    server.objects["photos/bee/001.jpg"] = jpeg(77)
    with pytest.raises(ValueError, match="have changed since"):
        materialize(open_images(listed, decode=decode), tmp_path / "decoded")


def test_cache_of_a_slow_disk(photos, tmp_path, monkeypatch):
    expected = read(open_images(photos))
    assert read(open_images(photos, cache=tmp_path / "cache")) == expected
    monkeypatch.chdir(photos.parent)
    source = open_images(photos.name, cache=tmp_path / "cache")
    unread = source.version
    with monkeypatch.context() as patch:
        patch.setattr("adapters.sources.objectreader.read_file", None)
        assert (read(source), source.version) == (expected, unread)
    (photos / "ant/000.jpg").write_bytes(jpeg(77))
    assert open_images(photos, cache=tmp_path / "cache").read(0) == jpeg(77)


@pytest.mark.parametrize("what", ["bit", "cut", "longer", "empty"])
def test_cache_damage_is_fetched_again(listed, photos, tmp_path, what, caplog):
    cache, expected = Cache(tmp_path / "cache"), read(open_images(photos))
    read(open_images(listed, cache=cache))
    for path in Path(cache.folder).rglob("*.seg"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 8
        path.write_bytes({"bit": data, "cut": data[:50], "longer": data * 2, "empty": b""}[what])
    assert read(open_images(listed, cache=cache)) == expected
    assert "is damaged" in caplog.text
    caplog.clear()
    assert read(open_images(listed, cache=cache)) == expected
    assert not caplog.text
