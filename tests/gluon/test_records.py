"""Record files, read by one and by many: ``MXIndexedRecordIO`` has one position for all."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import Dataset, RecordFileDataset
from mxnet.gluon.data.vision import ImageFolderDataset, ImageRecordDataset
from mxnet.recordio import IRHeader, MXIndexedRecordIO, pack, unpack

from tests.gluon.data_sets import assert_same, encoded, theirs
from tests.gluon.executors import opened

every_executor = pytest.mark.parametrize("executor", ["inline", "threads-4", "processes-2"])
SIZE = 1000
PASSES = {"inline": 1, "threads-4": 12, "processes-2": 2}


def payload(number: int) -> bytes:
    """Of many lengths, so that a record that is read from the wrong place isn't one."""
    return bytes([number % 256]) * (1 + number * 37 % 900)


def is_payload(record: bytes, number: int) -> bool:
    return record == payload(number)


@pytest.fixture(autouse=True)
def threads_that_alternate() -> Iterator[None]:
    """Between any two lines of Python, if need be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(scope="module")
def records(tmp_path_factory) -> Path:
    """A record file of ``SIZE`` small records."""
    path = tmp_path_factory.mktemp("records") / "a.rec"
    writer = MXIndexedRecordIO(str(path.with_suffix(".idx")), str(path), "w")
    for number in range(SIZE):
        writer.write_idx(number, pack(IRHeader(0, float(number), number, 0), payload(number)))
    writer.close()
    return path


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    """JPEGs in one brightness each, as a record file and in folders of two classes."""
    folder = tmp_path_factory.mktemp("images")
    writer = MXIndexedRecordIO(str(folder / "a.idx"), str(folder / "a.rec"), "w")
    for number in range(60):
        pixels = np.full((8, 8, 3), 4 * number, np.uint8)
        jpeg = encoded(pixels, "JPEG")
        writer.write_idx(number, pack(IRHeader(0, float(number), number, 0), jpeg))
        place = folder / "tree" / "ab"[number % 2] / f"{number:02}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(jpeg)
    writer.close()
    return folder


class OwnRecords(Dataset):
    """As a user would write one."""

    def __init__(self, path: Path) -> None:
        self.records = MXIndexedRecordIO(str(path.with_suffix(".idx")), str(path), "r")

    def __len__(self) -> int:
        return len(self.records.keys)

    def __getitem__(self, number: int) -> Any:
        header, content = unpack(self.records.read_idx(self.records.keys[number]))
        return header.id, header.label, is_payload(content, header.id)


class SeekingRecords(OwnRecords):
    """A reader that comes as a subclass, with two files."""

    class Reader(MXIndexedRecordIO):
        pass

    def __init__(self, path: Path) -> None:
        self.records = self.Reader(str(path.with_suffix(".idx")), str(path), "r")
        self.second = self.Reader(str(path.with_suffix(".idx")), str(path), "r")

    def __getitem__(self, number: int) -> Any:
        header, content = unpack(self.second.read_idx(SIZE - 1 - number))
        right = header.id == SIZE - 1 - number and is_payload(content, header.id)
        own, label, mine = super().__getitem__(number)
        return own, label, mine and right


def check(record: bytes) -> Any:
    """What is in a record of ``records``."""
    header, content = unpack(record)
    return header.id, header.label, is_payload(content, header.id)


def assert_right(batches: Any, expected: Any = range(SIZE)) -> None:
    ids, labels, rights = ([b[i].asnumpy() for b in batches] for i in range(3))
    assert np.concatenate(ids).tolist() == list(expected)
    assert np.concatenate(labels).tolist() == list(map(float, expected))
    assert np.concatenate(rights).all()


@every_executor
def test_a_record_file_data_set_gives_each_record_in_its_place(executor, records):
    with opened(RecordFileDataset(str(records)).transform(check), executor, 10) as loader:
        for _ in range(PASSES[executor]):
            assert_right(list(loader))


@every_executor
@pytest.mark.parametrize("kind", [OwnRecords, SeekingRecords])
def test_a_data_set_of_the_users_own_gives_each_record_in_its_place(executor, kind, records):
    with opened(kind(records), executor, 10) as loader:
        for _ in range(PASSES[executor]):
            assert_right(list(loader))


def test_two_loaders_may_read_one_data_set_at_once(records):
    data = OwnRecords(records)
    with opened(data, "threads-2", 10) as one, opened(data, "threads-2", 10) as other:
        for _ in range(6):
            pairs = list(zip(one, other))
            assert_right([mine for mine, _ in pairs])
            assert_right([its for _, its in pairs])


@pytest.mark.parametrize("executor", ["threads-4", "processes-1"])
def test_a_part_of_a_record_file_is_the_part_that_mxnet_takes(executor, records):
    data = RecordFileDataset(str(records)).shard(3, 1).take(50)
    with opened(data.transform(check), executor, 5) as loader:
        batches = list(loader)
    first = int(batches[0][0].asnumpy()[0])
    assert first == SIZE // 3 + 1
    assert_right(batches, range(first, first + 50))


@every_executor
def test_an_image_record_data_set_gives_what_it_gives_in_mxnet(executor, images):
    data = ImageRecordDataset(str(images / "a.rec"))
    with opened(data, executor, 5) as loader:
        for _ in range(2):
            assert_same(list(loader), theirs(data, batch_size=5))


@pytest.mark.parametrize("executor", ["threads-4", "processes-1"])
def test_grey_images_with_a_transform_give_what_they_give_in_mxnet(executor, images):
    def halved(image: Any, label: float) -> Any:
        return image[::2].astype("float32") / 2, label + 1

    data = ImageRecordDataset(str(images / "a.rec"), 0, halved)
    with opened(data, executor, 5) as loader:
        assert_same(list(loader), theirs(data, batch_size=5))


@every_executor
def test_an_image_folder_data_set_gives_what_it_gives_in_mxnet(executor, images):
    data = ImageFolderDataset(str(images / "tree"))
    expected = theirs(data, batch_size=5)
    assert [int(label) for _, batch in expected for label in batch.asnumpy()] == [0] * 30 + [1] * 30
    with opened(data, executor, 5) as loader:
        assert_same(list(loader), expected)


def test_a_record_that_cannot_be_read_is_named(images, tmp_path):
    path = tmp_path / "cut.rec"
    path.write_bytes((images / "a.rec").read_bytes()[:-100])
    path.with_suffix(".idx").write_bytes((images / "a.idx").read_bytes())
    data = ImageRecordDataset(str(path))
    with opened(data, "threads-4", 60) as loader, pytest.raises(mx.MXNetError) as caught:
        next(iter(loader))
    assert "in sample 59" in "\n".join(caught.value.__notes__)


@pytest.mark.parametrize("offset", [2**63, 2**64 - 1])
def test_an_offset_that_no_file_has_concerns_its_record_alone(offset, images, tmp_path):
    path = tmp_path / "odd.rec"
    path.write_bytes((images / "a.rec").read_bytes())
    index = (images / "a.idx").read_text()
    path.with_suffix(".idx").write_text(f"{index}60\t{offset}\n")
    data = ImageRecordDataset(str(path))
    with opened(data, "inline", 60) as loader:
        batches = iter(loader)
        assert_same([next(batches)], theirs(data.take(60), batch_size=60))
        with pytest.raises(mx.MXNetError) as caught:
            next(batches)
    assert "in sample 60" in "\n".join(caught.value.__notes__)


def test_a_file_that_was_opened_where_one_was_is_read(images, tmp_path, monkeypatch):
    monkeypatch.chdir(images)
    data = ImageRecordDataset("a.rec")
    monkeypatch.chdir(tmp_path)
    with opened(data, "inline", 20) as loader:
        assert_same(list(loader), theirs(data, batch_size=20))
