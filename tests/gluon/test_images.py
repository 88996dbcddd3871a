"""Images in ``gluon_loader``: folders, tables, detection labels."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import SimpleDataset
from mxnet.gluon.data.vision import ImageFolderDataset, ImageRecordDataset
from mxnet.gluon.data.vision.transforms import ToTensor

from adapters import (
    Boxes,
    ImageDecoder,
    RecordError,
    open_images,
    open_records,
)
from adapters.records import irheader
from tests.gluon.data_sets import assert_same, theirs
from tests.gluon.executors import THREADS, every_kind, every_quick_executor, opened
from tests.images.pictures import encoded, picture
from tests.packing.materials import image, jpeg
from tests.plans import notes_of
from tests.sources.image_folders import folder, put, varied_and_packed
from tests.sources.record_files import write

RANDOM = ImageDecoder(16, crop="random_resized", flip=True)
DECODES: dict[str, Any] = {
    "random": RANDOM,
    "float": ImageDecoder(8, dtype="float32", layout="NCHW", mean=100, std=50),
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> tuple[Path, Path]:
    """A folder of JPEGs of several sizes, and the same packed."""
    return varied_and_packed(tmp_path_factory.mktemp("photos"))


@every_kind
@pytest.mark.parametrize("decode", DECODES)
def test_batches_are_those_of_the_same_images_packed(photos, executor, decode):
    files, packed = photos
    arguments = {"shuffle": True, "seed": 3}
    with (
        opened(open_images(files, decode=DECODES[decode]), executor, **arguments) as ours,
        opened(open_records(packed, decode=DECODES[decode]), "inline", **arguments) as other,
    ):
        for _ in range(2):
            assert_same(list(ours), list(other))


@pytest.mark.parametrize("given", [str, Path])
def test_path_of_a_folder_gives_its_images(given, tmp_path):
    with opened(given(folder(tmp_path)), THREADS, 6) as loader:
        ((images, labels),) = loader
    expected = np.stack([image for image, _ in open_images(tmp_path)])
    np.testing.assert_array_equal(images.asnumpy(), expected)
    assert labels.asnumpy().tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("data", [str, lambda path: SimpleDataset(open_images(path))])
def test_several_sizes_are_told_the_remedy(photos, data):
    loader = opened(data(photos[0]), THREADS)
    with (
        loader,
        pytest.raises(
            ValueError,
            match=r"equal shapes.* images of several sizes need "
            r"open_images\(\.\.\., decode=ImageDecoder\(224\)\)",
        ),
    ):
        list(loader)


@pytest.mark.parametrize("data", ["path", "ImageRecordDataset"])
def test_several_lengths_of_labels_are_told_the_remedy(data, tmp_path):
    pictures = [irheader.pack(label, 0, jpeg(1)) for label in ([1, 2], [1])]
    path = str(write(tmp_path / "a.rec", "recordio", pictures))
    loader = opened(path if data == "path" else ImageRecordDataset(path), "inline")
    with loader, pytest.raises(ValueError, match="; labels of several lengths need a transform"):
        list(loader)


@every_quick_executor
@pytest.mark.parametrize("decode", [None, ImageDecoder(8)])
def test_file_that_is_no_image_is_named_with_its_sample(executor, decode, tmp_path):
    (folder(tmp_path) / "bee/005.jpg").write_bytes(b"This is none.")
    loader = opened(open_images(tmp_path, decode=decode), executor)
    with loader, pytest.raises(RecordError, match=r"bee/005\.jpg.*expected an image") as caught:
        list(loader)
    assert "in sample 5" in notes_of(caught.value)


@every_quick_executor
@pytest.mark.parametrize("decode", [None, ImageDecoder(8)])
@pytest.mark.parametrize("kind", ["empty", "gone"])
def test_skip_takes_the_next_file(executor, decode, kind, tmp_path):
    source = open_images(folder(tmp_path), decode=decode)
    path = Path(source.files[2])
    path.write_bytes(b"") if kind == "empty" else path.unlink()
    with opened(source, executor, 6, on_error="skip") as loader:
        ((images, labels),) = loader
    expected = [source[number] for number in (0, 1, 3, 3, 4, 5)]
    np.testing.assert_array_equal(images.asnumpy(), np.stack([image for image, _ in expected]))
    assert labels.asnumpy().tolist() == [label for _, label in expected]


def test_replay_of_a_part_names_its_files(tmp_path):
    source = open_images(folder(tmp_path), decode=ImageDecoder(8))
    with opened(SimpleDataset(source).shard(2, 1), "inline", 3) as loader:
        replay = loader.replay(0, 0)
    assert [origin.file for origin in replay.origins] == list(source.files)[3:]


# --- what MXNet's own data set of folders gives ---


@pytest.fixture
def pngs(tmp_path) -> Path:
    """Of one size, as two decoders of JPEGs differ a little."""
    put(tmp_path / "in", *(f"{name}/x.jpg" for name in ("Cat", "ant", "bee")))
    for number, path in enumerate(sorted(tmp_path.rglob("*.jpg"))):
        path.with_suffix(".png").write_bytes(encoded(image(number), "PNG"))
        path.unlink()
    return tmp_path / "in"


@every_quick_executor
def test_folders_are_those_of_mxnet(executor, pngs):
    data, source = ImageFolderDataset(str(pngs)), open_images(pngs)
    assert source.classes == data.synsets
    assert list(zip(source.files, source.labels.tolist())) == data.items
    with opened(SimpleDataset(source).transform_first(ToTensor()), executor) as loader:
        assert_same(list(loader), theirs(data.transform_first(ToTensor()), batch_size=4))


def test_list_that_im2rec_made_is_a_table(pngs, tmp_path):
    im2rec = runpy.run_path(str(Path(mx.__file__).parent / "tools" / "im2rec.py"))
    im2rec["write_list"](tmp_path / "train.lst", im2rec["list_image"](str(pngs), True, [".png"]))
    source = open_images(tmp_path / "train.lst", root=pngs, classes=["Cat", "ant", "bee"])
    assert list(source.files) == list(open_images(pngs).files)
    assert (source.classes, source.labels.tolist()) == (["Cat", "ant", "bee"], [0, 1, 2])


# --- detection labels ---


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Of what MXNet calls in NumPy.
@pytest.mark.parametrize(("header", "width"), [([2], 5), ([4], 6), ([5], 5)])
def test_boxes_are_those_of_image_det_iter(tmp_path, header, width):
    rng = np.random.default_rng(width)
    record = mx.recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(tmp_path / "a.rec"), "w")
    for number, count in enumerate((3, 1, 4)):
        begins = rng.random((count, 2)) * 0.7
        rows = np.column_stack(
            [rng.integers(0, 9, count), begins, begins + 0.2, np.ones((count, width - 5))]
        )
        rows[-1, 3:5] -= 0.2 * (number == 2)  # Without an area: both drop it.
        label = np.array([*header, width, *[7.0] * (header[0] - 2), *rows.ravel()], np.float32)
        image = encoded(picture(40, 50), "JPEG")
        head = mx.recordio.IRHeader(0, label, number, 0)
        record.write_idx(number, mx.recordio.pack(head, image))
    record.close()
    theirs = mx.image.ImageDetIter(
        batch_size=3, data_shape=(3, 32, 32), path_imgrec=str(tmp_path / "a.rec")
    )
    labels = theirs.next().label[0].asnumpy()
    spec = {"image": ImageDecoder(32), "label": Boxes.im2rec(output="rel_xyxy")}
    for sample, rows in zip(open_records(tmp_path / "a.rec", decode=spec), labels, strict=True):
        target, rows = sample["label"], rows[rows[:, 0] >= 0]
        np.testing.assert_array_equal(target["classes"], rows[:, 0])
        np.testing.assert_allclose(target["boxes"], rows[:, 1:5], atol=1e-6)
        if width > 5:
            np.testing.assert_array_equal(target["extra"], rows[:, 5:])
