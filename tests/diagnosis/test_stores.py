"""The doctor over samples from a store behind URLs: it names the network, and advises a cache."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from adapters import (
    ImageDecoder,
    RecordWriter,
    SafeSequence,
    concatenate,
    diagnose,
    materialize,
    open_images,
    open_records,
)
from adapters.diagnosis.remoteness import held_of, store_of
from adapters.records import CODECS, budget, remotefile
from adapters.remote import clients
from adapters.sources import as_source
from tests.diagnosis.made_up import made_up
from tests.remote.rangeserver import RangeServer
from tests.sources.image_folders import jpeg
from tests.sources.record_files import jpeg_file

pytest.importorskip("obstore", reason="remote files are read by obstore: the extra remote")

COUNT = 64


@pytest.fixture
def server() -> Any:
    """Pictures, a record file, and no latency yet."""
    with RangeServer({f"a/{number}.jpg": jpeg(number) for number in range(COUNT)}) as serving:
        yield serving
    clients.forget()


def pictures(server: Any, **options: Any) -> Any:
    return open_images([server.url(f"a/{number}.jpg") for number in range(COUNT)], **options)


# --- which sources are in a store ---


def test_a_source_tells_whether_it_is_in_a_store(server, tmp_path):
    path = jpeg_file(tmp_path, "tfrecord", 20)
    server.objects[path.name] = path.read_bytes()
    here, there = open_records(path), open_records(server.url(path.name))
    assert store_of(here) == store_of(open_records(path, cache=tmp_path / "cache")) == ""
    assert store_of(there) == store_of(there.select([1])) == "uncached"
    assert store_of(concatenate([here, there])) == "uncached"
    assert store_of(open_records(server.url(path.name), cache=tmp_path / "cache")) == "cached"
    assert store_of(pictures(server)) == store_of(pictures(server).select([1])) == "uncached"
    assert store_of(pictures(server, cache=tmp_path / "cache")) == "cached"
    assert store_of(as_source([1, 2])) == ""
    decoded = materialize(pictures(server, decode=ImageDecoder(16)), tmp_path / "decoded")
    assert store_of(decoded) == ""


@pytest.mark.parametrize("chosen", [False, True])
def test_pictures_that_are_held_are_asked_for_once(server, chosen):
    source: Any = pictures(server, decode=ImageDecoder(16))
    source = source.select(np.arange(COUNT)[::-1]) if chosen else source
    held = held_of(source, np.arange(8))
    server.counted.requests = 0
    for number in [*range(8), *range(8)]:
        np.testing.assert_array_equal(held.sample(number)[0], held.sample(number)[0])
    assert server.counted.requests == 0
    np.testing.assert_array_equal(held.sample(20)[0], source.sample(20)[0])


# --- the bottleneck ---


@pytest.mark.parametrize("what", ["pictures", pytest.param("records", marks=pytest.mark.full)])
def test_a_slow_store_is_found_and_a_cache_advised(server, what, tmp_path, monkeypatch):
    source = pictures(server, decode=ImageDecoder(16))
    if what == "records":
        path = tmp_path / "many.tfrecord"
        with RecordWriter(path, format="tfrecord") as writer:
            for number in range(400):
                writer.write(CODECS["tfrecord"].envelope.pack(jpeg(number), 0, number))
        server.objects[path.name] = path.read_bytes()
        # Less than all is kept, and records are far from each other, as in large data sets.
        monkeypatch.setattr(budget, "HALF_BYTES", 100_000)
        monkeypatch.setattr(remotefile, "GAP_BYTES", 0)
        source = open_records(server.url(path.name), decode=ImageDecoder(16))
    server.settings.latency_seconds = 0.05
    with SafeSequence(source, 8, shuffle=True, workers=1, max_queue_size=1) as loader:
        found = diagnose(loader, lambda batch: time.sleep(0.0005), seconds=0.6)
    source.close()
    assert (found.bottleneck, found.store) == ("storage", "uncached"), str(found)
    if found.certain:
        assert "bottleneck: storage: fetching the samples over the network" in str(found)
        assert any(each.startswith("cache=") for each in found.advice)


def test_what_a_cache_would_bring_is_said():
    found = made_up(storage=0.038, store="uncached")
    cache = next(each for each in found.predictions if each.change == "cache")
    assert cache.gain == pytest.approx(4.0)
    assert "over the network" in str(found)
    assert 'cache="/a/local/folder"' in found.advice[0]
    assert found.advice[0].endswith("local disk (+300% from there)")
    assert "network share" not in str(found)


def test_where_there_is_a_cache_it_is_to_be_filled():
    found = made_up(storage=0.038, store="cached")
    assert "cache" not in {each.change for each in found.predictions}
    assert found.advice[0].startswith("let the cache fill")


def test_a_disk_is_no_network():
    found = made_up(storage=0.038)
    assert "over the network" not in str(found)
    assert "cache=" not in "\n".join(found.advice)
