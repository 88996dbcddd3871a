"""Batches of records: what is made of each sample, in its row."""

from __future__ import annotations

from typing import Any

import cloudpickle
import numpy as np
import pytest

from adapters import ImageDecoder, RecordError, open_records
from adapters.batch.key import BatchKey
from adapters.generators import DECODE, generator
from adapters.records import irheader
from tests.batches import exact
from tests.images.pictures import encoded, npy, picture
from tests.plans import batch_of, epoch_of, plan_of
from tests.sources.every_kind import all_samples
from tests.sources.record_files import (
    FORMATS,
    SIZE,
    damage,
    jpeg_file,
    payload,
    raw_file,
    write,
    write_images,
)

every_format = pytest.mark.parametrize("format", FORMATS)
RANDOM = ImageDecoder(16, crop="random_resized", flip=True)


@every_format
@pytest.mark.parametrize("record", [0, 4, SIZE - 1])
@pytest.mark.parametrize("decode", [ImageDecoder(8), RANDOM])
def test_skip_takes_the_next_record_as_it_is_in_its_own_place(tmp_path, format, record, decode):
    good = [encoded(picture(9 + n, 9), "JPEG") for n in range(SIZE)]
    bad = [*good[:record], good[record][:-9], *good[record + 1 :]]
    files = [write_images(tmp_path / name, format, part) for name, part in zip("ab", (good, bad))]
    all_good, skipping = (
        plan_of(open_records(f, decode=decode), SIZE, on_error="skip") for f in files
    )
    expected = np.where(np.arange(SIZE) == record, (record + 1) % SIZE, np.arange(SIZE))
    done = skipping.batch(BatchKey(2, 0), np.empty)
    assert exact(done.batch) == exact(tuple(a[expected] for a in batch_of(all_good, 2)))
    assert done.skipped == 1


def test_a_damaged_header_in_the_first_record_does_not_tell_what_labels_are_like(tmp_path):
    """It says that one label follows, which is the beginning of the image."""
    path = jpeg_file(tmp_path, "recordio")
    damage(path, 8, 1)
    done = plan_of(open_records(path, decode=ImageDecoder(8)), 4, on_error="skip").batch(
        BatchKey(0, 0), np.empty
    )
    assert (done.batch[1].tolist(), done.skipped) == ([1.0, 1.0, 2.0, 3.0], 1)


def test_labels_of_text_may_be_of_any_length(tmp_path):
    contents = [encoded(picture(9, 9), "PNG")] * 3
    path = write_images(tmp_path / "a", "tfrecord", contents, ["cat", "horse", "cow"])
    batch = batch_of(plan_of(open_records(path, decode=ImageDecoder(8)), 3))
    assert list(batch[1]) == [b"cat", b"horse", b"cow"]


@every_format
@pytest.mark.parametrize("decode", [ImageDecoder(8), RANDOM])
def test_a_batch_is_what_its_samples_are_with_their_own_generators(tmp_path, format, decode):
    source = open_records(jpeg_file(tmp_path, format), decode=decode)
    plan = plan_of(source, 4, shuffle=True, seed=5)
    for index, (images, labels) in enumerate(epoch_of(plan, 3)):
        order = plan.order.batch(3, index).tolist()
        samples = [source.sample(n, generator(5, 3, n, DECODE)) for n in order]
        np.testing.assert_array_equal(images, [image for image, _ in samples])
        assert labels.tolist() == [label for _, label in samples]


def test_both_formats_give_the_same_pixels_in_a_random_crop(tmp_path):
    sources = [open_records(jpeg_file(tmp_path, each), decode=RANDOM) for each in FORMATS]
    one, other = (batch_of(plan_of(source, SIZE), 1)[0] for source in sources)
    assert exact(one) == exact(other)


def test_every_epoch_and_every_seed_has_other_crops(tmp_path):
    source = open_records(jpeg_file(tmp_path, "recordio"), decode=RANDOM)
    batches = [
        batch_of(plan_of(source, SIZE, seed=s), e)[0].tobytes() for s, e in [(0, 0), (0, 1), (1, 0)]
    ]
    assert len(set(batches)) == 3


def test_a_sample_without_a_generator_has_the_crop_of_epoch_0_under_seed_0(tmp_path):
    source = open_records(jpeg_file(tmp_path, "recordio"), decode=RANDOM)
    np.testing.assert_array_equal(
        np.stack([image for image, _ in all_samples(source)]), batch_of(plan_of(source, SIZE))[0]
    )


def test_a_batch_is_written_where_it_is_wanted(tmp_path):
    source = open_records(jpeg_file(tmp_path, "recordio"), decode=ImageDecoder(8))
    given: list[Any] = []

    def allocate(shape: Any, dtype: Any) -> Any:
        given.append(np.empty(shape, dtype))
        return given[-1]

    batch = plan_of(source, 4).batch(BatchKey(0, 0), allocate).batch
    assert [each is own for each, own in zip(batch, given, strict=True)] == [True, True]


def test_transforms_come_after_the_decoder(tmp_path):
    source = open_records(jpeg_file(tmp_path, "recordio"), decode=ImageDecoder(8))

    def transform(sample: Any) -> Any:
        sample[0][:] //= 2  # The array is the transform's own.
        return sample[0], sample[1] + 1

    plain = batch_of(plan_of(source))
    found = batch_of(plan_of(source, transform=transform, batch_transform=lambda b: (b[0], -b[1])))
    np.testing.assert_array_equal(found[0], plain[0] // 2)
    assert found[1].tolist() == [-1, -2, -3, -4]


@pytest.mark.parametrize("format", FORMATS)
def test_a_transform_may_change_a_raw_array(tmp_path, format):
    path = raw_file(tmp_path, format)
    before = path.read_bytes()

    def transform(sample: Any) -> Any:
        sample[0][:] = 1
        return sample

    batch = batch_of(plan_of(open_records(path, decode="image"), transform=transform))
    assert (batch[0].min(), path.read_bytes() == before) == (1, True)


def test_one_image_per_record_may_have_any_number_of_labels(tmp_path):
    records = [irheader.pack([n, n / 2], n, npy(picture(2, 2))) for n in range(3)]
    source = open_records(write(tmp_path / "a.rec", "recordio", records), decode="image")
    assert batch_of(plan_of(source))[1].tolist() == [[0, 0], [1, 0.5], [2, 1]]


def test_a_label_that_the_batch_cannot_hold_is_refused(tmp_path):
    contents = [encoded(picture(9, 9), "PNG")] * 2
    path = write_images(tmp_path / "a", "tfrecord", contents, [1, 1.5])
    with pytest.raises(RecordError, match=r"record 1, .*expected a label of int64, found 1.5"):
        batch_of(plan_of(open_records(path, decode=ImageDecoder(8)), 2))


def test_processes_do_not_get_the_file(tmp_path):
    """It is some 30 MB; each process maps it, and reads what it needs."""
    path = write(
        tmp_path / "a.rec",
        "recordio",
        [payload("recordio", npy(picture(512, 512)), n) for n in range(40)],
    )
    source = open_records(path, decode="image")
    assert path.stat().st_size > 30_000_000
    assert len(cloudpickle.dumps(plan_of(source))) < 10_000


@every_format
def test_a_plan_knows_whether_it_only_decodes_images(tmp_path, format):
    """For those, threads are right without a measurement."""
    jpegs, arrays = jpeg_file(tmp_path, format), raw_file(tmp_path, format)
    assert plan_of(open_records(jpegs, decode=RANDOM)).only_decodes

    class Own(ImageDecoder):
        """Whose methods may be anything."""

    others = [
        plan_of(open_records(jpegs, decode=Own(16))),
        plan_of(open_records(jpegs, decode=ImageDecoder())),  # Of any size: samples are collated.
        plan_of(open_records(jpegs, decode="image")),
        plan_of(open_records(arrays, decode="image")),
        plan_of(open_records(jpegs)),
        plan_of(open_records(jpegs, decode=RANDOM), transform=lambda sample: sample),
        plan_of(open_records(jpegs, decode=RANDOM), batch_transform=lambda batch: batch),
        plan_of([1, 2, 3]),
    ]
    assert not any(plan.only_decodes for plan in others)
