"""An image and its mask stay a pair: as files, and as features of records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import ImageDecoder, RecordError, materialize, open_images, open_records, pack
from tests.contract.detection import example, written
from tests.contract.front_ends import batches_of, loader_of
from tests.contract.image_files import NEAREST, encoded, palette
from tests.images.pictures import npy

# --- pairs ---


SIZES = [(30, 40), (52, 31), (44, 44), (25, 60)]


def ramp(number: int) -> np.ndarray:
    """A mask, and an image, of which each pixel says where it was."""
    height, width = SIZES[number % len(SIZES)]
    return (np.arange(height)[:, None] * 4 + np.arange(width) + number).astype(np.uint8)


def pairs(folder: Path, count: int = 12) -> list[tuple[str, str]]:
    names = []
    for number in range(count):
        image, mask = folder / f"images/{number:02}.png", folder / f"masks/{number:02}.png"
        names.append((str(image), str(mask)))
        if mask.exists():
            continue
        for path in (image, mask):
            path.parent.mkdir(exist_ok=True)
        image.write_bytes(encoded(np.dstack([ramp(number)] * 3)))
        mask.write_bytes(encoded(palette(ramp(number))))
    return names


def decoders(dtype: str = "uint16") -> tuple[ImageDecoder, ImageDecoder]:
    """Of an image, nearest as well, so that it can be compared; of its mask in another dtype."""
    alike: dict[str, Any] = {"crop": "random_resized", "flip": True}
    return (
        ImageDecoder(24, interpolation="nearest", **alike),
        ImageDecoder(24, dtype=dtype, **NEAREST, **alike),
    )


def batches(
    source: Any, front_end: str = "keras", workers: str = "inline", **options: Any
) -> list[tuple[np.ndarray, np.ndarray]]:
    options |= {"workers": workers, "shuffle": True, "seed": 3}
    with loader_of(front_end, source, 5, **options) as loader:
        return list(batches_of(loader))


@pytest.mark.parametrize(
    ("kind", "front_end", "workers"),
    [
        ("files", "keras", "inline"),
        ("files", "keras", "2 processes"),
        ("folders", "keras", "2 threads"),
        ("table", "keras", "inline"),
        ("records", "keras", "2 threads"),
        ("materialized", "keras", "2 processes"),
        ("files", "gluon", "2 threads"),
        ("records", "gluon", "2 processes"),
    ],
)
def test_pair_is_cropped_and_flipped_alike(kind, front_end, workers, tmp_path):
    # MXNet has no arrays of uint16.
    dtype = "uint16" if front_end == "keras" else "uint8"
    source = opened(kind, tmp_path, dtype)
    found = batches(source, front_end, workers)
    assert sum(len(images) for images, _ in found) == 12
    for images, masks in found:
        assert (images.dtype, masks.dtype) == (np.uint8, dtype)
        np.testing.assert_array_equal(images, masks.repeat(3, 3))
    np.testing.assert_equal(batches(opened(kind, tmp_path, dtype), front_end), found)
    source.close()


def opened(kind: str, folder: Path, dtype: str = "uint16") -> Any:
    decode, names = decoders(dtype), pairs(folder)
    if kind == "files":
        return open_images(names, decode=decode)
    if kind == "materialized":
        return materialize(open_images(names, decode=decode), folder / dtype)
    if kind == "folders":
        return open_images((folder / "images", folder / "masks"), decode=decode)
    if kind == "table":
        lines = ["image,mask", *(f"images/{Path(a).name},masks/{Path(b).name}" for a, b in names)]
        (folder / "pairs.csv").write_text("\n".join(lines))
        return open_images(folder / "pairs.csv", decode=decode, columns=("image", "mask"))
    path = folder / "pairs.tfrecord"
    if not path.exists():
        contents = ([Path(name).read_bytes() for name in pair] for pair in names)
        written(path, [example({"image": [image], "mask": [mask]}) for image, mask in contents])
    named = dict(zip(("image", "mask"), decode))
    return open_records(path, decode=named, outputs=("image", "mask"))


def test_pair_by_itself(tmp_path):
    source = open_images(pairs(tmp_path), decode=decoders())
    image, mask = source[3]
    np.testing.assert_array_equal(image, mask.repeat(3, 2))
    assert (len(source), len(source[2:4]), source.files[0][1][-6:]) == (12, 2, "00.png")


def test_masks_of_half_the_size(tmp_path):
    """In proportion: to the pixel of the smaller one."""
    image = np.dstack([np.arange(80)[:, None] + np.arange(100)] * 3).astype(np.uint8)
    (tmp_path / "a.png").write_bytes(encoded(image))
    (tmp_path / "b.png").write_bytes(encoded(image[::2, ::2, 0].copy()))
    decode = decoders()
    source = open_images([(tmp_path / "a.png", tmp_path / "b.png")] * 30, decode=decode)
    for images, masks in batches(source):
        assert np.abs(images[..., :1].astype(int) - masks).max() <= 6


@pytest.mark.parametrize(
    ("kind", "crop"),
    [("JPEG", "random_resized"), ("JPEG", "random"), ("PNG", "center"), ("NPY", None)],
)
def test_pair_has_the_same_box(kind, crop, tmp_path):
    """Whatever draws for them and decodes them, in C or in Python: within a pixel of the ramp."""
    shades = (np.arange(60)[:, None] + np.arange(90)).astype(np.uint8)
    shaded = np.dstack([shades] * 3)
    (tmp_path / "image").write_bytes(npy(shaded) if kind == "NPY" else encoded(shaded, kind))
    (tmp_path / "mask").write_bytes(encoded(shades))
    alike: dict[str, Any] = {"crop": crop, "flip": True}
    alike |= {"resize_short": 48} if crop in ("center", "random") else {}
    decode = ImageDecoder(40, **alike), ImageDecoder(40, **NEAREST, **alike)
    source = open_images([(tmp_path / "image", tmp_path / "mask")] * 40, decode=decode)
    for images, masks in batches(source):
        assert np.abs(images.astype(int) - masks).max() <= 5
        assert np.abs(images.astype(int) - masks).mean() < 1


def test_pair_of_its_own_size(tmp_path):
    decode = ImageDecoder(flip=True), ImageDecoder(flip=True, **NEAREST)
    for image, mask in open_images(pairs(tmp_path), decode=decode):
        np.testing.assert_array_equal(image[:, :, :1], mask)


def test_masks_are_no_names_of_classes(tmp_path):
    with pytest.raises(ValueError, match=r'decode=\(ImageDecoder.*interpolation="nearest"\)'):
        open_images(pairs(tmp_path), decode=ImageDecoder(24))
    with pytest.raises(ValueError, match=r'decode=\(ImageDecoder.*interpolation="nearest"\)'):
        open_images((tmp_path / "images", tmp_path / "masks"), decode=ImageDecoder(24))
    with pytest.raises(ValueError, match=r"labels beside its files.*masks/00.png"):
        open_images([(Path(image), Path(mask)) for image, mask in pairs(tmp_path)])


def test_class_may_be_called_like_a_file(tmp_path):
    (image, _), *_ = pairs(tmp_path)
    assert open_images([(image, "a.png")]).classes == ["a.png"]


def test_folders_that_do_not_match(tmp_path):
    pairs(tmp_path)
    (tmp_path / "masks/03.png").rename(tmp_path / "masks/3_mask.png")
    with pytest.raises(ValueError, match=r"2 in only one of .*'03', '3_mask'.*list of tuples"):
        open_images((tmp_path / "images", tmp_path / "masks"), decode=decoders())


@pytest.mark.parametrize("other", [{"crop": None}, {"flip": False}, {"area": (0.5, 1)}])
def test_decoders_that_tear_a_pair_apart(tmp_path, other):
    first, _ = decoders()
    second = ImageDecoder(24, **NEAREST, **{"crop": "random_resized", "flip": True, **other})
    with pytest.raises(ValueError, match="decode must crop and flip all images of a sample alike"):
        open_images(pairs(tmp_path), decode=(first, second))
    opened("records", tmp_path).close()
    with pytest.raises(ValueError, match="decode must crop and flip all images of a sample alike"):
        open_records(tmp_path / "pairs.tfrecord", decode={"image": first, "mask": second})


@pytest.mark.parametrize("other", [None, type("Own", (ImageDecoder,), {})(24, **NEAREST)])
def test_decoder_beside_one_that_moves_nothing(tmp_path, other):
    with pytest.raises(ValueError, match="decode must crop and flip all images of a sample alike"):
        open_images(pairs(tmp_path), decode=(decoders()[0], other))


@pytest.mark.parametrize("crop", ["center", "random"])
@pytest.mark.parametrize("other", [{"size": (24, 12)}, {"resize_short": 40}, {"size": 12}])
def test_decoders_that_cut_other_boxes(tmp_path, crop, other):
    alike: dict[str, Any] = {"size": 24, "crop": crop, "resize_short": 30}
    half = {**alike, "size": 12, "resize_short": 15}
    names = pairs(tmp_path)
    open_images(names, decode=(ImageDecoder(**alike), ImageDecoder(**NEAREST, **half))).close()
    with pytest.raises(ValueError, match="decode must cut the same box out of all images"):
        open_images(names, decode=(ImageDecoder(**alike), ImageDecoder(**{**alike, **other})))


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ([("a.png", "b.png", "c.png")], "list of tuples of 2 files, got .* in place 0"),
        (["a.png", "b.png"], r"list\(zip\(images, masks\)\)"),
        ("a.png", "got 'a.png'"),
        ([("a.png", 3)], "in place 0"),
    ],
)
def test_places_other_than_pairs(where, message):
    with pytest.raises(TypeError, match=message):
        open_images(where, decode=decoders())


def test_damaged_mask_is_named(tmp_path):
    names = pairs(tmp_path)
    Path(names[4][1]).write_bytes(b"no image")
    source = open_images(names, decode=decoders())
    with pytest.raises(RecordError, match=r"masks/04\.png"):
        batches(source)
    found = batches(source, on_error="skip")
    for images, masks in found:
        np.testing.assert_array_equal(images, masks.repeat(3, 3))


def test_pairs_are_not_packed_as_labelled_images(tmp_path):
    source = open_images(pairs(tmp_path), decode=decoders())
    with pytest.raises(TypeError, match="RecordWriter"):
        pack(source, tmp_path / "x.rec", format="recordio")
