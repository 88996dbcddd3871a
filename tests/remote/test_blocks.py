"""An order in blocks over remote files: whole windows come, ahead, each once, and go again."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

from adapters import Blocks, Cache, open_records
from adapters.keras import SafeSequence
from adapters.records import files, remotefile
from tests.engine.executors import wait_until
from tests.remote.conftest import serve, written

SIZE, BYTES, BATCH = 640, 6_000, 8
BLOCK, WINDOW = 40, 4  # Records; 16 blocks, so 4 windows of 20 batches.
BLOCKS = Blocks(block_bytes=BLOCK * BYTES, window=WINDOW)


def records() -> list[bytes]:
    return [number.to_bytes(4, "little") * (BYTES // 4) for number in range(SIZE)]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """As if blocks of a quarter of a megabyte were large, and the files didn't fit into memory."""
    monkeypatch.setattr(files, "_LEAST_BLOCK_BYTES", 0)
    monkeypatch.setattr(remotefile, "HALF_BYTES", 1_000_000)


@pytest.fixture(params=[3])
def bucket(request, server, tmp_path):
    """URLs of one file, or of three of unequal sizes, and the server."""
    cuts = [0, 100, 450, SIZE] if request.param == 3 else [0, SIZE]
    urls = []
    for place, (first, last) in enumerate(itertools.pairwise(cuts)):
        path = written(tmp_path, "tfrecord", records()[first:last], f"part{place}")
        urls.append(server.url(path.name))
    serve(server, tmp_path)
    return urls, server


def numbers(samples: list[bytes]) -> np.ndarray:
    return np.array([int.from_bytes(sample[:4], "little") for sample in samples])


def sequence(source, **options):
    options = {"workers": 2, "collate": numbers, "seed": 3, **options}
    return SafeSequence(source, BATCH, shuffle=BLOCKS, **options)


def of(loader, epochs: int) -> list[list[int]]:
    return [batch.tolist() for _ in range(epochs) for batch in loader]


def expected(epochs: int) -> list[list[int]]:
    with sequence(records(), workers=0) as local:
        return of(local, epochs)


def asked(server, least: int = 0) -> list[tuple[str, int, int]]:
    ranges = [each for each in server.counted.ranges if each[0].endswith(".tfrecord")]
    return [each for each in ranges if each[2] - each[1] > least]


@pytest.mark.parametrize(
    ("bucket", "workers", "faults"), [(1, 0, 0), (3, 1, 0), (3, 4, 0.1)], indirect=["bucket"]
)
def test_batches_are_those_of_local_files(bucket, workers, faults):
    urls, server = bucket
    with open_records(urls) as source, sequence(source, workers=workers) as remote:
        server.settings.refused = server.settings.cut = faults
        assert of(remote, 2) == expected(2)
        server.settings.refused = server.settings.cut = 0
    # What was read ahead may still be tried again, and the server ends with the test.
    wait_until(lambda: not any("fetching" in each.name for each in threading.enumerate()))


def test_worker_processes_hold_no_windows(bucket):
    """Each would fetch all of them."""
    urls, _ = bucket
    # They don't import this module, and with it Keras.
    options = {"use_multiprocessing": True, "workers": 1, "collate": np.array}
    with open_records(urls) as source, sequence(source, **options) as remote:
        assert [numbers(batch.tolist()).tolist() for batch in remote] == expected(1)
        assert not any(shard.storage._windows for shard in source._files.shards)


def test_windows_are_fetched_whole_and_once(bucket, monkeypatch):
    """But for the first batches, which are asked for before the first window can be there."""
    urls, server = bucket
    server.settings.latency_seconds = 0.005
    monkeypatch.setattr(remotefile, "GAP_BYTES", 0)
    with open_records(urls) as source, sequence(source) as remote:
        server.counted.ranges.clear()
        assert of(remote, 4) == expected(4)
        whole = asked(server, least=BYTES * BLOCK // 4)
        alone = len(asked(server)) - len(whole)
    # With the begin of the next epoch, of which batches are made ahead.
    assert sum(end - begin for _, begin, end in whole) <= 1.3 * 4 * SIZE * BYTES
    assert alone < 0.3 * 4 * SIZE


def test_windows_of_all_data_sets_are_bounded(bucket, monkeypatch):
    urls, _ = bucket
    most = 3 * BLOCK * BYTES
    monkeypatch.setattr(remotefile, "MOST_WINDOW_BYTES", most)
    found = []
    with open_records(urls) as source, sequence(source) as remote, open_records(urls) as other:
        for batch, _ in zip(remote, sequence(other, seed=5), strict=True):
            assert remotefile.window_bytes() <= most
            found.append(batch.tolist())
    assert found == expected(1)
    assert remotefile.window_bytes() == 0


def test_windows_that_nobody_reads_make_room(bucket, monkeypatch):
    """Of passes over other orders, that were broken off."""
    urls, _ = bucket
    monkeypatch.setattr(remotefile, "MOST_WINDOW_BYTES", 2 * WINDOW * BLOCK * (BYTES + 16))
    with open_records(urls) as source:
        for seed in range(4):
            with sequence(source, seed=seed) as remote:
                next(iter(remote))
        with sequence(source) as remote:
            assert of(remote, 1) == expected(1)
            assert remotefile.window_bytes() <= remotefile.MOST_WINDOW_BYTES


def test_slow_connections_fetch_single_records(bucket, monkeypatch):
    urls, server = bucket
    monkeypatch.setattr(files, "low_priority_seconds", lambda: 0.6)
    monkeypatch.setattr(remotefile, "GAP_BYTES", 0)
    with open_records(urls) as source, sequence(source) as remote:
        assert of(remote, 1) == expected(1)
        assert remotefile.window_bytes() == 0
    assert asked(server, least=BYTES * BLOCK // 2) == []


def test_index_in_another_order(server, tmp_path):
    path = written(tmp_path, "recordio", records())
    lines = path.with_suffix(".idx").read_text().splitlines(keepends=True)
    path.with_suffix(".idx").write_text("".join(lines[1::2] + lines[::2]))
    serve(server, tmp_path)
    with open_records(server.url(path.name)) as source, sequence(source) as remote:
        assert sorted(itertools.chain.from_iterable(of(remote, 1))) == list(range(SIZE))
        assert remotefile.window_bytes() == 0


def test_cache_gets_whole_blocks(bucket, tmp_path):
    urls, server = bucket
    cache = Cache(tmp_path / "cache")
    with open_records(urls, cache=cache) as source, sequence(source) as remote:
        server.counted.ranges.clear()
        assert of(remote, 2) == expected(2)
        assert not any(shard.storage._windows for shard in source._files.shards)
    fetched = sum(end - begin for _, begin, end in asked(server))
    assert fetched <= 1.3 * SIZE * BYTES
