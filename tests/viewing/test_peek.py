"""``peek`` and ``statistics``: sheets, tables and figures of batches and sources."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from adapters import open_images, statistics
from adapters.replaying import Replay
from adapters.sources.source import Origin
from adapters.viewing.images import contact_sheet, framed, thumbnails
from adapters.viewing.peek import Peek
from tests.packing.materials import folder
from tests.records.test_writer import full_disk

IMAGES = np.random.default_rng(0).integers(0, 256, (20, 10, 16, 3), np.uint8)
LABELS = np.arange(20)


def pixels(encoded: bytes) -> Any:
    """What a PNG holds, as Pillow reads it, which verifies the checksums."""
    with Image.open(io.BytesIO(encoded)) as image:
        assert (image.format, image.mode) == ("PNG", "RGB")
        return np.array(image)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("scale", [1, 255])
def test_sheet_of_any_layout_and_range(layout, scale):
    wanted = Peek([(IMAGES, LABELS)]).png()
    given = (IMAGES / scale).astype(np.float32)
    given = given.transpose(0, 3, 1, 2) if layout == "NCHW" else given
    assert wanted is not None
    assert Peek([(given, LABELS)]).png() == wanted


def test_sheet_has_rows_and_tiles():
    sheet = pixels(Peek([(IMAGES, LABELS), (IMAGES[:3], LABELS[:3])]).png())
    assert sheet.shape[1] == 8 * 132 - 4
    assert sheet.shape[0] in (2 * 132 - 4, 2 * 148 - 4)
    first = sheet[:80, :128].reshape(10, 8, 16, 8, 3)[:, 4, :, 4]
    assert first.tolist() == IMAGES[0].tolist()
    assert (sheet[sheet.shape[0] // 2 + 2 :][:80, 3 * 132 :] == 255).all()


def test_table_without_images():
    members = {"tokens": np.arange(12).reshape(3, 4), "n": np.ones(3)}
    peek = Peek([(members, np.array(["a", "<b>", "c"], object))])
    assert peek.png() is None
    assert str(peek).splitlines()[0].split() == ["batch", "sample", "[0].tokens", "[0].n", "[1]"]
    assert str(peek).splitlines()[2].split(maxsplit=2) == ["0", "1", "[4, 5, 6, 7]    1      <b>"]
    with pytest.raises(ValueError, match="the batches hold no images"):
        peek.save("sheet.png")


def test_table_of_other_members():
    samples = [{"tags": "cat"}, {"y": 7, "tags": "dog"}, {}, {"y": 8}]
    assert Peek.of_samples(samples).table() == [
        ["batch", "sample", "tags", "y"],
        ["0", "0", "cat", ""],
        ["1", "0", "dog", "7"],
        ["2", "0", "", ""],
        ["3", "0", "", "8"],
    ]
    assert Peek([]).table() == []


REPLAY = Replay(0, 0, (IMAGES, LABELS), LABELS, [Origin()] * 20, IMAGES.__getitem__)


@pytest.mark.parametrize("save", [Peek([(IMAGES, LABELS)]).save, REPLAY.sheet])
def test_sheet_is_whole_or_missing(save, tmp_path):
    with full_disk(), pytest.raises(OSError, match=r"File too large: '.*/sheet\.png'"):
        save(tmp_path / "sheet.png")
    assert [*tmp_path.iterdir()] == []


def test_sheet_in_a_notebook(tmp_path):
    peek = Peek([(IMAGES, LABELS)])
    assert peek._repr_png_() == peek.png()
    assert peek.save(tmp_path / "sheet.png") == str(tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").read_bytes() == peek.png()


def test_batches_may_change_afterwards():
    images = IMAGES.copy()
    peek = Peek([images])
    before = peek.png()
    images[:] = 0
    assert peek.png() == before


def test_sheet_of_any_shape():
    wide, high = np.zeros((2, 400, 3), np.uint8), np.zeros((300, 5, 1), np.float32)
    tiles = thumbnails([wide, high, np.full((4, 4, 4), np.nan)])
    sheet = pixels(contact_sheet([tiles[:2], tiles[2:]]))
    assert sheet.shape == (260, 260, 3)
    with pytest.raises(ValueError, match="at least one image"):
        contact_sheet([[]])


def test_sheet_has_one_scale():
    dark, light = np.zeros((2, 4, 4, 1), np.float32)
    dark[:], light[:], dark[0, 0] = -1, 3, np.nan
    tiles = thumbnails([dark, light, np.full((4, 4, 1), 77, np.uint8)])
    assert [tile[-1, -1, 0] for tile in tiles] == [0, 255, 77]
    assert not tiles[0].any()


@pytest.mark.parametrize("box", [(0, 0, 0.001, 0.001), (0.5, 0.25, 0.25, 0.5), (0, 0, 1, 1)])
def test_frame_lies_within_its_box(box):
    tile = np.zeros((128, 96, 3), np.uint8)
    red = framed(tile, box)[..., 0] == 255
    down, across = np.nonzero(red)
    top, left = int(box[0] * 128), int(box[1] * 96)
    assert (down.min(), across.min()) == (top, left)
    assert down.max() == max(top, int((box[0] + box[2]) * 128) - 1)
    assert across.max() == max(left, int((box[1] + box[3]) * 96) - 1)
    assert red.all() == (box[2] < 0.01) or not red[64, 48]
    assert not tile.any()


RNG = np.random.default_rng(0)
PHOTOS = RNG.integers(0, 256, (300, 6, 5, 3), np.uint8)
CLASSES = RNG.integers(0, 4, 300)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "int16"])
def test_statistics_of_pixels(dtype):
    images = PHOTOS.astype(dtype)
    found = statistics((images, CLASSES), progress=False)
    assert found.mean == pytest.approx(images.mean(axis=(0, 1, 2)), rel=1e-6)
    assert found.std == pytest.approx(images.std(axis=(0, 1, 2), dtype="f8"), rel=1e-6)
    assert found.labels == {n: int((n == CLASSES).sum()) for n in range(4)}
    assert list(found.labels) == [0, 1, 2, 3]
    assert found.sizes == {(6, 5, 3): 300}
    assert (found.samples, found.corrupt) == (300, ())


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_statistics_of_channels_first(channels):
    images = RNG.integers(0, 256, (20, channels, 6, 5), np.uint8)
    found = statistics((images, CLASSES[:20]), progress=False)
    assert found.mean == pytest.approx(images.mean(axis=(0, 2, 3)))
    assert found.std == pytest.approx(images.std(axis=(0, 2, 3)))
    assert found.fields[0].kind == "image"


def test_statistics_of_lists():
    found = statistics([[image, label] for image, label in zip(PHOTOS, CLASSES)], progress=False)
    assert found.labels == {n: int((n == CLASSES).sum()) for n in range(4)}


def test_statistics_of_contents_are_no_labels():
    rows = [{"a": bytes(300 + n), "b": "é" * (200 - n), "c": np.array([n % 2])} for n in range(8)]
    found = statistics(rows, progress=False)
    assert found.fields[2].counts == found.labels == {0: 4, 1: 4}
    assert "a: bytes, lengths 300 to 307\nb: bytes, lengths 386 to 400\n" in str(found)
    assert str(statistics(["a" * 200], progress=False)).endswith("aa...: 1")


def test_statistics_of_numbers():
    x = np.array([[np.nan, 2.0, 3.0], [np.nan] * 3], "float32")
    found = statistics(x, progress=False)
    assert (found.fields[0].low, found.fields[0].high) == (2.0, 3.0)
    assert "inf" not in str(statistics(x[1:], progress=False))


def test_statistics_by_any_threads():
    images = RNG.random((300, 6, 5, 3))
    assert len({str(vars(statistics(images, n, progress=False))) for n in (1, 2, 5)}) == 1


class Broken:
    """Samples of several sizes, some of which can't be read."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, number: int) -> Any:
        if number in (3, 150):
            raise OSError(f"no {number}")
        return {"image": PHOTOS[0, : 2 + number % 4], "name": f"n{number % 3}", "x": number / 2}


def test_statistics_list_what_cannot_be_read(capsys):
    found = statistics(Broken(), 2)
    assert found.corrupt == ((3, "OSError: no 3"), (150, "OSError: no 150"))
    assert sum(found.sizes.values()) == sum(found.labels.values()) == 198
    assert set(found.labels) == {"n0", "n1", "n2"}
    numbers = [each for each in found.fields if each.name == "x"]
    assert (numbers[0].kind, numbers[0].low, numbers[0].high) == ("number", 0, 99.5)
    parts = ["200 samples", "4 shapes, 2 x 5 x 3 to 5 x 5 x 3", "2 can't be read", "3: OSError"]
    assert [part for part in parts if part not in str(found)] == []
    assert capsys.readouterr().out == ""


def test_statistics_of_a_folder(tmp_path):
    folder(tmp_path / "photos")
    with open_images(tmp_path / "photos") as source:
        whole = statistics(source, progress=False)
        path = source.files[0]
    assert (len(whole.mean), sum(whole.labels.values())) == (3, whole.samples)
    with open(path, "wb") as file:
        file.write(b"no image")
    damaged = statistics(tmp_path / "photos", progress=False)
    assert [number for number, _ in damaged.corrupt] == [0]
    assert path in damaged.corrupt[0][1]


def test_statistics_check_their_arguments():
    with pytest.raises(ValueError, match='workers must be >= 1 or "auto", got 0'):
        statistics(PHOTOS, 0)
    with pytest.raises(TypeError, match="source must be an array"):
        statistics(3)
