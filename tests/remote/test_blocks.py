"""An order in blocks over remote files: whole windows come, ahead, each once, and go again."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from adapters import Blocks, Cache, RecordError, open_records
from adapters.keras import SafeSequence
from adapters.records import held, remotefile
from adapters.remote import fetching
from tests.remote.conftest import serve, written

SIZE, BYTES, BATCH = 640, 6_000, 8
BLOCK, WINDOW = 40, 4  # Records; 16 blocks, so 4 windows of 20 batches.
BLOCKS = Blocks(block_bytes=BLOCK * BYTES, window=WINDOW)
LIMIT_SECONDS = 20


def records() -> list[bytes]:
    """Each tells its number, and is full of it."""
    return [number.to_bytes(4, "little") * (BYTES // 4) for number in range(SIZE)]


@pytest.fixture(params=[1, 3])
def bucket(request, server, tmp_path):
    """URLs of one file, or of three of unequal sizes, and the server."""
    cuts = [0, 100, 450, SIZE] if request.param == 3 else [0, SIZE]
    for place, (first, last) in enumerate(itertools.pairwise(cuts)):
        folder = tmp_path / f"part{place}"
        folder.mkdir()
        path = written(folder, "tfrecord", records()[first:last])
        for each in sorted(folder.iterdir()):
            each.rename(tmp_path / each.name.replace(path.stem, f"part{place}"))
        folder.rmdir()
    serve(server, tmp_path)
    return [server.url(f"part{place}.tfrecord") for place in range(len(cuts) - 1)], server


def sequence(source, **options):
    numbers = {
        "collate": lambda samples: np.array([int.from_bytes(s[:4], "little") for s in samples])
    }
    return SafeSequence(
        source, BATCH, shuffle=BLOCKS, seed=3, **{"workers": 2, **numbers, **options}
    )


def expected(epochs: int) -> list[list[int]]:
    """Of a list in memory."""
    with sequence(records(), workers=0) as local:
        return [batch.tolist() for _ in range(epochs) for batch in local]


def of(local, epochs: int) -> list[list[int]]:
    return [batch.tolist() for _ in range(epochs) for batch in local]


def asked(server, least: int = 0) -> list[tuple[str, int, int]]:
    """The ranges of records that were asked for."""
    ranges = [each for each in server.counted.ranges if each[0].endswith(".tfrecord")]
    return [each for each in ranges if each[2] - each[1] > least]


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_batches_are_those_of_local_files(bucket, workers):
    urls, _ = bucket
    with open_records(urls) as source, sequence(source, workers=workers) as remote:
        assert of(remote, 3) == expected(3)


def test_windows_are_fetched_whole_and_once(bucket, monkeypatch):
    """But for the first batches, which are asked for before the first window can be there."""
    urls, server = bucket
    server.settings.latency_seconds = 0.005
    monkeypatch.setattr(fetching, "GAP_BYTES", 0)
    with open_records(urls) as source, sequence(source) as remote:
        server.counted.ranges.clear()
        found = of(remote, 4)
        whole = asked(server, least=BYTES * BLOCK // 4)
        alone = len(asked(server)) - len(whole)
    assert found == expected(4)
    windows = 4 * 4 + 1  # The last one tells of the next epoch's first.
    assert sum(end - begin for _, begin, end in whole) <= 1.1 * windows * WINDOW * BLOCK * BYTES
    assert alone < 0.2 * 4 * SIZE


def test_a_window_goes_when_it_was_read(bucket, monkeypatch):
    urls, _ = bucket
    monkeypatch.setattr(held, "_LEAST_BYTES", 0)
    with open_records(urls) as source, sequence(source) as remote:
        files = [shard.storage for shard in source._files.shards]
        for _ in range(3):
            for _ in remote:
                assert max(len(file._windows) for file in files) <= 3
        numbers = set().union(*(file._windows for file in files))
        assert len(numbers) <= 3
        assert min(numbers) >= 3 * 4 - 2
    assert not any(file._windows for file in files)


def test_another_pass_lets_go_of_what_another_held(bucket):
    urls, _ = bucket
    with open_records(urls) as source:
        with sequence(source) as one, sequence(source) as other:
            for _ in range(3):
                assert of(one, 1)
                assert of(other, 1)
        assert len(source._files._held._files) <= 3 + held._MORE


def test_large_windows_are_fetched_record_by_record(bucket, monkeypatch):
    urls, _ = bucket
    monkeypatch.setattr(held, "MOST_BYTES", 2 * BLOCK * BYTES)
    with open_records(urls) as source, sequence(source) as remote:
        assert of(remote, 1) == expected(1)
        assert not any(shard.storage._windows for shard in source._files.shards)


def test_worker_processes_hold_no_windows(bucket):
    """Each would fetch all of them."""
    urls, _ = bucket
    with open_records(urls) as source, sequence(source, use_multiprocessing=True) as remote:
        assert of(remote, 1) == expected(1)
        assert not any(shard.storage._windows for shard in source._files.shards)


def test_a_cache_gets_whole_blocks(bucket, tmp_path):
    urls, server = bucket
    cache = Cache(tmp_path / "cache")
    with open_records(urls, cache=cache) as source, sequence(source) as remote:
        server.counted.ranges.clear()
        assert of(remote, 2) == expected(2)
        assert not any(shard.storage._windows for shard in source._files.shards)
    fetched = sum(end - begin for _, begin, end in asked(server))
    assert fetched <= 1.3 * SIZE * BYTES


def test_a_batch_does_not_wait_for_what_is_for_later(server, tmp_path, monkeypatch):
    """Of pieces that nobody has begun; those of which records are needed are as large as these."""
    monkeypatch.setattr(fetching, "_MOST_LATER", 1)
    path = written(tmp_path, "tfrecord", records())
    serve(server, tmp_path)
    with open_records(server.url(path.name)) as source, sequence(source) as remote:
        server.settings.bytes_per_second = 2e6  # A block takes 0.12 s, a record 3 ms.
        began = time.perf_counter()
        next(iter(remote))
        assert time.perf_counter() - began < WINDOW * BLOCK * BYTES / 2e6


def test_faults_are_survived(bucket):
    urls, server = bucket
    with open_records(urls) as source, sequence(source) as remote:
        server.settings.refused = server.settings.cut = 0.1
        assert of(remote, 2) == expected(2)


def test_an_object_that_changes_is_an_error(bucket):
    urls, server = bucket
    with open_records(urls) as source, sequence(source) as remote:
        passed = iter(remote)
        next(passed)
        for name in [each for each in server.objects if each.endswith(".tfrecord")]:
            server.objects[name] = bytes(len(server.objects[name]))
        with pytest.raises(RecordError, match="changed since"):
            list(passed)


def test_no_room_for_a_window_is_no_error(bucket, monkeypatch):
    urls, _ = bucket

    def refused(size: int) -> None:
        raise remotefile.NoMapError("too many maps")

    with open_records(urls) as source, sequence(source) as remote:
        monkeypatch.setattr(remotefile, "WindowRegion", refused)
        assert of(remote, 1) == expected(1)


def test_gluon_reads_windows_too(bucket):
    gluon = pytest.importorskip("adapters.gluon")
    urls, server = bucket
    server.settings.latency_seconds = 0.005
    options = {"shuffle": BLOCKS, "num_workers": 2, "thread_pool": True}
    with open_records(urls, decode=len) as source:
        server.counted.ranges.clear()
        with gluon.gluon_loader(source, BATCH, **options) as loader:
            assert sum(batch.shape[0] for batch in loader) == SIZE
        assert (
            sum(end - begin for _, begin, end in asked(server, BYTES * BLOCK // 4))
            > SIZE * BYTES / 2
        )
