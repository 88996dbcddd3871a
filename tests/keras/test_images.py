"""Folders and tables of images in ``SafeSequence``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from adapters import ImageDecoder, RecordError, SafeSequence, open_images, open_records, pack
from tests.batches import exact
from tests.keras.recording import INLINE, KINDS_OF_WORKERS, PROCESSES, TWO_THREADS, Recorder
from tests.sources.image_folders import folder, put, varied

pytestmark = pytest.mark.one_backend

every_kind = pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
RANDOM = ImageDecoder(16, crop="random_resized", flip=True)
DECODES: dict[str, Any] = {
    "random": RANDOM,
    "float": ImageDecoder(8, dtype="float32", layout="NCHW", mean=100, std=50),
    "whole": ImageDecoder((9, 7)),
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> tuple[Path, Path]:
    """A folder of JPEGs of several sizes, and the same packed."""
    place = tmp_path_factory.mktemp("photos")
    varied(place / "in")
    pack(place / "in", place / "out.tfrecord", format="tfrecord", seed=None)
    return place / "in", place / "out.tfrecord"


def batches_of(source: Any, workers: Any, epochs: int = 1, **arguments: Any) -> list[Any]:
    """Copies of the batches of so many epochs, as values to compare."""
    with SafeSequence(source, 4, **workers, **arguments) as sequence:
        return [exact(batch) for _ in range(epochs) for batch in sequence]


@every_kind
@pytest.mark.parametrize("decode", DECODES)
def test_batches_are_those_of_the_same_images_packed(photos, workers, decode):
    files, packed = photos
    arguments = {"epochs": 2, "shuffle": True, "seed": 3}
    ours = batches_of(open_images(files, decode=DECODES[decode]), workers, **arguments)
    theirs = batches_of(open_records(packed, decode=DECODES[decode]), INLINE, **arguments)
    assert ours == theirs


@every_kind
def test_a_transform_sees_the_images_of_the_same_files_packed(photos, workers):
    files, packed = photos
    ours, theirs = (
        batches_of(source, workers, transform=lambda sample: (sample[0][:5, :5], sample[1]))
        for source in (open_images(files), open_records(packed, decode="image"))
    )
    assert ours == theirs


@every_kind
@pytest.mark.parametrize("given", [str, Path, lambda path: f"{path}/"])
def test_a_path_of_a_folder_gives_its_images(workers, given, tmp_path):
    with SafeSequence(given(folder(tmp_path)), 4, **workers) as sequence:
        images, labels = zip(*(map(np.copy, batch) for batch in sequence))
    source = open_images(tmp_path)
    np.testing.assert_array_equal(np.concatenate(images), np.stack([each for each, _ in source]))
    assert np.concatenate(labels).tolist() == source.labels.tolist()


@every_kind
def test_images_of_several_sizes_are_told_what_makes_them_equal(photos, workers):
    sequence = SafeSequence(photos[0], 4, **workers)
    with (
        sequence,
        pytest.raises(
            ValueError,
            match=r"sample 1 has shape .* images of several sizes need "
            r"open_images\(\.\.\., decode=ImageDecoder\(224\)\)",
        ),
    ):
        list(sequence)


@every_kind
@pytest.mark.parametrize("decode", [None, ImageDecoder(8)])
def test_a_file_that_is_no_image_is_named_with_its_sample(workers, decode, tmp_path):
    (folder(tmp_path) / "bee/005.jpg").write_bytes(b"This is none.")
    sequence = SafeSequence(open_images(tmp_path, decode=decode), 4, **workers)
    with sequence, pytest.raises(RecordError, match=r"bee/005\.jpg.*expected an image") as caught:
        list(sequence)
    assert "in sample 5, batch 1 of epoch 0" in caught.value.__notes__


@every_kind
@pytest.mark.parametrize("decode", [None, ImageDecoder(8)])
@pytest.mark.parametrize("kind", ["empty", "gone"])
def test_skip_takes_the_next_file_in_the_place_of_one_that_is_none(workers, decode, kind, tmp_path):
    source = open_images(folder(tmp_path), decode=decode)
    path = Path(source.files[2])
    path.write_bytes(b"") if kind == "empty" else path.unlink()
    expected = [source[number] for number in (0, 1, 3, 3, 4, 5)]
    with SafeSequence(source, 6, on_error="skip", **workers) as sequence:
        ((images, labels),) = sequence
        np.testing.assert_array_equal(images, np.stack([image for image, _ in expected]))
        assert labels.tolist() == [label for _, label in expected]


def test_fit_trains_on_a_folder(photos):
    recorder, source = Recorder(), open_images(photos[0], decode=ImageDecoder(8, dtype="float32"))
    with SafeSequence(source, 4, shuffle=True, **TWO_THREADS) as sequence:
        recorder.fit(sequence, epochs=2, verbose=0)
    labels = np.concatenate([batch[1] for batch in recorder.lists.trained]).astype(int)
    assert sorted(labels[:11]) == sorted(labels[11:]) == sorted(source.labels)


def test_explain_says_how_files_are_read(photos, capsys):
    SafeSequence(open_images(photos[0], decode=ImageDecoder(8)), workers=0).explain()
    SafeSequence(photos[0], workers=0).explain()
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("source: ")] == [
        "source: files, read and decoded a batch at a time",
        "source: files, read and decoded a file at a time",
    ]


def test_auto_knows_that_it_only_decodes(photos):
    """For that, threads are right without a measurement."""
    with SafeSequence(open_images(photos[0], decode=RANDOM)) as sequence:
        assert sequence._plan.only_decodes


# --- what Keras's own loaders of folders offer ---


@pytest.fixture(scope="module")
def thirds(tmp_path_factory) -> Path:
    """PNGs, as two decoders of JPEGs differ a little, of one size, as Keras resizes otherwise."""
    from tests.images.pictures import encoded
    from tests.packing.materials import image

    root = put(tmp_path_factory.mktemp("thirds"), "c/xx/6.jpg", *(f"{c}/x.jpg" for c in "abc"))
    for number, path in enumerate(sorted(root.rglob("*.jpg"))):
        path.with_suffix(".png").write_bytes(encoded(image(number), "PNG"))
        path.unlink()
    return root


def keras_own(root: Path, **arguments: Any) -> Any:
    pytest.importorskip("tensorflow")
    return keras.utils.image_dataset_from_directory(
        root, image_size=(20, 30), batch_size=4, shuffle=False, verbose=False, **arguments
    )


def of_keras(root: Path, **arguments: Any) -> tuple[Any, Any]:
    ((images, labels),) = keras_own(root, **arguments).as_numpy_iterator()
    return images, labels


def of_ours(root: Path, batch_transform: Any = None, **arguments: Any) -> tuple[Any, Any]:
    source = open_images(root, decode=ImageDecoder((20, 30), dtype="float32"), **arguments)
    with SafeSequence(source, 4, batch_transform=batch_transform, workers=0) as sequence:
        return sequence[0]


def test_order_labels_and_names_are_those_of_image_dataset_from_directory(thirds):
    keras_dataset, source = keras_own(thirds), open_images(thirds)
    assert source.classes == keras_dataset.class_names
    assert list(source.files) == keras_dataset.file_paths
    (images, labels), (own_images, own_labels) = of_keras(thirds), of_ours(thirds)
    np.testing.assert_array_equal(own_images, images)
    np.testing.assert_array_equal(own_labels, labels)


def test_class_names_are_those_of_image_dataset_from_directory(thirds):
    _, labels = of_keras(thirds, class_names=["c", "a"])
    _, own = of_ours(thirds, classes=["c", "a"])
    np.testing.assert_array_equal(own, labels)


def test_categorical_labels_are_a_batch_transform(thirds):
    _, labels = of_keras(thirds, label_mode="categorical")
    _, own = of_ours(
        thirds, lambda batch: (batch[0], keras.utils.to_categorical(batch[1], num_classes=3))
    )
    np.testing.assert_array_equal(own, labels)


def test_binary_labels_are_a_batch_transform(thirds):
    chosen = ["a", "b"]
    _, labels = of_keras(thirds, label_mode="binary", class_names=chosen)
    _, own = of_ours(
        thirds, lambda batch: (batch[0], batch[1].astype("float32")[:, None]), classes=chosen
    )
    np.testing.assert_array_equal(own, labels)
    assert own.dtype == labels.dtype


def test_grayscale_is_a_batch_transform(thirds):
    images, _ = of_keras(thirds, color_mode="grayscale")
    weights = np.array([[0.299], [0.587], [0.114]], "float32")
    own, _ = of_ours(thirds, lambda batch: (batch[0] @ weights, batch[1]))
    assert own.shape == images.shape
    np.testing.assert_allclose(own, images, atol=1)


def test_labels_that_are_given_are_pairs(thirds):
    labels = [5, 7, 5, 6]
    _, theirs = of_keras(thirds, labels=labels)
    _, own = of_ours(list(zip(open_images(thirds).files, labels)))  # type: ignore[arg-type]
    np.testing.assert_array_equal(own, theirs)


def test_no_labels_are_a_batch_transform(thirds):
    images = next(keras_own(thirds, labels=None).as_numpy_iterator())
    own = of_ours(sorted(thirds.rglob("*.png")), lambda batch: batch[0])  # type: ignore[arg-type]
    np.testing.assert_array_equal(own, images)


def test_order_labels_and_names_are_those_of_flow_from_directory(thirds):
    tensorflow = pytest.importorskip("tensorflow")
    made = tensorflow.keras.preprocessing.image.ImageDataGenerator()
    flow = made.flow_from_directory(thirds, classes=["c", "a"], shuffle=False)
    source = open_images(thirds, classes=["c", "a"])
    assert {name: number for number, name in enumerate(source.classes)} == flow.class_indices
    assert [str(path) for path in source.files] == flow.filepaths
    np.testing.assert_array_equal(source.labels, flow.labels)


def test_weights_are_a_column_and_a_batch_transform(thirds):
    (thirds / "x.csv").write_text("filename,y,w\na/x.png,3,0.5\nb/x.png,4,2\n")
    batch = of_ours(
        thirds / "x.csv",
        lambda batch: (batch[0], batch[1][:, 0], batch[1][:, 1]),
        columns=("filename", "y", "w"),
    )
    assert [member.tolist() for member in batch[1:]] == [[3.0, 4.0], [0.5, 2.0]]


def test_nothing_is_said_about_a_folder_that_is_all_right(thirds, caplog):
    with caplog.at_level(logging.INFO):
        open_images(thirds)
    assert caplog.records == []


@pytest.mark.parametrize("workers", [PROCESSES])
def test_a_relative_folder_is_found_by_processes_that_work_elsewhere(photos, workers, monkeypatch):
    monkeypatch.chdir(photos[0].parent)
    source = open_images("in", decode=ImageDecoder(8))
    monkeypatch.chdir("/")
    assert batches_of(source, workers) == batches_of(source, INLINE)
