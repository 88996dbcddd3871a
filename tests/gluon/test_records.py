"""Record files in loaders: MXNet's own data sets, what ``open_records`` returns, and paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import Dataset, RecordFileDataset, SimpleDataset
from mxnet.gluon.data.vision import ImageRecordDataset
from mxnet.gluon.data.vision.transforms import ToTensor
from mxnet.recordio import IRHeader, MXIndexedRecordIO, unpack
from mxnet.recordio import pack as pack_record

from adapters import Feature, ImageDecoder, RecordError, gluon_loader, open_records
from adapters.images.geometry import cut, short_side
from tests.gluon.data_sets import assert_same, numpy_semantics, theirs
from tests.gluon.executors import (
    EXECUTORS,
    every_quick_executor,
    opened,
)
from tests.images.pictures import encoded, npy, picture
from tests.plans import batch_of, notes_of, plan_of
from tests.sources.example_files import encoded as encoded_example
from tests.sources.example_files import file_of, sample
from tests.sources.record_files import FORMATS, SIZE, damage, jpeg_file, raw_file, write_images

every_format = pytest.mark.parametrize("format", FORMATS)
RANDOM = ImageDecoder(16, crop="random_resized", flip=True)
DECODES: dict[str, Any] = {
    "image": "image",
    "random": RANDOM,
    "float": ImageDecoder(8, dtype="float32", layout="NCHW", mean=100, std=50),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """The same images in each format."""
    folder = tmp_path_factory.mktemp("files")
    contents = [encoded(picture(20, 30 + n)[:, :30], "JPEG") for n in range(SIZE)]
    return {each: write_images(folder / f"{each}.x", each, contents) for each in FORMATS}


def numpies(batches: Any) -> list[Any]:
    """Pixels and labels of all batches, as float64."""
    return [[member.asnumpy().astype(np.float64).tolist() for member in b] for b in batches]


@pytest.mark.parametrize("size", [(20, 30), (7, 9), (50, 31), (1, 1)])
def test_resizing_is_that_of_mxnet(size):
    image = picture(20, 30)
    expected = mx.image.imresize(mx.nd.array(image, dtype="uint8"), size[1], size[0], interp=1)
    found = ImageDecoder(size).decode(encoded(image, "PNG"))
    np.testing.assert_array_equal(found, expected.asnumpy())


@pytest.mark.parametrize(
    ("size", "short"), [((20, 30), 8), ((30, 20), 20), ((33, 47), 41), ((9, 9), 5), ((1, 5), 8)]
)
def test_resize_short_is_that_of_mxnet(size, short):
    image = picture(*size)
    expected = mx.image.resize_short(mx.nd.array(image, dtype="uint8"), short, interp=1)
    found = ImageDecoder(resize_short=short).decode(encoded(image, "PNG"))
    np.testing.assert_array_equal(found, expected.asnumpy())


@pytest.mark.parametrize("size", [(12, 10), (20, 30), (11, 13), (40, 44), (33, 7)])
def test_center_crop_after_resize_short_is_that_of_mxnet(size):
    image = picture(33, 47)
    resized = mx.image.resize_short(mx.nd.array(image, dtype="uint8"), 24, interp=1)
    expected = mx.image.center_crop(resized, size[::-1], interp=1)[0]
    decoder = ImageDecoder(size, crop="center", resize_short=24)
    np.testing.assert_array_equal(decoder.decode(encoded(image, "PNG")), expected.asnumpy())


@pytest.mark.parametrize(
    ("size", "image"),
    [((10, 10), (3, 5)), ((7, 31), (24, 24)), ((50, 3), (2, 5)), ((16, 24), (11, 60))],
)
def test_box_for_a_smaller_image_is_that_of_mxnet(size, image):
    scaled = mx.image.scale_down(short_side(*image, 2)[::-1], size[::-1])[::-1]
    crop = cut(*image, size, 2, False, None)
    assert (crop.height, crop.width) == tuple(max(1, side) for side in scaled)


@pytest.mark.filterwarnings("ignore:tostring:DeprecationWarning")  # MXNet's pack_img.
def test_image_gives_what_mxnets_own_data_set_gives(tmp_path):
    """As ``mx.recordio`` writes it, JPEG and PNG, in batches as well."""
    path = str(tmp_path / "a.rec")
    writer = mx.recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), path, "w")
    for n in range(SIZE):
        header = mx.recordio.IRHeader(0, n / 2, n, 0)
        image = picture(20, 30) // (n + 1)
        kind = {"img_fmt": ".jpg", "quality": 90} if n % 2 else {"img_fmt": ".png", "quality": 3}
        writer.write_idx(n, mx.recordio.pack_img(header, image, **kind))
    writer.close()
    expected = theirs(ImageRecordDataset(path), batch_size=4)
    with opened(open_records(path, decode="image"), "inline") as loader:
        assert_same(list(loader), expected)


@pytest.mark.parametrize(
    ("format", "decode", "semantics"),
    [
        ("recordio", "image", False),
        ("tfrecord", "image", True),
        ("recordio", "random", True),
        ("tfrecord", "random", False),
        ("recordio", "float", False),
    ],
)
def test_every_executor_gives_the_same_bits(files, format, decode, semantics):
    with numpy_semantics(semantics):
        passes = []
        for executor in EXECUTORS:
            source = open_records(files[format], decode=DECODES[decode])
            with opened(source, executor, shuffle=True, seed=3) as loader:
                passes.append([*loader, *loader])
        assert_same(passes[1], passes[0])
        assert_same(passes[2], passes[0])


def test_random_crop_is_that_of_safe_sequence(files):
    """Of that seed and epoch, and of the sample's number, whatever the framework."""
    source = open_records(files["tfrecord"], decode=RANDOM)
    with opened(source, "inline", SIZE, seed=4) as loader:
        for epoch in range(2):
            (images, _), *_ = loader
            expected = batch_of(plan_of(source, SIZE, seed=4), epoch)[0]
            np.testing.assert_array_equal(images.asnumpy(), expected)


@pytest.mark.parametrize("decode", DECODES)
@pytest.mark.parametrize("semantics", [False, True])
def test_images_and_labels_are_of_the_kind_in_use(files, decode, semantics):
    with numpy_semantics(semantics):
        kind = mx.np.ndarray if semantics else mx.nd.NDArray
        source = open_records(files["recordio"], decode=DECODES[decode])
        with opened(source, "inline") as loader:
            batch = next(iter(loader))
            assert [type(member) for member in batch] == [kind, kind]


@every_format
def test_path_and_a_glob_are_data_sets_of_images(files, format):
    with opened(str(files[format]), "inline") as loader:
        expected = numpies(loader)
    with opened(str(files[format].parent / f"{format}*"), "inline") as loader:
        assert numpies(loader) == expected
    assert len(expected) == -(-SIZE // 4)


@every_quick_executor
@every_format
@pytest.mark.parametrize("decode", ["image", ImageDecoder(8)])
def test_to_tensor_of_the_images_is_what_it_is_in_mxnet(executor, format, decode, files):
    data = SimpleDataset(open_records(files[format], decode=decode)).transform_first(ToTensor())
    pairs = [
        (ToTensor()(mx.nd.array(image, dtype="uint8")), label)
        for image, label in open_records(files[format], decode=decode)
    ]
    with opened(data, executor) as loader:
        assert_same(list(loader), theirs(SimpleDataset(pairs), batch_size=4))


@every_quick_executor
@pytest.mark.parametrize("decode", ["image", ImageDecoder(8)])
def test_damaged_record_is_named_with_its_sample(executor, decode, tmp_path):
    path = jpeg_file(tmp_path, "tfrecord")
    damage(path, path.stat().st_size - 100)
    loader = opened(open_records(path, decode=decode), executor, SIZE)
    with loader, pytest.raises(RecordError, match=rf"{path}, record 10, byte \d+: ") as caught:
        list(loader)
    assert "in sample 10" in notes_of(caught.value)


def test_negative_numbers_of_a_sampler_count_from_the_end(tmp_path):
    source = open_records(raw_file(tmp_path, "recordio"), decode="image")
    with gluon_loader(source, 2, sampler=[-1, 3], num_workers=0) as loader:
        assert [batch[1].asnumpy().tolist() for batch in loader] == [[10, 3]]


def test_raw_grey_images_keep_their_one_channel(tmp_path):
    """As MNIST is stored."""
    path = write_images(tmp_path / "a.rec", "recordio", [npy(picture(28, 28, 1))] * 3)
    with opened(open_records(path, decode="image"), "inline") as loader:
        assert next(iter(loader))[0].shape == (3, 28, 28, 1)


# --- features ---


RECORDS = 20
SPEC: dict[str, Any] = {
    "image": Feature("uint8", (2, 3, 4), stored="raw"),
    "label": Feature("int64"),
    "weight": Feature("float32"),
}


def source_of(folder: Any, outputs: Any = ("image", "label"), spec: Any = None) -> Any:
    path = file_of(folder, [encoded_example(sample(number)) for number in range(RECORDS)])
    return open_records(path, decode=spec or SPEC, outputs=outputs)


def test_dict_is_refused_with_the_remedy(tmp_path):
    with (
        gluon_loader(source_of(tmp_path, None), 4, num_workers=0) as loader,
        pytest.raises(TypeError, match=r"got a dict of .* outputs=.* transform="),
    ):
        next(iter(loader))


def test_features_of_what_mxnet_packs(tmp_path):
    """By the names of what is in it: label, id and payload."""
    names = str(tmp_path / "b.idx"), str(tmp_path / "b.rec")
    record = mx.recordio.MXIndexedRecordIO(*names, "w")
    for number in range(6):
        header = mx.recordio.IRHeader(0, float(number), number, 0)
        record.write_idx(number, mx.recordio.pack(header, bytes([number] * 6)))
    record.close()
    spec = {
        "image": Feature("uint8", (2, 3), stored="raw"),
        "label": Feature("float32"),
        "id": Feature("int64"),
    }
    source = open_records(names[1], decode=spec, outputs=("image", "label", "id"))
    with gluon_loader(source, 4) as loader:
        image, label, number = next(iter(loader))
    assert image.asnumpy()[:, 0, 0].tolist() == label.asnumpy().tolist() == [0, 1, 2, 3]
    assert number.asnumpy().tolist() == [0, 1, 2, 3]
    assert (image.dtype, label.dtype) == (np.uint8, np.float32)


# --- MXIndexedRecordIO has one position for all ---


RECORD_COUNT = 1000


def payload(number: int) -> bytes:
    """Of many lengths, so that a record that is read from the wrong place isn't one."""
    return bytes([number % 256]) * (1 + number * 37 % 900)


def is_payload(record: bytes, number: int) -> bool:
    return record == payload(number)


@pytest.fixture(scope="module")
def records(tmp_path_factory) -> Path:
    """A record file of ``RECORD_COUNT`` small records."""
    path = tmp_path_factory.mktemp("records") / "a.rec"
    writer = MXIndexedRecordIO(str(path.with_suffix(".idx")), str(path), "w")
    for number in range(RECORD_COUNT):
        writer.write_idx(
            number, pack_record(IRHeader(0, float(number), number, 0), payload(number))
        )
    writer.close()
    return path


@pytest.fixture(scope="module")
def jpegs(tmp_path_factory) -> Path:
    """JPEGs in one brightness each, as a record file."""
    folder = tmp_path_factory.mktemp("images")
    writer = MXIndexedRecordIO(str(folder / "a.idx"), str(folder / "a.rec"), "w")
    for number in range(60):
        pixels = np.full((8, 8, 3), 4 * number, np.uint8)
        jpeg = encoded(pixels, "JPEG")
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
        header, content = unpack(self.records.read_idx(self.records.keys[number]))
        return header.id, header.label, is_payload(content, header.id)


def check(record: bytes) -> Any:
    """What is in a record of ``records``."""
    header, content = unpack(record)
    return header.id, header.label, is_payload(content, header.id)


def assert_right(batches: Any, expected: Any = range(RECORD_COUNT)) -> None:
    ids, labels, rights = ([b[i].asnumpy() for b in batches] for i in range(3))
    assert np.concatenate(ids).tolist() == list(expected)
    assert np.concatenate(labels).tolist() == list(map(float, expected))
    assert np.concatenate(rights).all()


def test_own_data_set_gives_each_record_in_its_place(records):
    """Though ``thread_pool`` declares that its threads may all read."""
    with opened(OwnRecords(records), "threads-4", 10) as loader:
        for _ in range(6):
            assert_right(list(loader))


def test_part_of_a_record_file_is_the_part_that_mxnet_takes(records):
    data = RecordFileDataset(str(records)).shard(3, 1).take(50)
    with opened(data.transform(check), "threads-4", 5) as loader:
        batches = list(loader)
    first = int(batches[0][0].asnumpy()[0])
    assert first == RECORD_COUNT // 3 + 1
    assert_right(batches, range(first, first + 50))


def test_record_that_cannot_be_read_is_named(jpegs, tmp_path):
    path = tmp_path / "cut.rec"
    path.write_bytes((jpegs / "a.rec").read_bytes()[:-100])
    path.with_suffix(".idx").write_bytes((jpegs / "a.idx").read_bytes())
    data = ImageRecordDataset(str(path))
    with opened(data, "threads-4", 60) as loader, pytest.raises(mx.MXNetError) as caught:
        next(iter(loader))
    assert "in sample 59" in "\n".join(caught.value.__notes__)


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
