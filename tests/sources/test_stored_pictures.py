"""Record files of raw pictures behind an ``ImageDecoder``: boxes of them, in C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import ImageDecoder, RecordError, open_records, pack
from adapters.generators import DECODE, generator
from adapters.images import kernel
from tests.images.pictures import picture
from tests.plans import batch_of, epoch_of, plan_of
from tests.sources.record_files import FORMATS, SUFFIXES, payload, write

SIZE = 9
RANDOM = ImageDecoder(16, crop="random_resized", flip=True)
DECODES = {
    "random": RANDOM,
    "centre": ImageDecoder(16, crop="center", resize_short=18),
    "float": ImageDecoder(16, crop="random", dtype="float32", layout="NCHW", mean=100, std=50),
}
every_format = pytest.mark.parametrize("format", FORMATS)


def pictures() -> list[tuple[Any, int]]:
    """Of several sizes, odd ones too."""
    return [(picture(20 + n, 40 - 2 * n) // 2 + np.uint8(n), n) for n in range(SIZE)]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """The same pictures in each format."""
    folder, found = tmp_path_factory.mktemp("files"), {}
    for format in FORMATS:
        path = found[format] = folder / f"raw{SUFFIXES[format]}"
        pack(pictures(), path, format=format, encoding="raw")
    return found


@every_format
@pytest.mark.parametrize("decode", DECODES)
def test_a_batch_is_what_its_samples_are_with_their_own_generators(files, format, decode):
    source = open_records(files[format], decode=DECODES[decode])
    plan = plan_of(source, 4, shuffle=True, seed=5)
    for epoch in (0, 1):
        for index, (images, labels) in enumerate(epoch_of(plan, epoch)):
            order = plan.order.batch(epoch, index).tolist()
            samples = [source.sample(n, generator(5, epoch, n, DECODE)) for n in order]
            np.testing.assert_array_equal(images, [image for image, _ in samples])
            assert labels.tolist() == [label for _, label in samples]


@pytest.mark.skipif(kernel.load() is None, reason="the kernel isn't built, or switched off")
@every_format
@pytest.mark.parametrize("decode", DECODES)
def test_the_pixels_are_those_without_the_kernel(files, format, decode, monkeypatch):
    """Within 1: OpenCV rounds otherwise at times."""
    source = open_records(files[format], decode=DECODES[decode])
    images, _ = batch_of(plan_of(source, SIZE, shuffle=True), 1)
    monkeypatch.setattr(kernel, "load", lambda: None)
    others, _ = batch_of(plan_of(source, SIZE, shuffle=True), 1)
    levels = 1 if DECODES[decode].dtype == np.uint8 else 1 / 50
    assert np.abs(images.astype(float) - others).max() <= levels * 1.001


def test_both_formats_give_the_same_batches(files):
    one, other = (
        batch_of(plan_of(open_records(files[each], decode=RANDOM), SIZE), 3)[0] for each in FORMATS
    )
    np.testing.assert_array_equal(one, other)


@every_format
def test_whole_pictures_are_rgb(files, format):
    for (image, label), (expected, own) in zip(
        open_records(files[format], decode="image"), pictures()
    ):
        assert (image.dtype, label) == (np.uint8, own)
        np.testing.assert_array_equal(image, expected)


def test_a_feature_may_be_such_a_picture(files):
    features = {"image/encoded": RANDOM}
    with open_records(files["tfrecord"], decode=features) as source:
        images = batch_of(plan_of(source, SIZE), 1)["image/encoded"]
    assert images.shape == (SIZE, 16, 16, 3)


@every_format
@pytest.mark.parametrize("decode", [RANDOM, "image"])
def test_a_picture_cut_short_is_an_error_that_names_its_record(files, tmp_path, format, decode):
    source = open_records(files[format], decode="image")
    records = [bytes(source._content.split(source._files.read(n), format)[0]) for n in range(3)]
    records[1] = records[1][:-1]
    path = write(tmp_path / "x", format, (payload(format, each, 0) for each in records))
    damaged = open_records(path, decode=decode)
    assert damaged[0][0].any()
    with pytest.raises(RecordError, match=r"x, record 1, byte \d+: expected \d+ bytes"):
        damaged[1]
    if decode is RANDOM:
        with pytest.raises(RecordError, match="x, record 1"):
            batch_of(plan_of(damaged, 3))
        images, _ = batch_of(plan_of(damaged, 3, on_error="skip"))
        assert images.any((1, 2, 3)).all()


def test_encodings_may_stand_side_by_side(tmp_path, files):
    """As JPEGs beside them."""
    both = [files["recordio"], files["tfrecord"]]
    pack(pictures(), tmp_path / "c.rec", format="recordio")
    images, labels = batch_of(
        plan_of(open_records([*both, tmp_path / "c.rec"], decode=ImageDecoder(16)), 3 * SIZE)
    )
    assert labels.tolist() == [*range(SIZE)] * 3
    raw, other, jpeg = images.astype(int).reshape(3, SIZE, -1)
    np.testing.assert_array_equal(raw, other)
    assert np.abs(raw - jpeg).mean() < 4
