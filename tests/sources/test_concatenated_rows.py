"""Rows of several sources in one batch: each is what its source gives."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from adapters import ClosedError, Feature, ImageDecoder, RecordError, mix, open_records
from adapters.generators import DECODE, generator
from adapters.sources import ArraySource, as_source
from adapters.sources.concatenation import Concatenation, joined
from tests.plans import batch_of, plan_of
from tests.sources.record_files import damage, jpeg_file, write
from tests.sources.test_many_files import SPEC, assert_batches_are_the_samples, shards


def arrays(count: int, first: int) -> dict[str, Any]:
    numbers = np.arange(first, first + count)
    return {"x": numbers[:, np.newaxis] * np.ones(100, np.float32), "y": numbers}


def parts() -> list[ArraySource]:
    return [ArraySource(arrays(7, 0)), ArraySource(arrays(1, 7)), ArraySource(arrays(12, 8))]


def assert_rows(whole: Any, numbers: Any) -> None:
    """They are those of one source that has the rows of all ``parts``."""
    batch, expected = (
        source.gather(numbers, np.empty) for source in (whole, ArraySource(arrays(20, 0)))
    )
    assert list(batch) == list(expected)
    for name, column in expected.items():
        np.testing.assert_array_equal(batch[name], column, strict=True)


def test_rows_of_several_arrays_are_those_of_one():
    whole = joined(parts())
    assert isinstance(whole, Concatenation)
    assert_rows(whole, np.random.default_rng(0).permutation(20))
    assert whole[9]["y"] == 9


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "<f2", ">i4", "complex128", "M8[us]", "U3", "V5", "i4,f8"]
)
def test_rows_of_any_dtype_that_is_bytes(dtype):
    memory = np.random.default_rng(0).integers(0, 2, 12 * np.dtype(dtype).itemsize, np.uint8)
    rows = memory.view(dtype).reshape(4, 3)
    whole = joined([ArraySource(rows), ArraySource(rows[::-1].copy())])
    expected = np.concatenate([rows, rows[::-1]])[[7, 0, 5, 2]].astype(dtype)
    gathered = whole.gather(np.array([7, 0, 5, 2]), np.empty)
    assert gathered.dtype == expected.dtype
    assert gathered.tobytes() == expected.tobytes()


def test_what_is_changed_in_an_array_is_in_the_next_batch():
    given = parts()
    whole = joined(given)
    given[2]._columns[1][3] = -5
    assert whole.gather(np.array([11, 0]), np.empty)["y"].tolist() == [-5, 0]


def test_masked_arrays_are_what_they_hold():
    masked = np.ma.array(np.arange(20.0), mask=np.arange(20) > 3)
    whole = joined([as_source(masked), as_source(np.arange(20.0) + 20)])
    assert whole.gather(np.array([3, 15, 25]), np.empty).tolist() == [3, 15, 25]


def test_an_array_may_be_resized_where_it_is():
    first, second = np.zeros((200, 40)), np.ones((200, 40))
    whole: Any = joined([ArraySource(first), ArraySource(second)])
    first.resize((40_000, 40), refcheck=False)
    first[:] = 5
    assert whole.gather(np.array([3, 250]), np.empty)[:, 0].tolist() == [5, 1]


def test_a_worker_process_has_them_too():
    assert_rows(pickle.loads(pickle.dumps(joined(parts()))), np.array([19, 3, 7]))


@pytest.mark.parametrize("count", [2, 9, 10, 33])
def test_rows_of_many_arrays(count):
    rng = np.random.default_rng(count)
    lengths = rng.integers(1, 6, count).tolist()
    given = [ArraySource((rng.random((n, 5)), rng.random(n) > 0.5)) for n in lengths]
    whole: Any = joined(given)
    expected = [np.concatenate([each._columns[at] for each in given]) for at in (0, 1)]
    numbers = rng.permutation(len(whole))
    for found, column in zip(whole.gather(numbers, np.empty), expected):
        np.testing.assert_array_equal(found, column[numbers], strict=True)


def test_an_array_that_is_made_shorter_is_told():
    first, second = np.zeros((200, 40)), np.ones((200, 40))
    whole: Any = joined([ArraySource(first), ArraySource(second)])
    first.resize((100, 40), refcheck=False)
    for _ in range(2):
        with pytest.raises(ValueError, match="must keep their 200 rows, got 100"):
            whole.gather(np.array([3, 250]), np.empty)


@pytest.mark.usefixtures("gatherer")
def test_record_files_of_several_sources_give_their_samples(tmp_path):
    paths = shards(tmp_path, "tfrecord")
    second = open_records(paths[2:], decode=SPEC)
    whole = mix([open_records(paths[:2], decode=SPEC), second.select(range(3, 40, 2)), second])
    assert_batches_are_the_samples(whole)


def test_records_of_other_features_or_formats_are_not_read_at_once(tmp_path):
    paths = shards(tmp_path, "tfrecord")
    one = open_records(paths[0], decode=SPEC)
    assert one.united([open_records(paths[1], decode=SPEC)]) is not None
    other_format = write(tmp_path / "a.rec", "recordio", [b"1234" * 10])
    assert one.united([open_records(other_format, decode=SPEC)]) is None
    other = {**SPEC, "label": Feature("int64", default=3)}
    assert one.united([open_records(paths[1], decode=other)]) is None


def test_a_source_that_is_closed_is_closed_in_the_whole(tmp_path):
    paths = shards(tmp_path, "tfrecord")
    given = [open_records(path, decode=SPEC) for path in paths[:3]]
    whole = joined(given)
    numbers = np.arange(len(whole))
    rows = [np.empty((len(numbers), *shape), dtype) for shape, dtype in whole.leaves]
    assert whole.fill(numbers, None, rows) == []
    given[1].close()
    with pytest.raises(ClosedError):
        whole.fill(numbers, None, rows)


@pytest.mark.parametrize("format", ["tfrecord", "recordio"])
@pytest.mark.parametrize("draws", [False, True])
def test_pictures_of_several_sources_are_decoded_into_their_rows(tmp_path, format, draws):
    """By the same draws, whoever is asked."""
    decoder = ImageDecoder(9, crop="random_resized", flip=True) if draws else ImageDecoder(9)
    sources = []
    for place in range(3):
        (tmp_path / str(place)).mkdir()
        path = jpeg_file(tmp_path / str(place), format)
        sources.append(open_records(path, decode=decoder))
    whole = joined(sources)
    for epoch in range(2):
        numbers = plan_of(whole, 20, shuffle=True).order.batch(epoch, 0)
        images, labels = batch_of(plan_of(whole, 20, shuffle=True), epoch, 0)
        for number, image, label in zip(numbers.tolist(), images, labels.tolist()):
            alone, known = whole.sample(number, generator(0, epoch, number, DECODE))
            np.testing.assert_array_equal(image, alone, strict=True)
            assert label == known


def test_a_damaged_picture_is_told_by_its_own_source(tmp_path):
    sources = []
    for place in range(2):
        (tmp_path / str(place)).mkdir()
        path = jpeg_file(tmp_path / str(place), "tfrecord")
        sources.append(open_records(path, decode=ImageDecoder(9)))
    whole: Any = joined(sources)
    damage(path, int(sources[1]._files.shards[0].offsets[4]) + 300)
    with pytest.raises(RecordError, match=r"1/jpeg\.tfrecord, record 4\b"):
        batch_of(plan_of(whole, len(whole)), 0, 0)


def test_images_of_other_decoders_are_not_decoded_at_once(tmp_path):
    path = jpeg_file(tmp_path, "tfrecord")
    one = open_records(path, decode=ImageDecoder(9))
    assert one.united([open_records(path, decode=ImageDecoder(9, flip=True))]) is None
    assert one.united([open_records(path, decode=Own(9))]) is None
    assert one.united([open_records(path, decode=ImageDecoder(9))]) is not None


class Own(ImageDecoder):
    """A decoder of a user's class."""
