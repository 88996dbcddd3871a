"""An image keeps its bits, channels and pages; what would be lost unasked is an error."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from adapters import (
    Feature,
    ImageDecoder,
    RecordError,
    RecordWriter,
    SafeSequence,
    open_images,
    open_records,
)
from tests.contract.image_files import (
    COLOURS,
    IDS,
    RGB16,
    RGBA16,
    SIXTEEN,
    TRANSPARENT,
    bands,
    by_opencv,
    encoded,
    npy,
    palette,
    tiff,
)
from tests.sources.example_files import encoded as example

RNG = np.random.default_rng(8)

# --- what is stored is kept ---

KEPT: dict[str, tuple[bytes, np.ndarray, dict[str, Any]]] = {
    "16-bit grey PNG": (encoded(SIXTEEN), SIXTEEN[..., None], {"channels": 1}),
    "16-bit RGB PNG": (by_opencv(RGB16), RGB16, {}),
    "16-bit RGBA PNG": (by_opencv(RGBA16), RGBA16, {"channels": 4}),
    "16-bit RGB TIFF": (tiff(RGB16, photometric="rgb"), RGB16, {}),
    "16-bit NPY": (npy(SIXTEEN), SIXTEEN[..., None], {"channels": 1}),
    "16-bit PGM": (by_opencv(SIXTEEN, ".pgm"), SIXTEEN[..., None], {"channels": 1}),
    "16-bit JPEG 2000": (encoded(SIXTEEN, "JPEG2000"), SIXTEEN[..., None], {"channels": 1}),
    "TIFF of 2 bands": (*bands(2), {"channels": 2}),
    "TIFF of 4 bands": (*bands(4, extrasamples=["unspecified"] * 3), {"channels": 4}),
    "TIFF of 13 bands": (*bands(13), {"channels": 13}),
    "planar TIFF": (
        tiff(np.moveaxis(RGB16, 2, 0), photometric="rgb", planarconfig="separate"),
        RGB16,
        {},
    ),
    "TIFF of 3 bands that aren't RGB": (*bands(3, "uint8"), {}),
    "TIFF of 3 bands of 16 bits": (*bands(3), {}),
    "RGBA TIFF": (encoded(TRANSPARENT, "TIFF"), TRANSPARENT, {"channels": 4}),
    "RGBA TIFF, LZW": (
        encoded(TRANSPARENT, "TIFF", compression="tiff_lzw"),
        TRANSPARENT,
        {"channels": 4},
    ),
    "RGBA TIFF, upside down": (
        encoded(TRANSPARENT, "TIFF", tiffinfo={274: 4}),
        TRANSPARENT[::-1],
        {"channels": 4},
    ),
    "RGBA TIFF, alpha multiplied": (
        tiff(TRANSPARENT, photometric="rgb", extrasamples=["assocalpha"]),
        TRANSPARENT,
        {"channels": 4},
    ),
    "NPY of 8 bands": (npy(RGBA16.repeat(2, 2)), RGBA16.repeat(2, 2), {"channels": 8}),
}


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
@pytest.mark.parametrize("name", KEPT)
def test_more_bits_and_bands_are_kept(name, dtype):
    content, expected, options = KEPT[name]
    for channels in (options, {"channels": None}):
        found = ImageDecoder(dtype=dtype, **channels).decode(content)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shape", [(30, 40), (30, 40, 3), (30, 40, 13)])
def test_floats_are_kept(shape):
    values = RNG.normal(size=shape).astype(np.float32)
    kind = "rgb" if shape[2:] == (3,) else "minisblack"
    content = tiff(values, photometric=kind, planarconfig="contig" if len(shape) == 3 else None)
    found = ImageDecoder(dtype="float32", channels=None).decode(content)
    np.testing.assert_array_equal(found, values.reshape(*shape[:2], -1))


@pytest.mark.parametrize("signed", ["int8", "int16", "int32"])
@pytest.mark.parametrize("kind", [tiff, npy])
def test_negative_numbers_are_no_uint16(kind, signed):
    content = kind(np.array([[-1, 5], [7, -100]], signed))
    with pytest.raises(ValueError, match='dtype="float32"'):
        ImageDecoder(dtype="uint16", channels=1).decode(content)
    assert ImageDecoder(dtype="float32", channels=1).decode(content)[0, 0] == -1


def test_signed_numbers_are_kept_as_float32():
    values = RNG.integers(-1024, 3000, (30, 40)).astype(np.int16)
    found = ImageDecoder(dtype="float32", channels=1).decode(tiff(values))
    np.testing.assert_array_equal(found[:, :, 0], values)


def test_channels_first_with_mean_and_std_for_each_band():
    content, expected = bands(5)
    decoder = ImageDecoder(
        dtype="float32", channels=5, layout="NCHW", mean=range(5), std=[1, 2, 4, 8, 16]
    )
    wanted = (expected.astype(np.float32) - np.arange(5)) / [1, 2, 4, 8, 16]
    np.testing.assert_allclose(decoder.decode(content), wanted.transpose(2, 0, 1), rtol=1e-6)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (encoded(COLOURS[:, :, 0]), COLOURS[:, :, :1].repeat(3, 2)),
        (encoded(np.dstack([COLOURS, np.full((30, 40), 255, np.uint8)])), COLOURS),
        (encoded(palette()), np.array(palette().convert("RGB"))),
        (npy(COLOURS[:, :, 0] > 99), (COLOURS[:, :, :1] > 99).repeat(3, 2)),
    ],
    ids=["grey", "opaque RGBA", "palette", "booleans"],
)
def test_three_channels_of_what_loses_nothing(content, expected):
    np.testing.assert_array_equal(ImageDecoder().decode(content), expected)


def test_rgba_of_rgb_is_opaque():
    found = ImageDecoder(channels=4).decode(encoded(COLOURS))
    np.testing.assert_array_equal(found, np.dstack([COLOURS, np.full((30, 40), 255, np.uint8)]))


def test_grey_of_colours_is_opencvs():
    found = ImageDecoder(channels=1).decode(encoded(COLOURS))
    np.testing.assert_array_equal(found[:, :, 0], cv2.cvtColor(COLOURS, cv2.COLOR_RGB2GRAY))


# --- what would be lost is an error, with the remedy ---

FRAMES = [Image.fromarray(COLOURS), Image.fromarray(COLOURS[::-1].copy())]
LOST = {
    "16-bit PNG": (encoded(SIXTEEN), 'dtype="uint16"'),
    "16-bit TIFF": (tiff(RGB16, photometric="rgb"), 'dtype="uint16"'),
    "16-bit NPY": (npy(RGB16), 'dtype="uint16"'),
    "16-bit JPEG 2000": (encoded(SIXTEEN, "JPEG2000"), 'dtype="uint16"'),
    "float TIFF": (tiff(COLOURS.astype("f4"), photometric="rgb"), 'dtype="float32"'),
    "HDR": (by_opencv(COLOURS.astype("f4"), ".hdr"), 'dtype="float32"'),
    "RGBA PNG": (encoded(TRANSPARENT), "channels=4 or None keeps it.*channels=3 drops"),
    "RGBA WebP": (encoded(TRANSPARENT, "WEBP", lossless=True, exact=True), "channels=4"),
    "RGBA NPY": (npy(TRANSPARENT), "channels=4"),
    "grey and alpha": (encoded(TRANSPARENT[:, :, 2:]), "channels=2"),
    "transparent colour": (encoded(COLOURS, transparency=tuple(COLOURS[3, 4].tolist())), "=4"),
    "transparent grey": (encoded(IDS, transparency=7), "channels=2"),
    "transparent index": (encoded(palette(), transparency=7), "channels=4"),
    "13 bands": (bands(13, "uint8")[0], "channels=13 or None"),
    "2 bands": (bands(2, "uint8")[0], "channels=2"),
    "pages": (encoded(FRAMES[0], "TIFF", save_all=True, append_images=FRAMES[1:]), "function"),
    "moving GIF": (encoded(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:]), "function"),
    "moving WebP": (
        encoded(FRAMES[0], "WEBP", save_all=True, append_images=FRAMES[1:]),
        "function",
    ),
}


@pytest.mark.parametrize("way", ["the default", "an ImageDecoder", "a batch", "records"])
@pytest.mark.parametrize("name", LOST)
def test_what_would_be_lost_unasked_is_an_error_that_says_what_to_write(name, way, tmp_path):
    content, remedy = LOST[name]
    if way == "the default" and "NPY" in name:
        pytest.skip("an array in NPY's format is what it is")
    path = tmp_path / "ant" / "image.bin"
    path.parent.mkdir()
    path.write_bytes(content)
    decode = None if way == "the default" else ImageDecoder(16)
    source: Any
    if way == "records":
        path = tmp_path / "x.tfrecord"
        with RecordWriter(path, format="tfrecord") as writer:
            writer.write(example({"image": [content], "label": [1]}))
        source = open_records(path, decode={"image": ImageDecoder(16), "label": Feature("int64")})
    else:
        source = open_images([path], decode=decode)
    with pytest.raises(RecordError, match=remedy) as raised:
        SafeSequence(source, 1, workers=0)[0] if way == "a batch" else source[0]
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("name", ["RGBA PNG", "RGBA WebP", "RGBA NPY"])
def test_alpha_is_dropped_if_three_channels_are_written_out(name):
    np.testing.assert_array_equal(ImageDecoder(channels=3).decode(LOST[name][0]), COLOURS)


def test_a_decoder_shows_what_was_written_out():
    assert repr(ImageDecoder(8)) == "ImageDecoder((8, 8))"
    assert repr(ImageDecoder(8, channels=3)) == "ImageDecoder((8, 8), channels=3)"


def test_of_more_bits_that_were_asked_to_be_fewer_the_error_says_so():
    with pytest.raises(ValueError, match='dtype="float32"'):
        ImageDecoder(dtype="uint16").decode(tiff(RNG.random((30, 40)).astype("f4")))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"channels": 0}, ValueError, "channels must be >= 1, or None for those stored, got 0"),
        ({"channels": "RGB"}, TypeError, "channels must be a number.*got 'RGB'"),
        ({"channels": 1.5}, TypeError, "channels must be a number.*got 1.5"),
        ({"interpolation": "lanczos"}, ValueError, "interpolation must be one of.*'nearest'"),
        ({"dtype": "int32"}, ValueError, 'dtype must be "uint8", "uint16" or "float32"'),
        ({"dtype": "uint16", "mean": 1}, ValueError, 'mean and std need dtype="float32"'),
        ({"dtype": "float32", "channels": 4, "mean": (1, 2, 3)}, ValueError, "one per channel"),
    ],
)
def test_a_wrong_argument_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        ImageDecoder(8, **arguments)
