"""Record files, images and detection labels in ``gluon_loader``, beside MXNet's own data sets."""

from __future__ import annotations

import runpy
from collections import UserDict
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import Dataset, RecordFileDataset, SimpleDataset
from mxnet.gluon.data.vision import ImageFolderDataset, ImageRecordDataset
from mxnet.gluon.data.vision.transforms import ToTensor
from mxnet.recordio import IRHeader, MXIndexedRecordIO, MXRecordIO, unpack
from mxnet.recordio import pack as pack_record

from adapters import Boxes, Feature, ImageDecoder, RecordError, open_images, open_records
from adapters.records import irheader
from tests.gluon.data_sets import assert_same, theirs, values
from tests.gluon.executors import PROCESSES, THREADS, opened
from tests.images.pictures import encoded, picture
from tests.packing.materials import image, jpeg
from tests.plans import batch_of, notes_of, plan_of
from tests.sources.example_files import encoded as encoded_example
from tests.sources.example_files import file_of, sample
from tests.sources.image_folders import folder, put, varied_and_packed
from tests.sources.record_files import SIZE, damage, jpeg_file, write

RANDOM = ImageDecoder(16, crop="random_resized", flip=True)


@pytest.mark.parametrize("size", [(12, 10), (11, 13), (40, 44)])
def test_center_crop_after_resize_short_is_that_of_mxnet(size):
    image = picture(33, 47)
    resized = mx.image.resize_short(mx.nd.array(image, dtype="uint8"), 24, interp=1)
    expected = mx.image.center_crop(resized, size[::-1], interp=1)[0]
    decoder = ImageDecoder(size, crop="center", resize_short=24)
    np.testing.assert_array_equal(decoder.decode(encoded(image, "PNG")), expected.asnumpy())


def test_random_crop_is_that_of_safe_sequence(tmp_path):
    """Of that seed and epoch, and of the sample's number, whatever the framework."""
    source = open_records(jpeg_file(tmp_path, "tfrecord"), decode=RANDOM)
    with opened(source, "inline", SIZE, seed=4) as loader:
        for epoch in range(2):
            (images, _), *_ = loader
            expected = batch_of(plan_of(source, SIZE, seed=4), epoch)[0]
            np.testing.assert_array_equal(images.asnumpy(), expected)


@pytest.mark.parametrize("executor", [THREADS, PROCESSES])
def test_batches_ahead_are_prefetched(executor, tmp_path, monkeypatch):
    source, asked = open_records(jpeg_file(tmp_path, "tfrecord"), decode=ImageDecoder(8)), set()
    monkeypatch.setattr(type(source), "prefetch", lambda _, numbers, **__: asked.update(numbers))
    with opened(SimpleDataset(source).take(6), executor, 2) as loader:
        list(loader)
    assert asked == {*range(6)}


@pytest.mark.parametrize(("decode", "executor"), [("image", "inline"), (ImageDecoder(8), THREADS)])
def test_damaged_record_is_named_with_its_sample(decode, executor, tmp_path):
    path = jpeg_file(tmp_path, "tfrecord")
    damage(path, path.stat().st_size - 100)
    loader = opened(open_records(path, decode=decode), executor, SIZE)
    with loader, pytest.raises(RecordError, match=rf"{path}, record 10, byte \d+: ") as caught:
        list(loader)
    assert "in sample 10" in notes_of(caught.value)


def test_dict_is_refused_with_the_remedy(tmp_path):
    path = file_of(tmp_path, [encoded_example(sample(number)) for number in range(4)])
    source = open_records(path, decode={"label": Feature("int64"), "weight": Feature("float32")})
    for data in (source, [UserDict(label=1)] * 4):
        with (
            opened(data, "inline") as loader,
            pytest.raises(TypeError, match=r"got a dict of .* outputs=.* transform="),
        ):
            next(iter(loader))


# --- MXNet's own data sets ---


@pytest.fixture(scope="module")
def jpegs(tmp_path_factory) -> Path:
    """JPEGs in one brightness each, as a record file."""
    folder = tmp_path_factory.mktemp("images")
    writer = MXIndexedRecordIO(str(folder / "a.idx"), str(folder / "a.rec"), "w")
    for number in range(60):
        jpeg = encoded(np.full((8, 8, 3), 4 * number, np.uint8), "JPEG")
        writer.write_idx(number, pack_record(IRHeader(0, float(number), number, 0), jpeg))
    writer.close()
    return folder


class OwnRecords(Dataset):
    """As a user would write one."""

    def __init__(self, path: Path) -> None:
        self.records = MXIndexedRecordIO(str(path.with_suffix(".idx")), str(path), "r")

    def __len__(self) -> int:
        return len(self.records.keys)

    def __getitem__(self, number: int) -> Any:
        return unpack(self.records.read_idx(self.records.keys[number]))[0].id


class InTurn(OwnRecords):
    """Reads one record after the other, of a file without an index."""

    def __init__(self, path: Path) -> None:
        self.records = MXRecordIO(str(path), "r")

    def __len__(self) -> int:
        return 60

    def __getitem__(self, number: int) -> Any:
        return unpack(self.records.read())[0].id


def test_own_data_set_gives_each_record_in_its_place(jpegs):
    """Though ``thread_pool`` declares that its threads may all read."""
    with opened(OwnRecords(jpegs / "a.rec"), "threads-4", 5) as loader:
        for _ in range(30):
            assert [n for batch in values(loader) for n in batch] == [*range(60)]


@pytest.mark.parametrize("indexed", [True, False])
def test_record_file_of_the_trainer_stays_open_beside_processes(indexed, jpegs, caplog):
    """Processes can't continue a file that has no index."""
    data = (OwnRecords if indexed else InTurn)(jpegs / "a.rec")
    handle = data.records.handle.value
    with opened(data, PROCESSES, 5) as loader:
        assert [n for batch in values(loader) for n in batch] == [*range(60)]
    assert (data.records.is_open, data.records.handle.value) == (True, handle)
    assert ("must be an MXIndexedRecordIO" in caplog.text) is not indexed


def test_part_of_a_record_file_is_the_part_that_mxnet_takes(jpegs):
    data = RecordFileDataset(str(jpegs / "a.rec")).shard(3, 1).take(15)
    with opened(data.transform(lambda record: unpack(record)[0].id), "threads-4", 5) as loader:
        assert [n for batch in values(loader) for n in batch] == [*range(20, 35)]


@pytest.mark.parametrize("offset", [2**63, 2**64 - 1])
def test_impossible_offset_concerns_its_record_alone(offset, jpegs, tmp_path):
    path = tmp_path / "odd.rec"
    path.write_bytes((jpegs / "a.rec").read_bytes())
    index = (jpegs / "a.idx").read_text()
    path.with_suffix(".idx").write_text(f"{index}60\t{offset}\n")
    data = ImageRecordDataset(str(path))
    with opened(data, "inline", 60) as loader:
        batches = iter(loader)
        assert_same([next(batches)], theirs(data.take(60), batch_size=60))
        with pytest.raises(mx.MXNetError) as caught:
            next(batches)
    assert "in sample 60" in "\n".join(caught.value.__notes__)


def test_file_that_was_opened_where_one_was_is_read(jpegs, tmp_path, monkeypatch):
    monkeypatch.chdir(jpegs)
    data = ImageRecordDataset("a.rec")
    monkeypatch.chdir(tmp_path)
    with opened(data, "inline", 20) as loader:
        assert_same(list(loader), theirs(data, batch_size=20))


@pytest.mark.parametrize("given", [str, Path])
def test_path_of_a_folder_gives_its_images(given, tmp_path):
    with opened(given(folder(tmp_path)), THREADS, 6) as loader:
        ((images, labels),) = loader
    expected = np.stack([image for image, _ in open_images(tmp_path)])
    np.testing.assert_array_equal(images.asnumpy(), expected)
    assert labels.asnumpy().tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("data", [str, lambda path: SimpleDataset(open_images(path))])
def test_several_sizes_are_told_the_remedy(data, tmp_path):
    message = r"equal shapes.* several sizes or channels need .*decode=ImageDecoder\(224\)\)"
    with (
        opened(data(varied_and_packed(tmp_path)[0]), THREADS) as loader,
        pytest.raises(ValueError, match=message),
    ):
        list(loader)


@pytest.mark.parametrize("data", ["path", "ImageRecordDataset"])
def test_several_lengths_of_labels_are_told_the_remedy(data, tmp_path):
    pictures = [irheader.pack(label, 0, jpeg(1)) for label in ([1, 2], [1])]
    path = str(write(tmp_path / "a.rec", "recordio", pictures))
    loader = opened(path if data == "path" else ImageRecordDataset(path), "inline")
    with loader, pytest.raises(ValueError, match="; labels of several lengths need a transform"):
        list(loader)


def test_replay_of_a_part_names_its_files(tmp_path):
    source = open_images(folder(tmp_path), decode=ImageDecoder(8))
    with opened(SimpleDataset(source).shard(2, 1), "inline", 3) as loader:
        replay = loader.replay(0, 0)
    assert [origin.file for origin in replay.origins] == list(source.files)[3:]


@pytest.fixture
def pngs(tmp_path) -> Path:
    """Of one size, as two decoders of JPEGs differ a little."""
    put(tmp_path / "in", *(f"{name}/x.jpg" for name in ("Cat", "ant", "bee")))
    for number, path in enumerate(sorted(tmp_path.rglob("*.jpg"))):
        path.with_suffix(".png").write_bytes(encoded(image(number), "PNG"))
        path.unlink()
    return tmp_path / "in"


def test_folders_are_those_of_mxnet(pngs):
    data, source = ImageFolderDataset(str(pngs)), open_images(pngs)
    assert source.classes == data.synsets
    assert list(zip(source.files, source.labels.tolist())) == data.items
    with opened(SimpleDataset(source).transform_first(ToTensor()), THREADS) as loader:
        assert_same(list(loader), theirs(data.transform_first(ToTensor()), batch_size=4))


def test_list_that_im2rec_made_is_a_table(pngs, tmp_path):
    im2rec = runpy.run_path(str(Path(mx.__file__).parent / "tools" / "im2rec.py"))
    im2rec["write_list"](tmp_path / "train.lst", im2rec["list_image"](str(pngs), True, [".png"]))
    source = open_images(tmp_path / "train.lst", root=pngs, classes=["Cat", "ant", "bee"])
    assert list(source.files) == list(open_images(pngs).files)
    assert (source.classes, source.labels.tolist()) == (["Cat", "ant", "bee"], [0, 1, 2])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Of what MXNet calls in NumPy.
@pytest.mark.parametrize(("header", "width"), [([2], 5), ([4], 6)])
def test_boxes_are_those_of_image_det_iter(tmp_path, header, width):
    rng = np.random.default_rng(width)
    record = mx.recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(tmp_path / "a.rec"), "w")
    for number, count in enumerate((3, 1, 4)):
        begins = rng.random((count, 2)) * 0.7
        boxes = [begins, begins + 0.2, np.ones((count, width - 5))]
        rows = np.column_stack([rng.integers(0, 9, count), *boxes])
        rows[-1, 3:5] -= 0.2 * (number == 2)  # Without an area: both drop it.
        label = np.array([*header, width, *[7.0] * (header[0] - 2), *rows.ravel()], np.float32)
        image = encoded(picture(40, 50), "JPEG")
        head = mx.recordio.IRHeader(0, label, number, 0)
        record.write_idx(number, mx.recordio.pack(head, image))
    record.close()
    path = str(tmp_path / "a.rec")
    theirs = mx.image.ImageDetIter(batch_size=3, data_shape=(3, 32, 32), path_imgrec=path)
    labels = theirs.next().label[0].asnumpy()
    spec = {"image": ImageDecoder(32), "label": Boxes.im2rec(output="rel_xyxy")}
    for found, rows in zip(open_records(tmp_path / "a.rec", decode=spec), labels, strict=True):
        target, rows = found["label"], rows[rows[:, 0] >= 0]
        np.testing.assert_array_equal(target["classes"], rows[:, 0])
        np.testing.assert_allclose(target["boxes"], rows[:, 1:5], atol=1e-6)
        if width > 5:
            np.testing.assert_array_equal(target["extra"], rows[:, 5:])
