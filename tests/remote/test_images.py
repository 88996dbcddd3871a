"""Images behind URLs: the samples of the local ones, many requests at once."""

from __future__ import annotations

import csv
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import SafeSequence, open_images, open_records, pack
from adapters.sources import files, objectreader
from tests.remote.photos import DECODE, assert_equal, batches, serve, upload, urls_of
from tests.sources.image_folders import put

fsspec = pytest.importorskip("fsspec", reason="the store of these tests is fsspec's memory")

# --- where images are ---


@pytest.mark.parametrize("end", ["", "/"])
def test_a_folder_in_a_store_is_that_on_a_disk(bucket, photos, end):
    put(photos, "ant/deep/1.jpg", "ant/.hidden/1.jpg", "ant/deep.jpg", "loose.jpg", "bee/.2.jpg")
    (photos / "ant/notes.txt").write_text("none")
    upload(bucket, photos)
    here, there = open_images(photos), open_images("memory://bucket/photos" + end)
    names = [str(Path(each).relative_to(photos)) for each in here.files]
    assert list(there.files) == [f"memory://bucket/photos/{name}" for name in names]
    assert there.classes == here.classes
    np.testing.assert_array_equal(there.labels, here.labels)
    for one, other in zip(there, here, strict=True):
        np.testing.assert_array_equal(one[0], other[0])


def test_images_held_in_memory_leave_the_others_to_the_store(bucket, photos):
    upload(bucket, photos)
    there = open_images("memory://bucket/photos", decode=DECODE)
    held = there.held(np.array([0]))
    for number in range(2):
        assert bytes(held.read(number)) == bytes(there.read(number))


def test_the_order_in_blocks_is_that_of_a_disk(bucket, photos, monkeypatch):
    """Some sizes stand for all, the same ones."""
    monkeypatch.setattr(files, "_MEASURED", 3)
    for number in range(7):
        (photos / f"bee/more{number}.jpg").write_bytes(bytes(1 + 1000 * number))
    upload(bucket, photos)
    here, there = open_images(photos), open_images("memory://bucket/photos/")
    assert there.sample_bytes == here.sample_bytes != 0


def test_what_is_left_out_is_said_as_of_a_disk(bucket, photos, caplog):
    put(photos, "loose.jpg")
    (photos / "ant/notes.txt").write_text("none")
    upload(bucket, photos)
    open_images("memory://bucket/photos/", classes=["ant", "bee"])
    assert "left out 1 files that aren't named like images (1 .txt) and 1 images" in caplog.text


def test_a_class_that_is_not_there_is_told(bucket, photos):
    upload(bucket, photos)
    with pytest.raises(ValueError, match="classes must be folders in 'memory://bucket/photos/'"):
        open_images("memory://bucket/photos/", classes=["dog"])


def test_a_folder_of_nothing_is_told(bucket):
    with pytest.raises(FileNotFoundError, match="no object below 'memory://bucket/photos'"):
        open_images("memory://bucket/photos")


def test_a_web_server_that_does_not_list_is_told_of(server, photos):
    serve(server, photos)
    with pytest.raises(ValueError, match=r"where must be a list of URLs or a table for a web ser"):
        open_images(server.url("photos/"))


class Refusing(BaseHTTPRequestHandler):
    """A web server that knows no method to list."""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        """It has nothing, either."""
        self.send_error(404)


@pytest.mark.parametrize("status", [501, 405])
def test_a_web_server_that_refuses_to_list_is_told_of_at_once(status):
    refusing = type("Refusing", (Refusing,), {"do_PROPFIND": lambda self: self.send_error(status)})
    with ThreadingHTTPServer(("127.0.0.1", 0), refusing) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        begun = time.monotonic()
        try:
            url = f"http://127.0.0.1:{server.server_port}/photos/"
            with pytest.raises(ValueError, match="where must be a list of URLs or a table"):
                open_images(url)
            with pytest.raises(ValueError, match="doesn't list its objects; give a list of URLs"):
                open_records(url + "*.rec")
        finally:
            server.shutdown()
            thread.join()
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("labelled", [False, True])
def test_a_list_of_urls(server, photos, labelled):
    serve(server, photos)
    here = open_images(photos)
    listed: Any = urls_of(server, photos)
    if labelled:
        listed = list(zip(listed, [here.classes[label] for label in here.labels]))
    there = open_images(listed)
    assert (there.classes, there.labels.tolist()) == (here.classes, here.labels.tolist())
    np.testing.assert_array_equal(there[7][0], here[7][0])


def test_urls_and_local_files_in_one_list(server, photos):
    serve(server, photos)
    here = open_images(photos)
    mixed = urls_of(server, photos)[:3] + list(here.files)[3:6]
    for one, other in zip(open_images(mixed), here):
        np.testing.assert_array_equal(one[0], other[0])


@pytest.mark.parametrize("names", ["relative", "urls", "above"])
@pytest.mark.parametrize("ending", ["csv", "lst"])
def test_a_table_behind_a_url(server, photos, names, ending):
    serve(server, photos)
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


def test_a_local_table_of_relative_names_below_a_url(bucket, photos, tmp_path):
    upload(bucket, photos)
    here = open_images(photos)
    with open(tmp_path / "train.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows((Path(each).relative_to(photos), "x") for each in here.files)
    there = open_images(tmp_path / "train.csv", root="memory://bucket/photos")
    np.testing.assert_array_equal(there[5][0], here[5][0])


def test_a_frame_of_urls(server, photos):
    pandas = pytest.importorskip("pandas", reason="a table of pandas")
    serve(server, photos)
    frame = pandas.DataFrame({"filename": urls_of(server, photos), "class": ["x"] * 24})
    assert open_images(frame)[3][1] == 0


def test_names_that_urls_escape(server, tmp_path):
    put(tmp_path, "big cat/100% #1.jpg")
    serve(server, tmp_path)
    server.objects["photos/train.csv"] = b"filename,class\nbig cat/100% #1.jpg,cat\n"
    assert open_images(server.url("photos/train.csv"))[0][0].shape == (20, 30, 3)
    (url,) = open_images(server.url("photos/train.csv")).files
    assert open_images([url]).classes == ["big cat"]


@pytest.mark.parametrize("query", ["", "?sig=1"], ids=["obstore", "fsspec"])
def test_a_hash_is_a_part_of_a_name(server, tmp_path, loop, query):
    for name in ("c#/1.jpg", "f#/1.jpg"):
        put(tmp_path, name)
    serve(server, tmp_path)
    with open_images([server.url(f"photos/{each}#/1.jpg{query}") for each in "cf"]) as source:
        assert source.classes == ["c#", "f#"]
        assert source.named(1) == server.url("photos/f#/1.jpg")
        assert source[1][0].shape == (20, 30, 3)


# --- batches ---


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize(("workers", "processes"), [(0, False), (2, False), (1, True)])
def test_batches_are_those_of_local_files(server, photos, tmp_path, workers, processes, cached):
    serve(server, photos)
    cache = tmp_path / "cache" if cached else None
    there = open_images(urls_of(server, photos), decode=DECODE, cache=cache)
    expected = batches(open_images(photos, decode=DECODE), workers=0)
    assert_equal(batches(there, workers=workers, use_multiprocessing=processes), expected)


@pytest.mark.parametrize("end", ["", "/"])
def test_a_sequence_takes_the_url_of_a_folder(bucket, photos, end):
    equal = put(photos / "equal", "a/1.jpg", "b/2.jpg")
    upload(bucket, equal)
    with SafeSequence("memory://bucket/photos" + end, 2) as sequence:
        images, labels = sequence[0]
    assert (images.shape, labels.tolist()) == ((2, 20, 30, 3), [0, 1])


def test_a_gluon_loader_takes_the_url_of_a_folder(bucket, photos):
    gluon = pytest.importorskip("adapters.gluon", reason="MXNet isn't here", exc_type=ImportError)
    upload(bucket, put(photos / "equal", "a/1.jpg", "b/2.jpg"))
    with gluon.gluon_loader("memory://bucket/photos/", 2) as loader:
        ((images, labels),) = [[each.asnumpy() for each in batch] for batch in loader]
    assert (images.shape, labels.tolist()) == ((2, 20, 30, 3), [0, 1])


class Gate:
    """Holds a client's requests until so many wait at once."""

    def __init__(self, monkeypatch: Any, url: str, wanted: int) -> None:
        from adapters.remote.clients import client_of

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
def test_a_batch_is_fetched_at_once(server, photos, monkeypatch, way):
    serve(server, photos)
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


def test_each_file_is_asked_for_once_an_epoch(server, photos):
    serve(server, photos)
    source = open_images(urls_of(server, photos), decode=DECODE)
    with SafeSequence(source, 5, workers=2, max_queue_size=4, shuffle=True) as sequence:
        list(sequence)
        asked = Counter(name for name, *_ in server.counted.ranges)
    source.close()
    assert len(asked) == 24
    # What is made ahead reaches into the next epoch.
    assert sum(asked.values()) <= 2 * 24


def test_what_is_expected_is_bounded(server, photos, monkeypatch):
    serve(server, photos)
    server.settings.latency_seconds = 0.5  # Nothing is there before it is looked at.
    source = open_images(urls_of(server, photos))
    monkeypatch.setattr(objectreader, "_MOST_EXPECTED_BYTES", 3 * objectreader._GUESSED_BYTES)
    source.expect(np.arange(24), elsewhere=False)
    assert len(source._reader._requests) == 3
    source.expect(np.arange(24), elsewhere=False)
    assert len(source._reader._requests) == 3
    source[:3]
    source.expect(np.arange(10, 12), elsewhere=False)
    assert len(source._reader._requests) == 2
    source.close()
    assert not source._reader._requests


def test_what_is_held_is_bounded_and_fetched_again(server, photos, monkeypatch):
    serve(server, photos)
    here, there = open_images(photos), open_images(urls_of(server, photos))
    monkeypatch.setattr(objectreader, "_MOST_HELD_BYTES", 3000)
    there.bring(np.arange(24))
    for fetch in list(there._reader._requests.values()):
        fetch.wait()
    assert there._reader._held_bytes <= 3000
    for one, other in zip(there, here, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
    assert there._reader._held_bytes >= 0


# --- packing ---


def test_packing_images_of_a_store(bucket, photos, tmp_path):
    upload(bucket, photos)
    options: Any = {"format": "tfrecord", "seed": 1}
    pack(photos, tmp_path / "here", **options)
    manifest = pack("memory://bucket/photos/", tmp_path / "there", **options)
    assert manifest.packed == 24
    (here,), (there,) = tmp_path.glob("here*.tfrecord"), tmp_path.glob("there*.tfrecord")
    assert here.read_bytes() == there.read_bytes()


@pytest.mark.parametrize("seed", [None, 1])
def test_pictures_that_are_packed_are_fetched_at_once(server, photos, tmp_path, monkeypatch, seed):
    serve(server, photos)
    gate = Gate(monkeypatch, server.url(), 16)
    with open_images(urls_of(server, photos)) as source:
        pack(source, tmp_path / "train", format="recordio", workers=1, seed=seed)
    assert gate.most >= 16
