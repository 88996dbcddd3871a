"""Loaders over remote files: the batches of the local ones, whoever makes them."""

from __future__ import annotations

import numpy as np
import pytest

from adapters import ImageDecoder, SafeSequence, materialize, open_records
from adapters.records.files import RecordFiles
from tests.remote.conftest import serve
from tests.sources.record_files import jpeg_file


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize(("workers", "processes"), [(0, False), (2, False), (1, True)])
def test_batches_are_those_of_the_local_file(server, tmp_path, workers, processes, cached):
    path, decode = jpeg_file(tmp_path, "tfrecord", 40), ImageDecoder(16, crop="random", flip=True)
    serve(server, tmp_path)
    cache = tmp_path / "cache" if cached else None
    remote = open_records(server.url(path.name), decode=decode, cache=cache)
    given = {"batch_size": 8, "shuffle": True, "seed": 3}
    with (
        SafeSequence(open_records(path, decode=decode), workers=0, **given) as expected,
        SafeSequence(remote, workers=workers, use_multiprocessing=processes, **given) as found,
    ):
        for mine, own in zip(found, expected, strict=True):
            for one, other in zip(mine, own, strict=True):
                np.testing.assert_array_equal(one, other)
    remote.close()


def test_materialized_samples_are_not_fetched_again(server, tmp_path):
    path, decode = (
        jpeg_file(tmp_path, "tfrecord", 40),
        ImageDecoder(16, crop="random", resize_short=18),
    )
    serve(server, tmp_path)
    given = {"batch_size": 8, "shuffle": True, "seed": 3, "workers": 1}
    remote = open_records(server.url(path.name), decode=decode)
    decoded = materialize(remote, tmp_path / "decoded")
    remote.close()
    server.counted.ranges.clear()
    with (
        SafeSequence(open_records(path, decode=decode), **given) as expected,
        SafeSequence(decoded, **given) as found,
    ):
        for mine, own in zip(found, expected, strict=True):
            for one, other in zip(mine, own, strict=True):
                np.testing.assert_array_equal(one, other)
    assert not server.counted.ranges
    server.objects[path.name] = jpeg_file(tmp_path, "tfrecord", 39).read_bytes()
    serve(server, tmp_path)
    changed = open_records(server.url(path.name), decode=decode)
    with pytest.raises(ValueError, match="have changed since"):
        materialize(changed, tmp_path / "decoded")
    changed.close()


def test_threads_have_the_next_batches_fetched_ahead(server, tmp_path, monkeypatch):
    """Each batch of the window is announced when it is asked for, before a thread comes to it."""
    path = jpeg_file(tmp_path, "tfrecord", 40)
    serve(server, tmp_path)
    told = []
    expect = RecordFiles.expect

    def expected(self, numbers, elsewhere):
        told.append((len(numbers), elsewhere))
        return expect(self, numbers, elsewhere)

    monkeypatch.setattr(RecordFiles, "expect", expected)
    source = open_records(server.url(path.name), decode=ImageDecoder(16))
    with SafeSequence(source, batch_size=8, workers=1, max_queue_size=4) as sequence:
        assert len(list(sequence)) == 5
    # And those of the next epoch, as many as the window holds.
    assert told[:5] == [(8, False)] * 5
    source.close()
