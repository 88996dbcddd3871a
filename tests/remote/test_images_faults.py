"""Images behind URLs: what goes wrong."""

from __future__ import annotations

import os
import pickle
import select
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import RecordError, open_images
from adapters.remote import client_of, urls
from tests.forking import forks
from tests.remote.photos import DECODE, assert_equal, batches, serve, upload, urls_of
from tests.sources.image_folders import jpeg

fsspec = pytest.importorskip("fsspec", reason="the store of these tests is fsspec's memory")


@pytest.mark.parametrize("way", ["sample", "batch"])
def test_what_is_no_image_names_the_url(server, photos, way):
    serve(server, photos)
    listed = urls_of(server, photos)
    server.objects["photos/bee/001.jpg"] = b"nothing"
    source, place = (
        open_images(listed, decode=DECODE),
        listed.index(server.url("photos/bee/001.jpg")),
    )
    with pytest.raises(RecordError, match=r"http://127.*photos/bee/001.jpg, byte 0: expected"):
        source[place] if way == "sample" else batches(source, workers=0)


def test_an_empty_object_is_no_image(server, photos):
    serve(server, photos)
    server.objects["photos/bee/001.jpg"] = b""
    with pytest.raises(RecordError, match="expected an image, found an empty object"):
        open_images([server.url("photos/bee/001.jpg")])[0]


def test_what_is_gone_is_told(server, photos, loop):
    with pytest.raises(FileNotFoundError, match="No such object: open the images again") as raised:
        open_images([server.url("photos/bee/1.jpg?sig=secret")])[0]
    assert raised.value.filename == server.url("photos/bee/1.jpg")


def test_a_store_that_does_not_answer_gives_no_block_order_of_a_part_of_the_files(
    server, photos, monkeypatch
):
    """Ranks whose stores answer would have another order."""
    monkeypatch.setenv("ADAPTERS_REMOTE_SECONDS", "0.2")
    serve(server, photos)
    source = open_images([*urls_of(server, photos), server.url("photos/gone.jpg")])
    assert source.sample_bytes > 1  # What isn't there isn't there for anybody.
    server.settings.down = True
    with pytest.raises(OSError, match="no answer"):
        _ = open_images(urls_of(server, photos)).sample_bytes


@pytest.mark.parametrize("what", [b"nothing", None])
def test_what_cannot_be_read_is_skipped(server, photos, what):
    serve(server, photos)
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


def test_a_store_that_does_not_answer_ends_within_the_limit(server, photos, monkeypatch):
    serve(server, photos)
    source = open_images(urls_of(server, photos), decode=DECODE)
    monkeypatch.setenv("ADAPTERS_REMOTE_SECONDS", "0.5")
    server.settings.down = True
    with pytest.raises(ConnectionError, match=r"photos/.*no answer after .* tries in .* \(limit"):
        batches(source, workers=0, on_error="skip")


@pytest.mark.parametrize("asked", ["one", "batch"])
def test_what_failed_before_anybody_asked_is_fetched_again(server, photos, monkeypatch, asked):
    """A store that was down for a while, as files were fetched ahead."""
    serve(server, photos)
    with open_images(photos, decode=DECODE) as local:
        expected = batches(local, workers=0)
    source = open_images(urls_of(server, photos), decode=DECODE)
    numbers = np.arange(len(source))
    with monkeypatch.context() as patched:
        patched.setenv("ADAPTERS_REMOTE_SECONDS", "0.2")
        server.settings.down = True
        source.expect(numbers, elsewhere=False)
        for fetch in [*source._reader._requests.values()]:
            fetch.wait()
            assert isinstance(fetch.error, ConnectionError)
        server.settings.down = False
    if asked == "one":
        assert source.read(3) == Path(open_images(photos).files[3]).read_bytes()
    else:
        assert_equal(batches(source, workers=0), expected)
    assert source._reader._ahead == (len(source) - 1 if asked == "one" else 0)


def test_faults_are_tried_again(server, photos):
    serve(server, photos)
    server.settings.refused = server.settings.cut = 0.2
    expected = batches(open_images(photos, decode=DECODE), workers=0)
    with open_images(urls_of(server, photos), decode=DECODE) as source:
        assert_equal(batches(source, workers=2), expected)
    assert server.counted.faults


def test_an_object_that_changed_since_it_was_read_first_is_an_error(server, photos):
    serve(server, photos)
    source = open_images(urls_of(server, photos))
    source[0]
    server.objects["photos/ant/000.jpg"] = jpeg(77)
    with pytest.raises(RecordError, match=r"ant/000.jpg, byte 0: .*found one that was changed"):
        source[0]


def test_an_object_that_changed_since_it_was_listed_is_an_error(bucket, photos, monkeypatch):
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


def test_secrets_stand_in_no_name_for_people(server, photos):
    source = open_images([server.url("photos/bee/1.jpg?sig=secret/x")])
    assert "secret" not in repr(source.files) + source.named(0)
    assert source.files[0].endswith("?sig=secret/x")
    assert source.classes == ["bee"]


@forks
def test_a_forked_process_waits_for_nothing_of_its_parent(bucket, photos, monkeypatch):
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


def test_one_of_them_pickled_alone(server, photos):
    serve(server, photos)
    source = open_images(urls_of(server, photos))
    one = pickle.loads(pickle.dumps(source.only(5)))
    assert one.read(0) == source.read(5)


def test_names_below_a_url():
    assert urls.below("s3://b/lists/", "../photos/./1.jpg") == "s3://b/photos/1.jpg"
    assert urls.below("s3://b/", "1.jpg") == "s3://b/1.jpg"
    assert urls.folder_url("https://h/a/t.csv?x=y/z") == "https://h/a/"
