"""Folders, record files, parts and orders; what Keras's own loaders of folders offer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import adapters
from adapters import ImageDecoder, SafeSequence, concatenate, mix, open_images, open_records, split
from adapters.transforms import Chain, ColorJitter, CutMix, MixUp, OneHot, RandomErasing
from tests.batches import exact
from tests.images.pictures import encoded, npy, picture
from tests.keras.recording import PROCESSES, TWO_THREADS, built_recorder
from tests.packing.materials import image as image_of
from tests.sources.every_kind import KINDS, X, Y
from tests.sources.image_folders import varied, varied_and_packed
from tests.sources.record_files import SIZE, raw, write_images

pytestmark = [pytest.mark.one_backend, pytest.mark.usefixtures("sent_by_value")]
RANDOM = ImageDecoder(16, crop="random_resized", flip=True)
LENGTHS = np.arange(303)
BLOCKS = adapters.Blocks(block_bytes=8 * 50, window=4)


def stored_pixels(folder: Path) -> Any:
    path = folder / "x.rec"
    adapters.pack(
        [(picture(30 + n, 41), n) for n in range(SIZE)], path, format="recordio", encoding="raw"
    )
    return open_records(path, decode=RANDOM)


IMAGES = np.random.default_rng(0).integers(0, 256, (30, 16, 16, 3), np.uint8)
LABELS = np.arange(30) % 5
TRANSFORMS = Chain(
    [OneHot(5, 0.1), ColorJitter(0.4, 0.4, 0.4, 0.1), RandomErasing(1.0), MixUp(), CutMix()]
)
# Of each way that batches are made in, and each order.
SOURCES: dict[str, Any] = {
    "a dict": (lambda _: split({"x": X, "y": (Y, None)}, [0.8])[0], {}),
    "a list": (lambda _: split([*zip(X, Y)], [0.8], groups=Y // 30)[0], {}),
    "records": (lambda folder: split(KINDS["random boxes"](folder), [0.8])[0], {}),
    "stored pixels": (stored_pixels, {}),
    "several": (lambda _: concatenate([(X, Y), [(X[0], Y[0])] * 3]).select(range(2, 20)), {}),
    "batch transforms": (lambda _: (IMAGES, LABELS), {"batch_transform": TRANSFORMS}),
    "blocks": (lambda _: LENGTHS, {"shuffle": BLOCKS}),
    "weights": (
        lambda _: LENGTHS,
        {"weights": adapters.Weighted(1 + LENGTHS % 3, 700), "shuffle": False},
    ),
    "bucket_by": (lambda _: LENGTHS, {"bucket_by": LENGTHS % 97}),
    "mix": (lambda _: mix([LENGTHS[:200], LENGTHS[200:]], [1, 2]), {}),
    "mix in blocks": (lambda _: mix([LENGTHS[:200], LENGTHS[200:]], [1, 2]), {"shuffle": BLOCKS}),
}


@pytest.mark.parametrize("name", SOURCES)
def test_workers_give_the_same_batches_and_states_go_on(name, tmp_path):
    make, order = SOURCES[name]
    source, arguments = make(tmp_path), {"shuffle": True, "seed": 4, **order}
    with SafeSequence(source, 4, workers=0, **arguments) as sequence:
        expected = [[exact(batch) for batch in sequence] for _ in range(2)]
        assert expected[0] != expected[1]
        sequence.set_epoch(0)
        assert exact(sequence[1]) == expected[0][1]
    for workers in (TWO_THREADS, PROCESSES):
        with SafeSequence(source, 4, **arguments, **workers) as sequence:
            assert [[exact(batch) for batch in sequence] for _ in range(2)] == expected
            sequence.load_state_dict({"epoch": 1, "batch": 2})
            assert [exact(batch) for batch in sequence] == expected[1][2:]


# --- folders and paths ---


def test_images_as_packed(tmp_path):
    files, packed = varied_and_packed(tmp_path)
    options = {"shuffle": True, "seed": 3}
    theirs = SafeSequence(open_records(packed, decode=RANDOM), 4, workers=0, **options)
    with SafeSequence(open_images(files, decode=RANDOM), 4, **options, **PROCESSES) as ours:
        for _ in range(2):
            assert [exact(batch) for batch in ours] == [exact(batch) for batch in theirs]


def paths_of(folder: Path) -> dict[str, tuple[str, Any]]:
    varied(folder / "photos", 4, "ab")
    for n in range(3):
        contents = map(npy, raw()[4 * n : 4 * n + 4])
        write_images(folder / f"train-{n}.tfrecord", "tfrecord", contents)
    glob = f"{folder}/train-*.tfrecord"
    return {
        "folder": (f"{folder}/photos/", open_images(folder / "photos")),
        "glob": (glob, open_records(glob, decode="image")),
    }


@pytest.mark.parametrize("kind", ["folder", "glob"])
def test_path_as_source(kind, tmp_path):
    path, source = paths_of(tmp_path)[kind]
    with SafeSequence(path, 1, **TWO_THREADS) as sequence:
        batches = list(sequence)
    for (images, labels), (image, label) in zip(batches, source, strict=True):
        np.testing.assert_array_equal(images[0], image)
        assert labels.tolist() == [label]


def test_images_of_several_sizes(tmp_path):
    said = r"sample 1 .* sizes or channels need open_images\(\.\.\., decode=ImageDecoder\(224"
    with (
        SafeSequence(varied(tmp_path), 4, workers=2) as sequence,
        pytest.raises(ValueError, match=said),
    ):
        list(sequence)


def test_file_that_is_no_image(tmp_path):
    source = open_images(varied(tmp_path), decode=ImageDecoder(8))
    Path(source.files[5]).write_bytes(b"This is none.")
    with SafeSequence(source, 4, **PROCESSES) as sequence:
        with pytest.raises(adapters.RecordError, match=r"\.jpg.*expected an image") as caught:
            list(sequence)
        assert "in sample 5, batch 1 of epoch 0" in caught.value.__notes__
    with SafeSequence(source, 4, on_error="skip", workers=2) as sequence:
        images, labels = sequence[1]
        assert labels.tolist() == source.labels[[4, 6, 6, 7]].tolist()
        np.testing.assert_array_equal(images[1], images[2])


# --- errors ---


class Broken:
    def __init__(self, broken: int, size: int = 200) -> None:
        self.broken, self.size = broken, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int) -> Any:
        if number < self.broken:
            raise OSError(f"{number} can't be read")
        return np.int64(number)


@pytest.mark.parametrize("on_error", ["skip", lambda error, number: np.int64(number)])
@pytest.mark.parametrize("source", [Broken, lambda broken: mix([Broken(broken), np.arange(10)])])
def test_blocks_of_a_sample_that_cannot_be_read(source, on_error, caplog):
    arguments = {"shuffle": adapters.Blocks(64, 2), "on_error": on_error, "workers": 0}
    with SafeSequence(source(3), 4, **arguments) as sequence:
        assert sum(len(batch) for batch in sequence) >= 200
    assert "where a state is loaded: OSError: 0 can't be read" in caplog.messages[0]


def test_skip_prefers_samples_with_a_weight():
    weights = np.ones(70)
    weights[[0, 2, 3, 69]] = 0
    fails = {1: "", 9: "", 68: ""}  # Of no number.
    options = {"transform": lambda x: x + int(fails.get(int(x), 0)), "on_error": "skip"}
    with SafeSequence(np.arange(70), 70, weights=weights, **options) as skips:
        replays = [skips.replay(epoch, 0) for epoch in range(5)]
    found = {old: each.numbers[row] for each in replays for row, old in each.replaced.items()}
    assert found == {1: 4, 9: 10, 68: 4}
    with SafeSequence(np.arange(12), 4, weights=np.eye(12)[9], **options) as alone:
        assert alone[0].tolist() == [10] * 4


@pytest.mark.parametrize("make", [split, lambda source, _: concatenate([X, source])])
def test_whole_batches_refused_by_split(make):
    with pytest.raises(
        TypeError, match="single samples, got a SafeSequence, whose items are whole"
    ):
        make(SafeSequence((X, Y), 4), [0.5])


# --- what Keras's own loaders of folders offer ---


def test_image_dataset_from_directory(tmp_path):
    """Of PNGs, as decoders of JPEGs differ a little, of one size, as Keras resizes otherwise."""
    pytest.importorskip("tensorflow")
    for number, name in enumerate(["a/x", "b/x", "c/x", "c/xx/6"]):
        path = tmp_path / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(image_of(number), "PNG"))
    theirs = keras.utils.image_dataset_from_directory(
        tmp_path, image_size=(20, 30), batch_size=4, shuffle=False, verbose=False
    )
    source = open_images(tmp_path, decode=ImageDecoder((20, 30), dtype="float32"))
    assert source.classes == theirs.class_names
    assert list(source.files) == theirs.file_paths
    ((images, labels),) = theirs.as_numpy_iterator()
    own_images, own_labels = SafeSequence(source, 4)[0]
    np.testing.assert_array_equal(own_images, images)
    np.testing.assert_array_equal(own_labels, labels)


@pytest.mark.parametrize("made", [lambda data: data, lambda data: concatenate([data, [0.0] * 3])])
@pytest.mark.parametrize("workers", [0, 2])
def test_list_that_changes_its_length(made, workers, caplog):
    data = [*map(float, range(20))]
    with SafeSequence(made(data), 8, workers=workers) as seq:
        before = [batch.tolist() for batch in seq]
        data.append(20.0)
        for _ in range(2):
            assert [batch.tolist() for batch in seq] == before
        assert caplog.text.count("not read: list had 20 samples and has 21; make a new Safe") == 1
        del data[10:]
        for read in (lambda: next(iter(seq)), lambda: built_recorder().fit(seq, verbose=0)):
            with pytest.raises(ValueError, match="shorter: list had 20 samples and has 10; make a"):
                read()
