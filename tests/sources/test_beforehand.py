"""Decoded samples from a cache: the same samples, and nothing is decoded twice."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import (
    Blocks,
    Cache,
    ImageDecoder,
    RecordError,
    concatenate,
    open_images,
    open_records,
    split,
)
from adapters.errors import ClosedError
from adapters.generators import DECODE, Generators
from adapters.images import planes
from tests.images.pictures import encoded, npy, picture
from tests.sources.every_kind import all_samples
from tests.sources.image_folders import varied
from tests.sources.record_files import FORMATS, SUFFIXES, jpeg_file, write_images

DECODERS = [
    ImageDecoder(16),
    ImageDecoder(16, crop="center", flip=True),
    ImageDecoder((12, 20), crop="center", resize_short=24, layout="NCHW"),
    ImageDecoder(16, crop="random", resize_short=18, flip=True),
    ImageDecoder(60, crop="random", resize_short=18, flip=True),
    ImageDecoder(16, crop="random_resized", flip=True, area=(0.1, 0.6)),
    ImageDecoder(16, crop="random_resized", dtype="float32", mean=[1, 2, 3], std=4, layout="NCHW"),
    ImageDecoder(16, flip=True, dtype="float32", std=9),
]
ROWS = np.array([9, 2, 2, 0, 10, 7])


def cache(folder: Path, limit: Any = "1GB") -> Cache:
    return Cache(folder / "kept", limit, decoded=True)


def batch(source: Any, epoch: int = 0, numbers: Any = ROWS) -> list[Any]:
    """Rows as a plan has them filled."""
    rows = [np.full((len(numbers), *shape), 99, dtype) for shape, dtype in source.leaves]
    rng = Generators(5, epoch, DECODE, numbers) if source.draws else None
    assert source.fill(numbers, rng, rows) == []
    return rows


def same(left: Any, right: Any) -> None:
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def unreadable(path: Path) -> None:
    """Nothing of the file can be read any more, and nobody sees it from outside."""
    status = path.stat()
    path.write_bytes(bytes(status.st_size))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("decoder", DECODERS, ids=repr)
def test_batches_are_those_without_a_cache(tmp_path, format, decoder):
    """In the epoch that fills it, in the next one, and in one that begins with it."""
    path = jpeg_file(tmp_path, format)
    plain = open_records(path, decode=decoder)
    kept = open_records(path, decode=decoder, cache=cache(tmp_path))
    for epoch in range(3):
        same(batch(kept, epoch), batch(plain, epoch))
    again = open_records(path, decode=decoder, cache=cache(tmp_path))
    same(batch(again, 1), batch(plain, 1))


@pytest.mark.parametrize("decoder", DECODERS, ids=repr)
def test_what_is_kept_is_read_from_the_cache_alone(tmp_path, decoder):
    path = jpeg_file(tmp_path, "tfrecord")
    expected = [batch(open_records(path, decode=decoder), epoch) for epoch in (0, 1)]
    batch(open_records(path, decode=decoder, cache=cache(tmp_path)))
    kept = open_records(path, decode=decoder, cache=cache(tmp_path))
    unreadable(path)
    same(batch(kept), expected[0])
    same(batch(pickle.loads(pickle.dumps(kept)), 1), expected[1])
    with pytest.raises(RecordError):
        kept[1]  # Which no batch had.


@pytest.mark.parametrize("decode", ["image", ImageDecoder(), *DECODERS], ids=repr)
def test_samples_are_those_without_a_cache(tmp_path, decode):
    path = jpeg_file(tmp_path, "recordio")
    plain = open_records(path, decode=decode)
    kept = open_records(path, decode=decode, cache=cache(tmp_path))
    for _ in range(2):
        for one, other in zip(all_samples(kept), all_samples(plain), strict=True):
            same(one, other)
            assert type(one[1]) is type(other[1])
            assert one[0].flags.writeable
    plain_3 = plain.sample(3)
    unreadable(path)
    same(kept.sample(3), plain_3)


@pytest.mark.parametrize("label", [3, 1.5, np.array([1.0, 2.5], np.float32)])
def test_labels_keep_their_type(tmp_path, label):
    path = write_images(tmp_path / "a.rec", "recordio", [encoded(picture(9, 9), "PNG")], [label])
    plain = open_records(path, decode=ImageDecoder(4))
    kept = open_records(path, decode=ImageDecoder(4), cache=cache(tmp_path))
    for _ in range(2):
        same(kept[0], plain[0])
        assert type(kept[0][1]) is type(plain[0][1])
        same(batch(kept, numbers=np.array([0])), batch(plain, numbers=np.array([0])))


def test_labels_of_other_lengths_are_told(tmp_path):
    """One of which the stored bytes are as many as 17 numbers are that were foretold."""
    image = encoded(picture(9, 9), "PNG")
    labels = [np.arange(34, dtype=np.float32), np.float32(7), *[np.zeros(34, np.float32)] * 9]
    path = write_images(tmp_path / "a.tfrecord", "tfrecord", [image] * 11, labels)
    plain = open_records(path, decode=ImageDecoder(4))
    kept = open_records(path, decode=ImageDecoder(4), cache=cache(tmp_path))
    for source in (plain, kept, kept):
        rows = [np.zeros((1, *shape), dtype) for shape, dtype in source.leaves]
        ((row, error),) = source.fill(np.array([1]), None, rows)
        assert row == 0
        assert isinstance(error, RecordError)
        assert source.fill(np.array([0]), None, rows) == []
        assert rows[1][0].tolist() == list(range(34))


@pytest.mark.parametrize("kind", ["PNG", "npy", "grey", "yuv", "large"])
def test_pictures_of_every_kind(tmp_path, kind):
    """Also where a cache makes a difference, the first epoch has what the others have."""
    side = 200 if kind == "large" else 40
    image = picture(side, side + 8)
    made = {
        "PNG": lambda: encoded(image, "PNG"),
        "npy": lambda: npy(image),
        "grey": lambda: npy(image[:, :, 0]),
        "yuv": lambda: planes.encode(image),
        "large": lambda: encoded(image, "JPEG"),
    }[kind]()
    path = write_images(tmp_path / "a.tfrecord", "tfrecord", [made] * 11)
    decoders = [DECODERS[1], DECODERS[3], ImageDecoder(16, crop="random_resized", flip=True)]
    for decoder in [*decoders, ImageDecoder(16, crop="random")]:
        plain = open_records(path, decode=decoder)
        kept = open_records(path, decode=decoder, cache=cache(tmp_path))
        found = batch(kept)
        same(batch(kept), found)
        if decoder.resize_short or decoder.crop == "center" or kind in ("npy", "grey"):
            same(batch(plain), found)
        elif kind == "PNG":  # OpenCV resizes, or the kernel.
            difference = batch(plain)[0].astype(int) - found[0]
            assert abs(difference).max() <= 1
        full = open_records(path, decode=decoder, cache=cache(tmp_path / "none"))
        full._kept._file().is_full = True
        same(batch(full), found)


def test_images_in_files(tmp_path):
    folder = varied(tmp_path / "photos")
    for decoder in DECODERS:
        plain = open_images(folder, decode=decoder)
        kept = open_images(folder, decode=decoder, cache=cache(tmp_path))
        assert kept.classes == plain.classes
        assert list(kept.files) == list(plain.files)
        for epoch in range(2):
            same(batch(kept, epoch), batch(plain, epoch))
        same(kept.sample(4), plain.sample(4))
        part = kept.select([4, 1])
        assert part.labels.tolist() == plain.labels[[4, 1]].tolist()
        same(batch(part, numbers=np.array([1])), batch(plain.select([4, 1]), numbers=np.array([1])))
    for path in kept.files:
        unreadable(Path(path))
    same(batch(kept), batch(kept))


def test_labels_of_files_may_change(tmp_path):
    """They aren't kept, so the pictures are still known."""
    folder = varied(tmp_path / "photos")
    files = list(open_images(folder).files)
    expected = open_images(files, decode=DECODERS[0])
    batch(open_images(files, decode=DECODERS[0], cache=cache(tmp_path)))
    pairs = [(path, 7) for path in files]
    kept = open_images(pairs, decode=DECODERS[0], cache=cache(tmp_path))
    assert not kept._kept.missing(ROWS).any()
    images, labels = batch(kept)
    np.testing.assert_array_equal(images, batch(expected)[0])
    assert (labels == 7).all()


def test_a_file_that_was_changed_is_decoded_anew(tmp_path):
    folder = varied(tmp_path / "photos")
    decoder = DECODERS[0]
    first = open_images(folder, decode=decoder, cache=cache(tmp_path))
    batch(first)
    Path(first.files[2]).write_bytes(encoded(255 - picture(30, 30), "JPEG"))
    kept = open_images(folder, decode=decoder, cache=cache(tmp_path))
    for _ in range(2):
        same(batch(kept), batch(open_images(folder, decode=decoder)))


def test_chosen_records_have_the_numbers_of_the_files(tmp_path):
    path = jpeg_file(tmp_path, "recordio")
    decoder = DECODERS[5]
    kept = open_records(path, decode=decoder, cache=cache(tmp_path))
    first, second = split(kept, [0.5, 0.5], seed=1)
    plain = split(open_records(path, decode=decoder), [0.5, 0.5], seed=1)
    numbers = np.arange(len(second))
    same(batch(second, numbers=numbers), batch(plain[1], numbers=numbers))
    kept.close()
    same(batch(second, numbers=numbers), batch(plain[1], numbers=numbers))
    unreadable(path)
    with pytest.raises(RecordError):
        list(first)
    with pytest.raises(ClosedError):
        batch(kept)


def test_what_counts_is_what_comes_before(tmp_path):
    """Mean, layout and flips don't; size and the source do."""
    path = jpeg_file(tmp_path, "recordio")

    def files(decode: Any, **given: Any) -> int:
        batch(open_records(path, decode=decode, cache=cache(tmp_path), **given))
        return len(cache(tmp_path).samples())

    assert files(ImageDecoder(16)) == 1
    assert files(ImageDecoder(16, flip=True, dtype="float32", mean=3, layout="NCHW")) == 1
    assert files(ImageDecoder(17)) == 2
    assert files(ImageDecoder(16, crop="random_resized")) == 3
    assert files(ImageDecoder(9, crop="random_resized", area=(0.5, 1))) == 3
    os.utime(path, ns=(1, 1))
    assert files(ImageDecoder(16)) == 4


def test_an_index_of_other_records_is_another_source(tmp_path):
    path = jpeg_file(tmp_path, "recordio")
    decoder = ImageDecoder(16)
    batch(open_records(path, decode=decoder, cache=cache(tmp_path)))
    index = path.with_suffix(".idx")
    lines = index.read_text().splitlines()
    index.write_text("\n".join(lines[::-1]) + "\n")
    os.utime(index, ns=(path.stat().st_mtime_ns + 10**9,) * 2)
    plain = open_records(path, decode=decoder)
    same(batch(open_records(path, decode=decoder, cache=cache(tmp_path))), batch(plain))


def test_a_damaged_image_is_an_error_each_time(tmp_path):
    contents = [encoded(picture(30, 30), "JPEG") for _ in range(11)]
    contents[2] = contents[2][:100]
    for format in FORMATS:
        path = write_images(tmp_path / f"a{SUFFIXES[format]}", format, contents)
        kept = open_records(path, decode=DECODERS[5], cache=cache(tmp_path))
        for _ in range(2):
            rows = [np.empty((6, *shape), dtype) for shape, dtype in kept.leaves]
            failures = kept.fill(ROWS, Generators(5, 0, DECODE, ROWS), rows)
            assert sorted(row for row, _ in failures) == [1, 2]
            assert all(
                isinstance(error, RecordError) and error.record == 2 for _, error in failures
            )
            with pytest.raises(RecordError):
                kept[2]


def test_records_of_another_shape_are_told(tmp_path):
    """Raw arrays of which the first foretells the others."""
    arrays = [npy(np.full((4, 5, 3), n, np.uint8)) for n in range(10)] + [npy(picture(5, 4))]
    path = write_images(tmp_path / "a.rec", "recordio", arrays)
    kept = open_records(path, decode="image", cache=cache(tmp_path))
    plain = open_records(path, decode="image")
    for _ in range(2):
        rows = [np.zeros((6, *shape), dtype) for shape, dtype in kept.leaves]
        others = [row.copy() for row in rows]
        found, expected = kept.fill(ROWS, None, rows), plain.fill(ROWS, None, others)
        assert [row for row, _ in found] == [row for row, _ in expected] == [4]
        assert isinstance(found[0][1], RecordError)
        same([row[[0, 1, 2, 3, 5]] for row in rows], [row[[0, 1, 2, 3, 5]] for row in others])


@pytest.mark.parametrize("decode", [None, "example", len, type("Own", (ImageDecoder,), {})(4)])
def test_what_a_function_makes_is_not_kept(tmp_path, decode):
    path = jpeg_file(tmp_path, "tfrecord")
    with pytest.raises(ValueError, match="decoded=True") as caught:
        open_records(path, decode=decode, cache=cache(tmp_path))
    assert "mapping" in str(caught.value)


def test_arguments(tmp_path):
    folder = varied(tmp_path / "photos")
    with pytest.raises(ValueError, match="decoded=True"):
        open_images(folder, decode=len, cache=cache(tmp_path))
    with pytest.raises(TypeError, match="decoded must be True or False, got 1"):
        Cache(tmp_path, decoded=1)
    assert Cache("a", 1 << 20, decoded=True) != Cache("a", 1 << 20)
    assert repr(Cache("/a", 1 << 20, decoded=True)) == "Cache('/a', 1048576, decoded=True)"
    assert pickle.loads(pickle.dumps(cache(tmp_path))) == cache(tmp_path)


def test_in_blocks_of_several_sources(safe_sequence, tmp_path):
    """Which are read ahead as long as they aren't kept."""
    records, folder = jpeg_file(tmp_path, "recordio", 20), varied(tmp_path / "photos", 20)
    decoder = DECODERS[3]

    def joined(**given: Any) -> Any:
        return concatenate(
            [
                open_records(records, decode=decoder, **given),
                open_images(folder, decode=decoder, **given),
            ]
        )

    given = {"batch_size": 8, "shuffle": Blocks(10_000, 2), "seed": 3, "workers": 0}
    with (
        safe_sequence(joined(), **given) as expected,
        safe_sequence(joined(cache=cache(tmp_path)), **given) as found,
    ):
        for _ in range(2):
            for mine, own in zip(found, expected, strict=True):
                same(mine, own)
    assert len(cache(tmp_path).samples()) == 2


@pytest.mark.parametrize(("workers", "processes"), [(0, False), (2, False), (2, True)])
def test_a_sequence_by_any_workers(tmp_path, safe_sequence, workers, processes):
    path, decoder = jpeg_file(tmp_path, "tfrecord", 40), DECODERS[5]
    kept = open_records(path, decode=decoder, cache=cache(tmp_path))
    given = {"batch_size": 8, "shuffle": True, "seed": 3}
    with (
        safe_sequence(open_records(path, decode=decoder), workers=0, **given) as expected,
        safe_sequence(kept, workers=workers, use_multiprocessing=processes, **given) as found,
    ):
        for _ in range(2):
            for mine, own in zip(found, expected, strict=True):
                same(mine, own)
    assert not kept._kept.missing(np.arange(40)).any()
    assert kept.way(False) == f"records, decoded once and kept in {cache(tmp_path).samples_folder}"
