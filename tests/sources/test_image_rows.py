"""Images of records, decoded straight into the rows of a batch."""

from __future__ import annotations

import gc
import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from adapters import Feature, ImageDecoder, RecordError, open_records
from adapters.errors import ClosedError
from adapters.generators import DECODE, Generators, generator
from adapters.images import kernel
from adapters.records import example, mapping, recordio
from adapters.sources.decoders import Images
from adapters.sources.examples import Examples
from tests.images.pictures import encoded, picture
from tests.sources.record_files import (
    FORMATS,
    SIZE,
    SUFFIXES,
    jpeg_file,
    payload,
    write,
    write_images,
)

_LIMIT_SECONDS = 20

every_format = pytest.mark.parametrize("format", FORMATS)
needs_kernel = pytest.mark.skipif(
    kernel.load() is None, reason="the kernel isn't built, or switched off"
)


def filled(source: Any, numbers: Any = range(SIZE)) -> tuple[list[Any], list[Any]]:
    """What ``fill`` writes for these records, and the errors by row."""
    rows = [np.full((len(numbers), *shape), 7, dtype) for shape, dtype in source.leaves]
    own = np.array(numbers, np.int64)
    failures = source.fill(own, Generators(1, 2, DECODE, own), rows)
    return [row.tolist() for row in rows], sorted((row, str(error)) for row, error in failures)


def in_parts(folder: Any) -> Any:
    """Pictures in RecordIO with the magic number in them, at a multiple of 4."""
    comment = b"x".join([recordio.MAGIC.to_bytes(4, "little")] * 5)
    segment = b"\xff\xfe" + (2 + len(comment)).to_bytes(2, "big") + comment
    contents = [encoded(picture(20 + n, 17), "JPEG") for n in range(SIZE)]
    with_magic = [content[:2] + segment + content[2:] for content in contents]
    path = write_images(folder / "parts.rec", "recordio", with_magic)
    assert path.read_bytes().count(recordio.MAGIC.to_bytes(4, "little")) > SIZE
    return path


@needs_kernel
@every_format
@pytest.mark.parametrize("label", [int, lambda n: n + 0.5, lambda n: [n, 2.5]])
def test_records_are_parsed_by_the_kernel_each_time(format, label, tmp_path, monkeypatch):
    contents = [encoded(picture(20 + n, 17), "JPEG") for n in range(SIZE)]
    path = write_images(tmp_path / "a", format, contents, map(label, range(SIZE)))
    source = open_records(path, decode=ImageDecoder(8, crop="random_resized", flip=True))
    assert source.leaves
    monkeypatch.setattr(Images, "split", lambda *_: pytest.fail("parsed by Python"))
    first = filled(source)
    assert not first[1]
    assert filled(source) == first


@needs_kernel
@every_format
def test_records_of_several_files_are_found_in_theirs(format, tmp_path, monkeypatch):
    for number in range(3):
        contents = [encoded(picture(20 + n, 17 + number), "JPEG") for n in range(SIZE)]
        write_images(tmp_path / f"{number}{SUFFIXES[format]}", format, contents)
    source = open_records(f"{tmp_path}/*{SUFFIXES[format]}", decode=ImageDecoder(8))
    numbers = np.random.default_rng(1).permutation(3 * SIZE)
    singles = [source.sample(int(number)) for number in numbers]
    assert source.leaves
    monkeypatch.setattr(Images, "split", lambda *_: pytest.fail("parsed by Python"))
    images = [image.tolist() for image, _ in singles]
    assert filled(source, numbers) == ([images, [label for _, label in singles]], [])


@every_format
def test_records_read_before_and_new_ones_go_into_one_batch(format, tmp_path):
    path = jpeg_file(tmp_path, format)
    expected = filled(open_records(path, decode=ImageDecoder(8)))
    source = open_records(path, decode=ImageDecoder(8))
    filled(source, range(0, SIZE, 3))
    assert filled(source) == expected


def test_records_in_parts_are_put_together(tmp_path):
    source = open_records(in_parts(tmp_path), decode=ImageDecoder(8))
    first = filled(source)
    assert not first[1]
    assert filled(source) == first


@every_format
def test_labels_may_be_long(format, tmp_path):
    contents = [encoded(picture(20 + n, 17), "JPEG") for n in range(SIZE)]
    labels = [np.arange(17, dtype=np.float32) + n for n in range(SIZE)]
    path = write_images(tmp_path / "a", format, contents, labels)
    source = open_records(path, decode=ImageDecoder(8))
    first = filled(source)
    assert first[0][1] == [label.tolist() for label in labels]
    assert filled(source) == first


@every_format
def test_a_damaged_image_and_a_strange_label_are_errors_each_time(format, tmp_path):
    contents = [encoded(picture(20 + n, 17), "JPEG") for n in range(SIZE)]
    labels: list[Any] = list(range(SIZE))
    contents[3], labels[5] = contents[3][:-9], [1.0, 2.0]
    path = write(tmp_path / "a", format, map(payload, [format] * SIZE, contents, labels))
    source = open_records(path, decode=ImageDecoder(8))
    first = filled(source)
    assert [row for row, _ in first[1]] == [3, 5]
    assert filled(source)[1] == first[1]


@every_format
def test_a_closed_source_gives_no_samples(format, tmp_path):
    source = open_records(jpeg_file(tmp_path, format), decode=ImageDecoder(8))
    leaves = source.leaves
    filled(source)
    source.close()
    rows = [np.empty((1, *shape), dtype) for shape, dtype in leaves]
    with pytest.raises(ClosedError):
        source.fill(np.array([0]), None, rows)
    assert source._files.shards[0].storage._map is None


@every_format
@needs_kernel
def test_a_file_closed_while_images_are_decoded_stays_mapped_for_as_long(
    format, tmp_path, monkeypatch
):
    source = open_records(jpeg_file(tmp_path, format), decode=ImageDecoder(8))
    first, seen = filled(source), []
    decode = kernel.load().decode
    gc.collect()  # What other tests have left.
    before = mapping.living()

    def closing(buffers: Any, *rest: Any) -> bytes:
        source.close()
        gc.collect()
        seen.append(mapping.living())
        return decode(buffers, *rest)

    monkeypatch.setattr(kernel.load(), "decode", closing)
    assert filled(source) == first
    gc.collect()
    assert (seen, mapping.living()) == ([before], before - 1)


@every_format
def test_a_copy_in_another_process_gives_the_same(format, tmp_path):
    source = open_records(jpeg_file(tmp_path, format), decode=ImageDecoder(8))
    before = len(pickle.dumps(source))
    first = filled(source)
    sent = pickle.dumps(source)
    assert len(sent) < before + 500
    assert filled(pickle.loads(sent)) == first


@every_format
def test_a_file_changed_since_it_was_opened_is_an_error(format, tmp_path):
    path = jpeg_file(tmp_path, format)
    source = open_records(path, decode=ImageDecoder(8))
    filled(source)
    copied = pickle.loads(pickle.dumps(source))  # In which it is mapped anew.
    source.close()
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(RecordError, match="open it again"):
        filled(copied)


@every_format
def test_threads_get_the_right_samples(format, tmp_path):
    path = jpeg_file(tmp_path, format)
    expected = filled(open_records(path, decode=ImageDecoder(8)))
    for _ in range(5):
        source = open_records(path, decode=ImageDecoder(8))
        start = Barrier(8, timeout=_LIMIT_SECONDS)

        def work(_: int, source: Any = source, start: Barrier = start) -> Any:
            start.wait()
            return [filled(source) for _ in range(3)]

        with ThreadPoolExecutor(8) as pool:
            for made in pool.map(work, range(8)):
                assert made == [expected] * 3


# --- typed features ---


def typed_file(folder: Any, **wrong: bytes) -> Any:
    """Examples of two pictures, a number and a text."""
    examples = []
    for number in range(SIZE):
        features: dict[str, Any] = {
            "left": encoded(picture(20 + number, 17), "JPEG"),
            "right": encoded(picture(9, 30 + number), "PNG" if number % 3 else "JPEG"),
            "weight": np.array([number, 0.5], np.float32),
            "label": number,
        }
        features |= wrong if number == 4 else {}
        examples.append(example.encode(features))
    return write(folder / "typed", "tfrecord", examples)


def typed(path: Any, **more: Any) -> Any:
    both = ImageDecoder(8, crop="random_resized", flip=True)
    features = {"left": both, "right": both, "weight": Feature("float32", (2,)), **more}
    return open_records(path, decode={**features, "label": Feature("int64")})


@needs_kernel
def test_typed_images_are_parsed_by_the_kernel(tmp_path, monkeypatch):
    source = typed(typed_file(tmp_path))
    first = filled(source)
    assert first[1] == []
    for number in range(SIZE):
        sample = source.sample(number, generator(1, 2, number, DECODE))
        for leaf, name in enumerate(sorted(sample)):
            np.testing.assert_array_equal(first[0][leaf][number], sample[name])
    monkeypatch.setattr(Examples, "values", lambda *_: pytest.fail("parsed by Python"))
    assert filled(source) == first
    numbers = [7, 2, 2, 5]
    assert filled(source, numbers)[0][0] == [first[0][0][number] for number in numbers]


def test_a_damaged_one_of_two_typed_images_is_an_error_each_time(tmp_path):
    content = encoded(picture(20, 17), "JPEG")[:-9]
    source = typed(typed_file(tmp_path, right=content))
    first = filled(source)
    ((row, error),) = first[1]
    assert row == 4
    assert "feature 'right'" in error
    assert filled(source)[1] == first[1]


def test_typed_records_may_hold_much_besides_images(tmp_path):
    examples = [
        example.encode({"left": encoded(picture(9, 9), "JPEG"), "much": np.arange(99) + n})
        for n in range(SIZE)
    ]
    path = write(tmp_path / "much", "tfrecord", examples)
    source = open_records(path, decode={"left": ImageDecoder(8), "much": Feature("int64", (99,))})
    first = filled(source)
    assert first[1] == []
    assert filled(source) == first


def test_a_typed_source_that_is_closed_opens_no_file_again(tmp_path):
    source = typed(typed_file(tmp_path))
    filled(source)
    source.close()
    with pytest.raises(ClosedError):
        filled(source)
    assert source._files.shards[0].storage._map is None
