"""``pack`` to a URL: what is somebody else's stays as it is."""

from __future__ import annotations

import numpy as np
import pytest

from adapters import open_records, pack

IMAGES = np.arange(4 * 48, dtype=np.uint8).reshape(4, 4, 4, 3)


def packed(format: str, count: int = 4, name: str = "train") -> list[str]:
    """The names of the files that were packed."""
    data = IMAGES[:count], range(count)
    options = {"encoding": "raw", "shard_bytes": 1, "seed": None}
    return [each.name for each in pack(data, f"memory://b/{name}", format=format, **options).files]


def names(bucket) -> set[str]:
    """Of all objects."""
    return {path.rpartition("/")[2] for path in bucket.find("/b")}


def test_a_file_that_is_no_manifest_keeps_its_name(bucket):
    bucket.pipe_file("/b/train.json", b'{"labels": ["mine"]}')
    packed("recordio")
    assert bucket.cat("/b/train.json") == b'{"labels": ["mine"]}'
    packed("recordio", 1)
    indexed = {f"train-00000-of-00001.{each}" for each in ("rec", "idx")}
    assert names(bucket) == {"train.json", "train.rec.json", *indexed}


def test_no_name_for_the_manifest_is_an_error_that_names_it(bucket):
    bucket.pipe_file("/b/train.json", b"mine")
    bucket.pipe_file("/b/train.rec.json", b"mine")
    with pytest.raises(FileExistsError, match=r"memory://b/train\.rec\.json is something else"):
        packed("recordio")
    assert bucket.cat("/b/train.rec.json") == b"mine"


@pytest.mark.parametrize("counts", [(4, 4), (4, 3)])
def test_two_formats_of_one_name_leave_each_other_alone(bucket, counts):
    packed("recordio", 4)
    of_records = {name: bucket.cat(f"/b/{name}") for name in names(bucket)}
    for count in counts:
        files = packed("tfrecord", count)
        assert all(bucket.cat(f"/b/{name}") == data for name, data in of_records.items())
        with open_records("memory://b/train-*.tfrecord", decode="image") as source:
            np.testing.assert_array_equal(np.stack([each for each, _ in source]), IMAGES[:count])
    assert len(names(bucket)) == len(of_records) + 2 * len(files) + 1
    # Nor the other way round.
    of_tfrecord = {name: bucket.cat(f"/b/{name}") for name in names(bucket) - {*of_records}}
    packed("recordio", 2)
    assert all(bucket.cat(f"/b/{name}") == data for name, data in of_tfrecord.items())
    assert len(names(bucket)) == len(of_tfrecord) + 2 * 2 + 1


def test_a_single_file_takes_the_long_name_of_its_manifest(bucket):
    bucket.pipe_file("/b/one.json", b"mine")
    assert packed("recordio", 1, "one.rec") == ["one.rec"]
    assert names(bucket) == {"one.json", "one.rec", "one.idx", "one.rec.json"}
