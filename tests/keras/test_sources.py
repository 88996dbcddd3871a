"""Folders, record files, parts and orders; what Keras's own loaders of folders offer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from adapters import (
    Blocks,
    ImageDecoder,
    RecordError,
    RecordWriter,
    SafeSequence,
    Weighted,
    concatenate,
    mix,
    open_images,
    open_records,
    pack,
    split,
)
from adapters.records import example
from adapters.transforms import Chain, ColorJitter, CutMix, MixUp, OneHot, RandomErasing
from tests.batches import exact
from tests.images.pictures import encoded, npy, picture
from tests.keras.recording import INLINE, KINDS_OF_WORKERS, PROCESSES, TWO_THREADS
from tests.sources.every_kind import KINDS, X, Y
from tests.sources.image_folders import folder, put, varied_and_packed
from tests.sources.record_files import (
    FORMATS,
    SIZE,
    damage,
    jpeg_file,
    raw,
    raw_file,
    write,
    write_images,
)

pytestmark = [pytest.mark.one_backend, pytest.mark.usefixtures("sent_by_value")]
every_kind = pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
every_format = pytest.mark.parametrize("format", FORMATS)
RANDOM = ImageDecoder(16, crop="random_resized", flip=True)
LENGTHS = np.arange(303)
BLOCKS = Blocks(block_bytes=8 * 50, window=4)


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> tuple[Path, Path]:
    """A folder of JPEGs of several sizes, and the same packed."""
    return varied_and_packed(tmp_path_factory.mktemp("photos"))


def batches_of(source: Any, workers: Any, epochs: int = 1, **arguments: Any) -> list[Any]:
    """Copies of the batches of so many epochs, as values to compare."""
    with SafeSequence(source, 4, **workers, **arguments) as sequence:
        return [exact(batch) for _ in range(epochs) for batch in sequence]


def parts_of_records(folder: Path) -> Any:
    return split(KINDS["random boxes"](folder), [0.8])[0]


def parts_of_list(_: Path) -> Any:
    return split([(x, y) for x, y in zip(X, Y)], [0.8], groups=Y // 30)[0]


def stored_pixels(folder: Path) -> Any:
    path = folder / "x.rec"
    pack([(picture(30 + n, 41), n) for n in range(SIZE)], path, format="recordio", encoding="raw")
    return open_records(path, decode=RANDOM)


IMAGES = np.random.default_rng(0).integers(0, 256, (30, 16, 16, 3), np.uint8)
LABELS = np.arange(30) % 5
TRANSFORMS = Chain(
    [OneHot(5, 0.1), ColorJitter(0.4, 0.4, 0.4, 0.1), RandomErasing(1.0), MixUp(), CutMix()]
)
# Of each way that batches are made in, and each order.
SOURCES: dict[str, Any] = {
    "arrays": (lambda _: split((X, Y), [0.8], stratify=Y % 2)[0], {}),
    "a dict": (lambda _: split({"x": X, "y": (Y, None)}, [0.8])[0], {}),
    "a list": (parts_of_list, {}),
    "records": (parts_of_records, {}),
    "recordio": (lambda folder: open_records(jpeg_file(folder, "recordio"), decode=RANDOM), {}),
    "stored pixels": (stored_pixels, {}),
    "several": (lambda _: concatenate([(X, Y), [(X[0], Y[0])] * 3]).select(range(2, 20)), {}),
    "batch transforms": (lambda _: (IMAGES, LABELS), {"batch_transform": TRANSFORMS}),
    "blocks": (lambda _: LENGTHS, {"shuffle": BLOCKS}),
    "weights": (lambda _: LENGTHS, {"weights": Weighted(1 + LENGTHS % 3, 700), "shuffle": False}),
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


@pytest.mark.parametrize(
    ("workers", "decode"),
    [
        (TWO_THREADS, RANDOM),
        (PROCESSES, ImageDecoder(8, dtype="float32", layout="NCHW", mean=100, std=50)),
    ],
    ids=str,
)
def test_images_as_packed(photos, workers, decode):
    files, packed = photos
    arguments = {"epochs": 2, "shuffle": True, "seed": 3}
    ours = batches_of(open_images(files, decode=decode), workers, **arguments)
    theirs = batches_of(open_records(packed, decode=decode), INLINE, **arguments)
    assert ours == theirs


# --- paths ---


@pytest.mark.parametrize("given", [str, Path, lambda path: f"{path}/"])
def test_path_of_folder(given, tmp_path):
    with SafeSequence(given(folder(tmp_path)), 4, **TWO_THREADS) as sequence:
        images, labels = zip(*(map(np.copy, batch) for batch in sequence))
    source = open_images(tmp_path)
    np.testing.assert_array_equal(np.concatenate(images), np.stack([each for each, _ in source]))
    assert np.concatenate(labels).tolist() == source.labels.tolist()


@every_format
def test_path_of_records(format, tmp_path):
    path = raw_file(tmp_path, format)
    with SafeSequence(str(path), 4, **TWO_THREADS) as sequence:
        images, labels = zip(*(map(np.copy, batch) for batch in sequence))
    np.testing.assert_array_equal(np.concatenate(images), np.stack(raw()))
    assert np.concatenate(labels).tolist() == list(range(SIZE))


def test_path_with_glob(tmp_path):
    for n in range(3):
        contents = map(npy, raw()[4 * n : 4 * n + 4])
        write_images(tmp_path / f"train-{n}.tfrecord", "tfrecord", contents)
    with SafeSequence(str(tmp_path / "train-*.tfrecord"), SIZE, workers=0) as sequence:
        np.testing.assert_array_equal(sequence[0][0], np.stack(raw()))


def test_path_of_examples(tmp_path):
    records = [example.encode({"x": [n, 2 * n], "y": n / 2}) for n in range(3)]
    path = write(tmp_path / "a.tfrecord", "tfrecord", records)
    with SafeSequence(path, 3, workers=0) as sequence:
        batch = sequence[0]
    assert {name: values.tolist() for name, values in batch.items()} == {
        "x": [[0, 0], [1, 2], [2, 4]],
        "y": [[0.0], [0.5], [1.0]],
    }


# --- errors ---


def test_images_of_several_sizes(photos):
    sequence = SafeSequence(photos[0], 4, workers=2)
    with (
        sequence,
        pytest.raises(
            ValueError,
            match=r"sample 1 has shape .* images of several sizes need "
            r"open_images\(\.\.\., decode=ImageDecoder\(224\)\)",
        ),
    ):
        list(sequence)


@pytest.mark.parametrize(
    ("workers", "decode"),
    [(TWO_THREADS, None), (INLINE, ImageDecoder(8)), (PROCESSES, ImageDecoder(8))],
)
def test_file_that_is_no_image(workers, decode, tmp_path):
    (folder(tmp_path) / "bee/005.jpg").write_bytes(b"This is none.")
    sequence = SafeSequence(open_images(tmp_path, decode=decode), 4, **workers)
    with sequence, pytest.raises(RecordError, match=r"bee/005\.jpg.*expected an image") as caught:
        list(sequence)
    assert "in sample 5, batch 1 of epoch 0" in caught.value.__notes__


@pytest.mark.parametrize(("decode", "kind"), [(None, "empty"), (ImageDecoder(8), "gone")])
def test_skip_image(decode, kind, tmp_path):
    source = open_images(folder(tmp_path), decode=decode)
    path = Path(source.files[2])
    path.write_bytes(b"") if kind == "empty" else path.unlink()
    expected = [source[number] for number in (0, 1, 3, 3, 4, 5)]
    with SafeSequence(source, 6, on_error="skip", workers=2) as sequence:
        ((images, labels),) = sequence
        np.testing.assert_array_equal(images, np.stack([image for image, _ in expected]))
        assert labels.tolist() == [label for _, label in expected]


@every_kind
def test_damaged_record(workers, tmp_path):
    path = raw_file(tmp_path, "tfrecord")
    damage(path, path.stat().st_size - 30)
    sequence = SafeSequence(open_records(path, decode=RANDOM), 4, **workers)
    with sequence, pytest.raises(RecordError, match=rf"{path}, record 10, byte \d+: ") as caught:
        list(sequence)
    assert "in sample 10, batch 2 of epoch 0" in caught.value.__notes__


@every_kind
def test_function_answers_for_a_damaged_record(workers, tmp_path):
    path = raw_file(tmp_path, "recordio")
    damage(path, 70)
    with SafeSequence(path, 4, on_error=Answer(), **workers) as sequence:
        labels = np.concatenate([batch[1] for batch in sequence]).tolist()
    assert labels == [-7, *range(1, SIZE)]


class Answer:
    def __call__(self, error: Exception, number: int) -> Any:
        assert isinstance(error, RecordError)
        return np.zeros((4, 5, 3), np.uint8), number - 7


class Broken:
    """Some of its first samples can't be read."""

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
def test_blocks_measured_by_a_readable_sample(source, on_error, caplog):
    arguments = {"shuffle": Blocks(64, 2), "on_error": on_error, "workers": 0}
    with SafeSequence(source(3), 4, **arguments) as sequence:
        assert sum(len(batch) for batch in sequence) >= 200
    said = [each for each in caplog.messages if each.startswith("blocks are as large as sample 3")]
    assert "where a state is loaded: OSError: 0 can't be read" in said[0]


def test_blocks_of_unreadable_samples():
    with pytest.raises(OSError, match="0 can't be read"):
        SafeSequence(Broken(1), 4, shuffle="blocks", workers=0)
    with pytest.raises(OSError, match="0 can't be read"):
        SafeSequence(Broken(200), 4, shuffle="blocks", on_error="skip", workers=0)


def test_skip_with_weights():
    def fail(x):
        if x == 9:
            raise ValueError("no")
        return x

    arguments = {"on_error": "skip", "transform": fail, "workers": 0}
    weights = Weighted(np.eye(12)[9], 4)
    with SafeSequence(np.arange(12), 4, weights=weights, **arguments) as sequence:
        assert sequence[0].tolist() == [10] * 4


@pytest.mark.parametrize("make", [split, lambda source, _: concatenate([X, source])])
def test_whole_batches_refused_by_split(make):
    whole = SafeSequence((X, Y), 4)
    with pytest.raises(
        TypeError, match="single samples, got a SafeSequence, whose items are whole"
    ):
        make(whole, [0.5])

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return X, Y

    with pytest.raises(TypeError, match="got a Batches, whose items are whole batches: give what"):
        make(Batches(), [0.5])


class Drawing:
    """Draws from NumPy's own generator."""

    def __len__(self):
        return 8

    def __getitem__(self, number):
        return np.float32(number), np.float32(np.random.rand())


def drawn(payload):
    """Decodes a record, and draws from NumPy's own generator."""
    return np.float32(len(payload)), np.float32(np.random.rand())


@every_kind
def test_draws_in_parts_are_seeded(workers, tmp_path):
    with RecordWriter(tmp_path / "a.rec", format="recordio") as writer:
        for number in range(8):
            writer.write(b"x" * number)
    records = open_records(tmp_path / "a.rec", decode=drawn)
    expected = batches_of(records, INLINE), batches_of(concatenate([Drawing()]), INLINE)
    np.random.seed(5)
    parts = records.select(range(8)), split(Drawing(), [1.0])[0]
    assert tuple(batches_of(part, workers) for part in parts) == expected


def test_epoch_longer_than_the_source():
    with SafeSequence(LENGTHS, 10, weights=Weighted(np.ones(303), 5000), workers=0) as sequence:
        assert len(sequence) == 500 == len(list(sequence))


# --- what Keras's own loaders of folders offer ---


@pytest.fixture(scope="module")
def thirds(tmp_path_factory) -> Path:
    """PNGs, as two decoders of JPEGs differ a little, of one size, as Keras resizes otherwise."""
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


def test_image_dataset_from_directory(thirds):
    keras_dataset, source = keras_own(thirds), open_images(thirds)
    assert source.classes == keras_dataset.class_names
    assert list(source.files) == keras_dataset.file_paths
    (images, labels), (own_images, own_labels) = of_keras(thirds), of_ours(thirds)
    np.testing.assert_array_equal(own_images, images)
    np.testing.assert_array_equal(own_labels, labels)


def categorical(batch: Any) -> Any:
    return batch[0], keras.utils.to_categorical(batch[1], num_classes=3)


def binary(batch: Any) -> Any:
    return batch[0], batch[1].astype("float32")[:, None]


@pytest.mark.parametrize(
    ("theirs", "batch_transform", "ours"),
    [
        ({"class_names": ["c", "a"]}, None, {"classes": ["c", "a"]}),
        ({"label_mode": "categorical"}, categorical, {}),
        (
            {"label_mode": "binary", "class_names": ["a", "b"]},
            binary,
            {"classes": ["a", "b"]},
        ),
    ],
)
def test_labels_of_image_dataset_from_directory(thirds, theirs, batch_transform, ours):
    _, labels = of_keras(thirds, **theirs)
    _, own = of_ours(thirds, batch_transform, **ours)
    np.testing.assert_array_equal(own, labels)
    if batch_transform is binary:
        assert own.dtype == labels.dtype


def test_grayscale_by_batch_transform(thirds):
    images, _ = of_keras(thirds, color_mode="grayscale")
    weights = np.array([[0.299], [0.587], [0.114]], "float32")
    own, _ = of_ours(thirds, lambda batch: (batch[0] @ weights, batch[1]))
    assert own.shape == images.shape
    np.testing.assert_allclose(own, images, atol=1)


def test_labels_as_pairs(thirds):
    labels = [5, 7, 5, 6]
    _, theirs = of_keras(thirds, labels=labels)
    _, own = of_ours(list(zip(open_images(thirds).files, labels)))  # type: ignore[arg-type]
    np.testing.assert_array_equal(own, theirs)


def test_no_labels_by_batch_transform(thirds):
    images = next(keras_own(thirds, labels=None).as_numpy_iterator())
    own = of_ours(sorted(thirds.rglob("*.png")), lambda batch: batch[0])  # type: ignore[arg-type]
    np.testing.assert_array_equal(own, images)


def test_flow_from_directory(thirds):
    tensorflow = pytest.importorskip("tensorflow")
    made = tensorflow.keras.preprocessing.image.ImageDataGenerator()
    flow = made.flow_from_directory(thirds, classes=["c", "a"], shuffle=False)
    source = open_images(thirds, classes=["c", "a"])
    assert {name: number for number, name in enumerate(source.classes)} == flow.class_indices
    assert [str(path) for path in source.files] == flow.filepaths
    np.testing.assert_array_equal(source.labels, flow.labels)


def test_sample_weights_in_a_column(thirds):
    (thirds / "x.csv").write_text("filename,y,w\na/x.png,3,0.5\nb/x.png,4,2\n")
    batch = of_ours(
        thirds / "x.csv",
        lambda batch: (batch[0], batch[1][:, 0], batch[1][:, 1]),
        columns=("filename", "y", "w"),
    )
    assert [member.tolist() for member in batch[1:]] == [[3.0, 4.0], [0.5, 2.0]]
