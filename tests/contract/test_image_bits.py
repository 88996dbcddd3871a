"""An image keeps its bits, channels and pages; what would be lost unasked is an error."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

import adapters
from adapters import Feature, ImageDecoder, RecordError, SafeSequence, open_records, pack
from tests.contract import image_files
from tests.contract.image_files import COLOURS, NEAREST, RGB16, SIXTEEN, TRANSPARENT, encoded, tiff
from tests.images.pictures import npy
from tests.records.materials import SUFFIXES
from tests.sources.example_files import encoded as example
from tests.sources.example_files import file_of

RNG = np.random.default_rng(8)


# --- what is stored is kept ---


PLANES = np.moveaxis(RGB16, 2, 0)
KEPT = {
    "16-bit grey PNG": (encoded(SIXTEEN), SIXTEEN),
    "16-bit RGB PNG": (image_files.by_opencv(RGB16), RGB16),
    "16-bit RGBA PNG": (image_files.by_opencv(image_files.RGBA16), image_files.RGBA16),
    "16-bit RGB TIFF": (tiff(RGB16, photometric="rgb"), RGB16),
    "16-bit NPY": (npy(SIXTEEN), SIXTEEN),
    "16-bit JPEG 2000": (encoded(SIXTEEN, "JPEG2000"), SIXTEEN),
    "TIFF of 2 bands": image_files.bands(2),
    "TIFF of 3 bands that aren't RGB": image_files.bands(3, "uint8"),
    "TIFF of 4 bands": image_files.bands(4, extrasamples=["unspecified"] * 3),
    "TIFF of 13 bands": image_files.bands(13),
    "planar TIFF": (tiff(PLANES, photometric="rgb", planarconfig="separate"), RGB16),
    "RGBA TIFF": (encoded(TRANSPARENT, "TIFF"), TRANSPARENT),
    "RGBA TIFF, upside down": (encoded(TRANSPARENT, "TIFF", tiffinfo={274: 4}), TRANSPARENT[::-1]),
    "RGBA TIFF, alpha multiplied": (
        tiff(TRANSPARENT, photometric="rgb", extrasamples=["assocalpha"]),
        TRANSPARENT,
    ),
}


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
@pytest.mark.parametrize("name", KEPT)
def test_bits_and_bands_are_kept(name, dtype):
    content, expected = KEPT[name]
    expected = np.atleast_3d(expected)
    for channels in (expected.shape[2], None):
        found = ImageDecoder(dtype=dtype, channels=channels).decode(content)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shape", [(30, 40), (30, 40, 3), (30, 40, 13)])
def test_floats_are_kept(shape):
    values = RNG.normal(size=shape).astype(np.float32)
    kind = "rgb" if shape[2:] == (3,) else "minisblack"
    content = tiff(values, photometric=kind, planarconfig="contig" if len(shape) == 3 else None)
    found = ImageDecoder(dtype="float32", channels=None).decode(content)
    np.testing.assert_array_equal(found, values.reshape(*shape[:2], -1))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_alpha_is_as_stored(dtype):
    """Opaque by the file's own bits, whatever dtype is asked for."""
    np.testing.assert_array_equal(ImageDecoder(dtype=dtype).decode(encoded(OPAQUE)), COLOURS)
    found = ImageDecoder(dtype=dtype, channels=4).decode(encoded(COLOURS))
    np.testing.assert_array_equal(found, OPAQUE)


def test_tiff_of_signed_colours_is_kept():
    values = RNG.integers(-99, 99, (30, 40, 3), np.int16)
    found = ImageDecoder(dtype="float32").decode(tiff(values, photometric="rgb"))
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("signed", ["int8", "int16", "int32"])
@pytest.mark.parametrize("kind", [tiff, npy])
def test_negative_numbers_are_no_uint16(kind, signed):
    values = np.array([[-1, 5], [7, -100]], signed)
    content = kind(values)
    with pytest.raises(ValueError, match='dtype="float32"'):
        ImageDecoder(dtype="uint16", channels=1).decode(content)
    found = ImageDecoder(dtype="float32", channels=1).decode(content)
    np.testing.assert_array_equal(found[:, :, 0], values)
    with pytest.raises(ValueError, match='dtype="float32"'):
        ImageDecoder(dtype="uint16").decode(tiff(RNG.random((30, 40)).astype("f4")))


def test_bands_first_with_mean_and_std():
    content, expected = image_files.bands(5)
    decoder = ImageDecoder(
        dtype="float32", channels=5, layout="NCHW", mean=range(5), std=[1, 2, 4, 8, 16]
    )
    wanted = (expected.astype(np.float32) - np.arange(5)) / [1, 2, 4, 8, 16]
    np.testing.assert_allclose(decoder.decode(content), wanted.transpose(2, 0, 1), rtol=1e-6)


OPAQUE = np.dstack([COLOURS, np.full((30, 40), 255, np.uint8)])
SHADES = cv2.cvtColor(COLOURS, cv2.COLOR_RGB2GRAY)


@pytest.mark.parametrize(
    ("content", "channels", "expected"),
    [
        (encoded(COLOURS[:, :, 0]), 3, COLOURS[:, :, :1].repeat(3, 2)),
        (encoded(OPAQUE), 3, COLOURS),
        (encoded(image_files.palette()), 3, np.array(image_files.palette().convert("RGB"))),
        (npy(COLOURS[:, :, 0] > 99), 3, (COLOURS[:, :, :1] > 99).repeat(3, 2)),
        (encoded(COLOURS), 4, OPAQUE),
        (encoded(COLOURS), 1, SHADES[..., None]),
    ],
    ids=["grey", "opaque RGBA", "palette", "booleans", "RGBA of RGB", "grey of colours"],
)
def test_channels_of_what_loses_nothing(content, channels, expected):
    np.testing.assert_array_equal(ImageDecoder(channels=channels).decode(content), expected)
    if channels == 3:
        np.testing.assert_array_equal(ImageDecoder().decode(content), expected)


# --- what would be lost is an error, with the remedy ---


FRAMES = [Image.fromarray(COLOURS), Image.fromarray(COLOURS[::-1].copy())]
MOVING = {"save_all": True, "append_images": FRAMES[1:]}
LOST = {
    "16-bit PNG": (encoded(SIXTEEN), 'dtype="uint16"'),
    "16-bit TIFF": (tiff(RGB16, photometric="rgb"), 'dtype="uint16"'),
    "16-bit NPY": (npy(RGB16), 'dtype="uint16"'),
    "16-bit JPEG 2000": (encoded(SIXTEEN, "JPEG2000"), 'dtype="uint16"'),
    "float TIFF": (tiff(COLOURS.astype("f4"), photometric="rgb"), 'dtype="float32"'),
    "HDR": (image_files.by_opencv(COLOURS.astype("f4"), ".hdr"), 'dtype="float32"'),
    "RGBA PNG": (encoded(TRANSPARENT), "channels=4 or None keeps it.*channels=3 drops"),
    "RGBA WebP": (encoded(TRANSPARENT, "WEBP", lossless=True, exact=True), "channels=4"),
    "RGBA NPY": (npy(TRANSPARENT), "channels=4"),
    "grey and alpha": (encoded(TRANSPARENT[:, :, 2:]), "channels=2"),
    "transparent colour": (encoded(COLOURS, transparency=tuple(COLOURS[3, 4].tolist())), "=4"),
    "transparent grey": (encoded(image_files.IDS, transparency=7), "channels=2"),
    "transparent index": (encoded(image_files.palette(), transparency=7), "channels=4"),
    "13 bands": (image_files.bands(13, "uint8")[0], "channels=13 or None"),
    "2 bands": (image_files.bands(2, "uint8")[0], "channels=2"),
    "pages": (encoded(FRAMES[0], "TIFF", **MOVING), "function"),
    "moving GIF": (encoded(FRAMES[0], "GIF", **MOVING), "function"),
    "moving WebP": (encoded(FRAMES[0], "WEBP", **MOVING), "function"),
}


@pytest.mark.parametrize("way", ["the default", "an ImageDecoder", "a batch", "records"])
@pytest.mark.parametrize("name", LOST)
def test_lost_unasked_is_an_error_with_the_remedy(name, way, tmp_path):
    content, remedy = LOST[name]
    if way == "the default" and "NPY" in name:
        pytest.skip("an array in NPY's format is what it is")
    path = tmp_path / "ant" / "image.bin"
    path.parent.mkdir()
    path.write_bytes(content)
    decode = None if way == "the default" else ImageDecoder(16)
    source: Any
    if way == "records":
        path = file_of(tmp_path, [example({"image": [content], "label": [1]})])
        source = open_records(path, decode={"image": ImageDecoder(16), "label": Feature("int64")})
    else:
        source = adapters.open_images([path], decode=decode)
    with pytest.raises(RecordError, match=remedy) as raised:
        SafeSequence(source, 1, workers=0)[0] if way == "a batch" else source[0]
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("name", ["RGBA PNG", "RGBA WebP", "RGBA NPY"])
def test_lost_if_three_channels_are_written_out(name):
    np.testing.assert_array_equal(ImageDecoder(channels=3).decode(LOST[name][0]), COLOURS)


def test_decoder_shows_what_was_written_out():
    assert repr(ImageDecoder(8)) == "ImageDecoder((8, 8))"
    assert repr(ImageDecoder(8, channels=3)) == "ImageDecoder((8, 8), channels=3)"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"channels": 0}, ValueError, "channels must be >= 1, or None for those stored, got 0"),
        ({"channels": "RGB"}, TypeError, "channels must be an integer.*got 'RGB'"),
        ({"channels": 1.5}, TypeError, "channels must be an integer.*got 1.5"),
        ({"interpolation": "lanczos"}, ValueError, "interpolation must be one of.*'nearest'"),
        ({"dtype": "int32"}, ValueError, "dtype must be one of 'uint8', 'uint16', 'float32'"),
        ({"dtype": "uint16", "mean": 1}, ValueError, 'mean and std need dtype="float32"'),
        ({"dtype": "float32", "channels": 4, "mean": (1, 2, 3)}, ValueError, "one per channel"),
    ],
)
def test_arguments_are_checked(arguments, error, message):
    with pytest.raises(error, match=message):
        ImageDecoder(8, **arguments)


# --- masks ---


def test_nearest_is_opencvs_and_pillows_on_500_crops():
    """Halfway between two pixels, either is right, and Pillow's choice is that of its rounding."""
    for seed in range(500):
        rng = np.random.default_rng(seed)
        height, width, *goals = (int(side) for side in rng.integers(2, 70, 4))
        ids = rng.integers(0, 256, (height, width), np.uint8)
        decoder = ImageDecoder(tuple(goals), crop="random_resized", flip=True, **NEAREST)
        crop = decoder.crop_of(*ids.shape, np.random.default_rng(seed))
        found = decoder.decode(encoded(ids), np.random.default_rng(seed))[:, :, 0]
        found = found[:, ::-1] if crop.flip else found
        part = ids[crop.top : crop.top + crop.height, crop.left : crop.left + crop.width]
        exact = cv2.resize(part, goals[::-1], interpolation=cv2.INTER_NEAREST_EXACT)
        np.testing.assert_array_equal(found, exact)
        clear = [
            (2 * np.arange(goal) + 1) * length % (2 * goal) > 0
            for goal, length in zip(goals, part.shape)
        ]
        both = np.ix_(*clear)
        pillows = np.array(Image.fromarray(part).resize(goals[::-1], Image.Resampling.NEAREST))
        np.testing.assert_array_equal(found[both], pillows[both])


@pytest.mark.parametrize(
    ("kind", "crop"),
    [("PNG", None), ("TIFF", "center"), ("NPY", "random"), ("PNG", "random"), ("TIFF", None)],
)
def test_mask_has_no_other_ids(kind, crop):
    content = npy(image_files.IDS) if kind == "NPY" else encoded(image_files.IDS, kind)
    resize = {"resize_short": 26} if crop in ("center", "random") else {}
    for size in (7, (19, 33), 90):
        decoder = ImageDecoder(size, crop=crop, flip=True, **resize, **NEAREST)
        found = decoder.decode(content, np.random.default_rng(3))
        assert set(np.unique(found)) <= {0, 1, 7, 255}


@pytest.mark.parametrize("channels", [1, None])
@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "GIF"])
def test_mask_by_a_palette(kind, channels):
    content = encoded(image_files.palette(), kind)
    decoder = ImageDecoder(channels=channels, interpolation="nearest")
    stored = np.array(Image.open(io.BytesIO(content)))
    np.testing.assert_array_equal(decoder.decode(content)[:, :, 0], stored)
    # As a GIF, Pillow renumbers its colours.
    assert kind == "GIF" or (stored == image_files.IDS).all()


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_mask_by_a_small_palette(bits):
    ids = RNG.integers(0, 1 << bits, (30, 41), np.uint8)
    content = encoded(image_files.palette(ids), bits=bits)
    np.testing.assert_array_equal(ImageDecoder(**NEAREST).decode(content)[:, :, 0], ids)


def test_nearest_of_a_jpeg():
    stripes = np.zeros((160, 160, 3), np.uint8)
    stripes[:, ::2] = 255
    found = ImageDecoder(20, interpolation="nearest").decode(
        encoded(stripes, "JPEG", quality=100, subsampling=0)
    )
    assert ((found < 20) | (found > 235)).all()


@pytest.mark.parametrize(("name", "flag"), [("area", cv2.INTER_AREA), ("cubic", cv2.INTER_CUBIC)])
@pytest.mark.parametrize("image", [COLOURS, SIXTEEN])
def test_interpolations_are_opencvs(name, flag, image):
    width = 20 if name == "area" else 50
    decoder = ImageDecoder((9, width), interpolation=name, channels=None, dtype="uint16")
    found = decoder.decode(encoded(image)).squeeze()
    wanted = cv2.resize(image.astype(np.uint16), (width, 9), interpolation=flag)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_16_bits_are_cut_and_resized_as_8(dtype):
    rng = np.random.default_rng(5)
    decoder = ImageDecoder(
        (9, 11), crop="random", resize_short=16, flip=True, dtype=dtype, channels=1
    )
    crop = decoder.crop_of(30, 40, np.random.default_rng(5))
    whole = cv2.resize(SIXTEEN.astype(dtype), crop.resized[::-1])
    wanted = whole[crop.top : crop.top + 9, crop.left : crop.left + 11]
    found = decoder.decode(encoded(SIXTEEN), rng)[:, :, 0]
    np.testing.assert_array_equal(found, wanted[:, ::-1] if crop.flip else wanted)


# --- packing ---


def packed(folder: Path, content: bytes, format: str = "recordio", **options: Any) -> Path:
    path = folder / f"x{SUFFIXES[format]}"
    pack([(content, 1)], path, format=format, **options)
    return path


STORED = {
    "16-bit grey": (encoded(SIXTEEN), SIXTEEN[..., None]),
    "16-bit RGB": (image_files.by_opencv(RGB16), RGB16),
    "16-bit RGBA": (image_files.by_opencv(image_files.RGBA16), image_files.RGBA16),
    "RGBA": (encoded(TRANSPARENT), TRANSPARENT),
    "grey": (encoded(COLOURS[:, :, 0]), COLOURS[:, :, :1]),
    "13 bands": image_files.bands(13),
    "floats": (tiff(COLOURS / np.float32(7), photometric="rgb"), COLOURS / np.float32(7)),
}


@pytest.mark.parametrize("format", ["recordio", "tfrecord"])
@pytest.mark.parametrize("name", STORED)
def test_raw_records_hold_what_was_stored(name, format, tmp_path):
    content, expected = STORED[name]
    out = packed(tmp_path, content, format, encoding="raw")
    dtype = "float32" if expected.dtype == np.float32 else "uint16"
    decoder = ImageDecoder(dtype=dtype, channels=None)
    np.testing.assert_array_equal(open_records(out, decode=decoder)[0][0], expected)
    decoder = ImageDecoder((30, 40), dtype=dtype, channels=expected.shape[2])
    ((batch, _),) = list(SafeSequence(open_records(out, decode=decoder), 1, workers=0))
    np.testing.assert_array_equal(np.array(batch)[0], expected)


@pytest.mark.parametrize("name", [name for name in STORED if name != "13 bands"])
def test_raw_records_resized(name, tmp_path):
    content, expected = STORED[name]
    out = packed(tmp_path, content, encoding="raw", resize=15)
    found, _ = open_records(out, decode="image")[0]
    wanted = cv2.resize(expected, (20, 15)).reshape(15, 20, -1)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", [name for name in STORED if name != "grey"])
def test_jpeg_records_cannot_hold_all(name, tmp_path):
    with pytest.raises(RecordError, match='encoding="raw" takes any'):
        packed(tmp_path, STORED[name][0], encoding="jpeg")


def rotated(orientation: int, kind: str = "JPEG") -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    shades = np.dstack([cv2.resize(COLOURS[:3, :4], (40, 32))[:, :, 0]] * 3)
    return encoded(shades, kind, exif=exif.tobytes())


@pytest.mark.parametrize(
    ("orientation", "options"),
    list(zip(range(1, 9), itertools.cycle([{"encoding": "raw"}, {"quality": 95}, {"resize": 16}]))),
)
def test_exif_photo_is_upright_if_encoded_again(orientation, options, tmp_path):
    """As MXNet's im2rec has it, which reads images by ``cv2.imread``."""
    content = rotated(orientation)
    wanted = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1]
    if "resize" in options:
        wanted = cv2.resize(wanted, (20, 16) if orientation < 5 else (16, 20))
    found, _ = open_records(packed(tmp_path, content, **options), decode="image")[0]
    assert found.shape == wanted.shape
    assert np.abs(found.astype(int) - wanted).mean() < 6


FILLED = rotated(6).replace(b"\xff\xe1", b"\xff\xff\xe1", 1)


@pytest.mark.parametrize("content", [rotated(6, "PNG"), rotated(6, "WEBP"), FILLED])
def test_exif_of_other_kinds_is_upright(content, tmp_path):
    out = packed(tmp_path, content, encoding="raw")
    assert open_records(out, decode="image")[0][0].shape == (40, 32, 3)


def test_exif_photo_is_kept_otherwise(tmp_path):
    with open_records(packed(tmp_path, rotated(6)), decode=None) as records:
        assert records[0].endswith(rotated(6))
