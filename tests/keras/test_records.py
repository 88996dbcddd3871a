"""Record files in ``SafeSequence``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import psutil
import pytest

from adapters import ImageDecoder, RecordError, SafeSequence, open_records, pack
from adapters.records import example
from tests.batches import exact
from tests.engine.executors import workers as worker_processes
from tests.images.pictures import encoded, npy, picture
from tests.keras.recording import INLINE, KINDS_OF_WORKERS, PROCESSES, TWO_THREADS, Recorder
from tests.sources.record_files import (
    FORMATS,
    SIZE,
    SUFFIXES,
    damage,
    jpeg_file,
    raw,
    raw_file,
    write,
    write_images,
)

pytestmark = [pytest.mark.one_backend, pytest.mark.usefixtures("sent_by_value")]

every_format = pytest.mark.parametrize("format", FORMATS)
every_kind = pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
RANDOM = ImageDecoder(16, crop="random_resized", flip=True)
DECODES: dict[str, Any] = {
    "random": RANDOM,
    "float": ImageDecoder(8, dtype="float32", layout="NCHW", mean=100, std=50),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """The same JPEGs in each format."""
    folder = tmp_path_factory.mktemp("files")
    return {each: jpeg_file(folder, each) for each in FORMATS}


def batches_of(source: Any, workers: Any, epochs: int = 1, **arguments: Any) -> list[Any]:
    """Copies of the batches of so many epochs, as values to compare."""
    with SafeSequence(source, 4, **workers, **arguments) as sequence:
        return [exact(batch) for _ in range(epochs) for batch in sequence]


@every_format
@pytest.mark.parametrize("decode", DECODES)
def test_every_kind_of_workers_gives_the_same_bits(files, format, decode):
    source = open_records(files[format], decode=DECODES[decode])
    inline, threads, processes = (
        batches_of(source, workers, 2, shuffle=True, seed=3)
        for workers in (INLINE, TWO_THREADS, PROCESSES)
    )
    assert inline == threads
    assert inline == processes


@every_format
@pytest.mark.parametrize("decode", DECODES)
def test_stored_pixels_come_the_same_from_every_kind_of_workers(tmp_path, format, decode):
    path = tmp_path / f"x{SUFFIXES[format]}"
    pack([(picture(30 + n, 41), n) for n in range(SIZE)], path, format=format, encoding="raw")
    source = open_records(path, decode=DECODES[decode])
    inline, threads, processes = (
        batches_of(source, workers, 2, shuffle=True, seed=3)
        for workers in (INLINE, TWO_THREADS, PROCESSES)
    )
    assert inline == threads
    assert inline == processes


@every_kind
@every_format
def test_a_path_gives_its_images(workers, format, tmp_path):
    path = raw_file(tmp_path, format)
    with SafeSequence(str(path), 4, **workers) as sequence:
        images, labels = zip(*(map(np.copy, batch) for batch in sequence))
    np.testing.assert_array_equal(np.concatenate(images), np.stack(raw()))
    assert np.concatenate(labels).tolist() == list(range(SIZE))


def test_a_glob_gives_the_images_of_all_its_files(tmp_path):
    for n in range(3):
        contents = map(npy, raw()[4 * n : 4 * n + 4])
        write_images(tmp_path / f"train-{n}.tfrecord", "tfrecord", contents)
    with SafeSequence(str(tmp_path / "train-*.tfrecord"), SIZE, workers=0) as sequence:
        np.testing.assert_array_equal(sequence[0][0], np.stack(raw()))


def test_a_path_of_examples_gives_their_features(tmp_path):
    records = [example.encode({"x": [n, 2 * n], "y": n / 2}) for n in range(3)]
    path = write(tmp_path / "a.tfrecord", "tfrecord", records)
    with SafeSequence(path, 3, workers=0) as sequence:
        batch = sequence[0]
    assert {name: values.tolist() for name, values in batch.items()} == {
        "x": [[0, 0], [1, 2], [2, 4]],
        "y": [[0.0], [0.5], [1.0]],
    }


@every_kind
@pytest.mark.parametrize("decode", ["image", RANDOM])
def test_transforms_work_on_records(workers, decode, tmp_path):
    source = open_records(raw_file(tmp_path, "recordio"), decode=decode)
    expected = batches_of(source, INLINE)
    arguments = {"transform": Inverted(), "batch_transform": Inverted()}
    assert batches_of(source, workers, **arguments) == expected


class Inverted:
    """Twice is as if not at all."""

    def __call__(self, sample: Any) -> Any:
        return 255 - sample[0], sample[1]


@every_kind
@pytest.mark.parametrize("decode", ["image", RANDOM])
def test_a_damaged_record_is_named_with_its_sample(workers, decode, tmp_path):
    path = raw_file(tmp_path, "tfrecord")
    damage(path, path.stat().st_size - 30)
    sequence = SafeSequence(open_records(path, decode=decode), 4, **workers)
    with sequence, pytest.raises(RecordError, match=rf"{path}, record 10, byte \d+: ") as caught:
        list(sequence)
    assert "in sample 10, batch 2 of epoch 0" in caught.value.__notes__


@every_kind
@every_format
@pytest.mark.parametrize("record", [0, 5])
def test_skip_puts_the_next_record_in_the_place_of_a_damaged_one(workers, format, record, tmp_path):
    path = raw_file(tmp_path, format)
    damage(path, record * (path.stat().st_size // SIZE) + 70)
    with SafeSequence(path, 4, on_error="skip", **workers) as sequence:
        labels = np.concatenate([batch[1] for batch in sequence]).tolist()
    assert labels == [n + (n == record) for n in range(SIZE)]


@every_kind
def test_a_function_answers_for_a_damaged_record(workers, tmp_path):
    path = raw_file(tmp_path, "recordio")
    damage(path, 70)
    with SafeSequence(path, 4, on_error=Answer(), **workers) as sequence:
        labels = np.concatenate([batch[1] for batch in sequence]).tolist()
    assert labels == [-7, *range(1, SIZE)]


class Answer:
    def __call__(self, error: Exception, number: int) -> Any:
        assert isinstance(error, RecordError)
        return np.zeros((4, 5, 3), np.uint8), number - 7


@every_format
def test_fit_trains_on_records(files, format):
    recorder = Recorder()
    source = open_records(files[format], decode=ImageDecoder(8, dtype="float32"))
    with SafeSequence(source, 4, shuffle=True, **TWO_THREADS) as sequence:
        recorder.fit(sequence, epochs=2, verbose=0)
    labels = np.concatenate([batch[1] for batch in recorder.lists.trained])
    assert sorted(labels[:SIZE].astype(int)) == sorted(labels[SIZE:].astype(int)) == [*range(SIZE)]


def test_predict_sees_the_images_of_records(files):
    source = open_records(files["recordio"], decode=ImageDecoder(8, dtype="float32"))
    model = keras.Sequential([keras.layers.Flatten()])
    model.compile()
    with SafeSequence(source, 4, **TWO_THREADS) as sequence:
        predicted = model.predict(sequence, verbose=0)
    expected = np.stack([image.ravel() for image, _ in source])
    np.testing.assert_allclose(predicted, expected)


def own_bytes() -> int:
    """Of the worker processes: memory that is in no file."""
    return max(sum(part.anonymous for part in child.memory_maps()) for child in worker_processes())


@pytest.mark.skipif(not psutil.LINUX, reason="which memory is a file's is asked of Linux")
def test_processes_do_not_copy_the_file(tmp_path):
    """None of them holds more of its own for a file of 96 MB than for a small one."""
    sizes = []
    for name, count in (("small", 8), ("large", 128)):
        content = npy(np.zeros((512, 512, 3), np.uint8))
        path = write_images(tmp_path / name, "recordio", [content] * count)
        source = open_records(path, decode="image")
        with SafeSequence(source, 4, max_queue_size=2, **PROCESSES) as sequence:
            for batch in sequence:
                assert batch[0].shape == (4, 512, 512, 3)
            sizes.append(own_bytes())
    assert sizes[1] - sizes[0] < 30_000_000


def test_an_image_of_each_format_is_the_same_in_one_sequence(tmp_path):
    content = encoded(picture(20, 30), "PNG")
    paths = [write_images(tmp_path / each, each, [content] * 2) for each in FORMATS]
    source = open_records(paths, decode=ImageDecoder(8, crop="center"))
    with SafeSequence(source, 4, workers=0) as sequence:
        images = sequence[0][0]
    np.testing.assert_array_equal(images, np.broadcast_to(images[0], images.shape))
