"""Batches of many files: the samples of each, errors of each, and no more of any."""

from __future__ import annotations

import gc
import gzip
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import Feature, RecordError, mix, open_records
from adapters.records import irheader
from adapters.records.mapping import NoMapError, living
from adapters.records.storage import MappedFile
from adapters.sources import recordparser
from tests.images.pictures import npy
from tests.plans import batch_of, plan_of
from tests.sources.example_files import encoded, sample
from tests.sources.record_files import damage, raw, write, write_images

SPEC: dict[str, Any] = {
    "image": Feature("uint8", (2, 3, 4), stored="raw"),
    "label": Feature("int64"),
    "marks": Feature("int64", (3,)),
}
HEADER_SPEC = {"image": Feature("uint8", (24,), stored="raw"), "label": Feature("float32")}
COUNTS = (5, 1, 30, 9, 12)


def payloads(format: str, numbers: range) -> list[bytes]:
    if format == "tfrecord":
        return [encoded(sample(number)) for number in numbers]
    return [irheader.pack(number, number, bytes([number] * 24)) for number in numbers]


def shards(folder: Path, format: str, counts: tuple[int, ...] = COUNTS) -> list[Path]:
    """Files of so many records, which are numbered through."""
    ends = np.cumsum(counts).tolist()
    return [
        write(folder / f"{place}.{format}", format, payloads(format, range(end - count, end)))
        for place, (count, end) in enumerate(zip(counts, ends))
    ]


def source_of(format: str, paths: list[Path]) -> Any:
    return open_records(paths, decode=SPEC if format == "tfrecord" else HEADER_SPEC)


def assert_batches_are_the_samples(source: Any) -> None:
    plan = plan_of(source, 16, shuffle=True)
    for epoch in range(3):
        for index in range(plan.num_batches):
            batch = batch_of(plan, epoch, index)
            for row, number in enumerate(plan.order.batch(epoch, index).tolist()):
                for name, value in source[number].items():
                    np.testing.assert_array_equal(batch[name][row], value)


@pytest.mark.parametrize("format", ["tfrecord", "recordio"])
@pytest.mark.usefixtures("gatherer")
def test_batches_of_many_files_are_their_samples(tmp_path, format):
    source = source_of(format, shards(tmp_path, format))
    assert_batches_are_the_samples(source)


@pytest.mark.usefixtures("gatherer")
def test_chosen_records_of_many_files(tmp_path):
    whole = source_of("tfrecord", shards(tmp_path, "tfrecord"))
    assert_batches_are_the_samples(whole.select(np.arange(len(whole))[::-3]))


@pytest.mark.parametrize("format", ["tfrecord", "recordio"])
@pytest.mark.usefixtures("gatherer")
def test_an_empty_file_among_them(tmp_path, format):
    paths = shards(tmp_path, format, (5, 0, 30, 0))
    decode = SPEC if format == "tfrecord" else HEADER_SPEC
    assert_batches_are_the_samples(open_records(paths, format=format, decode=decode))


def test_a_compressed_file_among_them(tmp_path):
    paths = shards(tmp_path, "tfrecord")
    paths[2] = tmp_path / "2.tfrecord.gz"
    paths[2].write_bytes(gzip.compress((tmp_path / "2.tfrecord").read_bytes()))
    assert_batches_are_the_samples(source_of("tfrecord", paths))


def test_more_files_than_stay_mapped(tmp_path, monkeypatch):
    monkeypatch.setattr(recordparser, "_MOST_FILES", 2)
    assert_batches_are_the_samples(source_of("tfrecord", shards(tmp_path, "tfrecord")))


def test_both_formats(tmp_path):
    spec = {"image": Feature("uint8", (2, 3, 4), stored="raw")}
    examples = shards(tmp_path, "tfrecord")
    packed = write(tmp_path / "a.rec", "recordio", payloads("tfrecord", range(4)))
    assert_batches_are_the_samples(open_records([*examples, packed], decode=spec))


@pytest.mark.usefixtures("gatherer")
def test_a_record_does_not_reach_into_the_next_file(tmp_path):
    paths = shards(tmp_path, "recordio")
    longer = 24 + 4096
    spec = {"image": Feature("uint8", (longer,), stored="raw"), "label": Feature("float32")}
    source = open_records(paths, decode=spec)
    # Once it is open, the first file's last record says that it has the gap and the next file, too.
    content, status = bytearray(paths[0].read_bytes()), paths[0].stat()
    last = int(source._files.shards[0].offsets[-1])
    content[last + 4 : last + 8] = struct.pack("<I", irheader.HEADER.size + longer)
    paths[0].write_bytes(content)
    os.utime(paths[0], ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(RecordError, match=r"0\.recordio, record 4"):
        batch_of(plan_of(source, 1), 0, COUNTS[0] - 1)


@pytest.mark.usefixtures("gatherer")
def test_a_damaged_record_is_told_by_its_own_file_and_number(tmp_path):
    paths = shards(tmp_path, "tfrecord")
    source = source_of("tfrecord", paths)
    damage(paths[2], int(source._files.shards[2].offsets[7]) + 40)
    source = source_of("tfrecord", paths)
    with pytest.raises(RecordError, match=r"2\.tfrecord, record 7\b"):
        batch_of(plan_of(source, sum(COUNTS)), 0, 0)


@pytest.mark.usefixtures("gatherer")
@pytest.mark.parametrize("decode", ["features", "image"])
def test_a_file_that_was_changed_since_is_told_and_the_others_are_read(tmp_path, decode):
    if decode == "features":
        paths = shards(tmp_path, "tfrecord", (5,) * 5)
        source = source_of("tfrecord", paths)
    else:
        paths = arrays_of(tmp_path, "tfrecord", [1, 2, 3, 4, 5])
        source = open_records(paths, decode="image")
    whole = plan_of(source, len(source))
    source._files.shards[3].close()
    paths[3].write_bytes(b"")
    with pytest.raises(RecordError, match=r"3\.tfrecord"):
        batch_of(whole, 0, 0)
    own = plan_of(source, len(source) // 5)
    for index in (0, 1, 2, 4):
        batch_of(own, 0, index)


@pytest.mark.usefixtures("gatherer")
def test_where_there_is_no_room_for_a_map_records_are_read(tmp_path, monkeypatch):
    def no_room(*_: Any, **__: Any) -> Any:
        raise NoMapError(12, "no room")

    monkeypatch.setattr(MappedFile, "whole_view", no_room)
    assert_batches_are_the_samples(source_of("tfrecord", shards(tmp_path, "tfrecord")))


def test_parts_of_one_source_share_its_files(tmp_path):
    source = source_of("tfrecord", shards(tmp_path, "tfrecord"))
    odd, even = source.select(range(1, 57, 2)), source.select(range(0, 57, 2))
    for part in (odd, even):
        batch_of(plan_of(part, 10), 0, 0)
    whole: Any = mix([odd, even, source])
    assert_batches_are_the_samples(whole)


@pytest.mark.usefixtures("gatherer")
def test_what_one_has_checked_the_other_need_not(tmp_path):
    source = source_of("tfrecord", shards(tmp_path, "tfrecord"))
    assert not any(shard.checked.any() for shard in source._files.shards)
    batch_of(plan_of(source, sum(COUNTS)), 0, 0)
    assert all(shard.checked.all() for shard in source._files.shards)


@pytest.mark.usefixtures("gatherer")
def test_closing_lets_go_of_the_maps(tmp_path):
    gc.collect()
    before = living()
    paths = shards(tmp_path, "tfrecord")
    source, other = source_of("tfrecord", paths[:3]), source_of("tfrecord", paths[3:])
    batch_of(plan_of(source, 20, shuffle=True), 0, 0)
    whole = mix([source, other])
    batch_of(plan_of(whole, 20, shuffle=True), 0, 0)
    assert living() > before
    source.close()
    other.close()
    assert living() == before


def arrays_of(folder: Path, format: str, labels: list[Any]) -> list[Path]:
    """Files of nine raw arrays each, with such a label."""
    return [
        write_images(folder / f"{place}.{format}", format, map(npy, raw(9)), [label] * 9)
        for place, label in enumerate(labels)
    ]


@pytest.mark.parametrize("format", ["tfrecord", "recordio"])
@pytest.mark.parametrize(
    "labels",
    [[3, 5, 7, 9], [3, 300, 5, 7], [3]],
    ids=["alike", "a label of two bytes", "one file"],
)
def test_raw_arrays_of_many_files_are_their_samples(tmp_path, format, labels):
    source: Any = open_records(arrays_of(tmp_path, format, labels), decode="image")
    plan = plan_of(source, 8, shuffle=True)
    for epoch in range(2):
        for index in range(plan.num_batches):
            images, found = batch_of(plan, epoch, index)
            for row, number in enumerate(plan.order.batch(epoch, index).tolist()):
                np.testing.assert_array_equal(images[row], source[number][0])
                assert found[row] == labels[number // 9]


def test_a_damaged_array_of_one_of_many_files_is_told(tmp_path):
    paths = arrays_of(tmp_path, "tfrecord", [1, 2, 3])
    source: Any = open_records(paths, decode="image")
    damage(paths[1], int(source._files.shards[1].offsets[4]) + 200)
    source = open_records(paths, decode="image")
    with pytest.raises(RecordError, match=r"1\.tfrecord, record 4\b"):
        batch_of(plan_of(source, 27), 0, 0)
    batch_of(plan_of(source, 9), 0, 2)
