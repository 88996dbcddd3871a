"""Image files as samples: what is wrong with a file, and what stays open."""

from __future__ import annotations

import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from adapters import ClosedError, ImageDecoder, RecordError, concatenate, open_images, split
from adapters.generators import DECODE, Generators, generator
from adapters.sources import imagefiles
from adapters.sources.filereader import read_file
from tests.images.pictures import by_opencv, encoded, npy, picture
from tests.plans import batch_of, plan_of
from tests.sources.every_kind import all_samples
from tests.sources.image_folders import folder, jpeg, put, varied

RANDOM = ImageDecoder(16, crop="random_resized", flip=True)


def filled(source: Any, numbers: Any) -> tuple[Any, Any, list[tuple[int, Exception]]]:
    """Images, labels and failures of a batch that the source writes itself."""
    rows = [np.full((len(numbers), *shape), 7, dtype) for shape, dtype in source.leaves]
    own = np.array(numbers, np.int64)
    rng_of = Generators(5, 2, DECODE, own) if source.draws else None
    failures = source.fill(own, rng_of, rows)
    return *rows, failures


def test_image_is_rgb_of_its_own_size(tmp_path):
    source = open_images(varied(tmp_path, 3))
    for number, (image, label) in enumerate(source):
        assert (image.dtype, image.shape) == (np.uint8, (20 + number, 50 - number, 3))
        np.testing.assert_allclose(image, by_opencv(jpeg(number, 20 + number, 50 - number)), atol=2)
        assert (label, type(label)) == (number, int)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "WEBP", "TIFF", "PPM", "NPY"])
def test_content_tells_the_kind(tmp_path, kind):
    content = npy(picture(9, 7)) if kind == "NPY" else encoded(picture(9, 7), kind)
    (put(tmp_path, "a/0.jpg") / "a/1.jpg").write_bytes(content)
    image = open_images(tmp_path)[1][0]
    assert image.shape == (9, 7, 3)
    if kind != "WEBP":  # Which loses some.
        np.testing.assert_array_equal(image, picture(9, 7))
    image[0] = 0  # It is nobody else's.


def test_gif_is_an_image_where_opencv_knows_them(tmp_path):
    (put(tmp_path, "a/0.jpg") / "a/1.gif").write_bytes(encoded(picture(9, 7), "GIF"))
    source = open_images(tmp_path)
    if cv2.imdecode(np.frombuffer(source.read(1), np.uint8), cv2.IMREAD_COLOR) is not None:
        assert source[1][0].shape == (9, 7, 3)
        return
    with pytest.raises(RecordError, match="found a GIF: convert it"):
        source[1]


def test_functions_and_decoders(tmp_path):
    source = open_images(folder(tmp_path), decode=lambda content: (type(content), len(content)))
    assert source[1] == ((bytes, len(jpeg(2))), 0)
    source = open_images(folder(tmp_path), decode=ImageDecoder(8, dtype="float32", layout="NCHW"))
    image, label = source[5]
    assert (image.shape, image.dtype, label) == ((3, 8, 8), np.float32, 1)
    source = open_images(folder(tmp_path), decode=RANDOM)
    assert len({source[3][0].tobytes() for _ in range(9)}) > 1


def test_index_slice_and_iteration(tmp_path):
    source = open_images(folder(tmp_path), decode=len)
    samples = list(source)
    assert (len(source), len(samples)) == (6, 6)
    assert source[-1] == samples[-1] == source[np.int64(5)]
    assert source[1:5:2] == samples[1:5:2]
    assert source.__getitems__([4, 0, 4]) == [samples[4], samples[0], samples[4]]
    assert source.read(1) == jpeg(2)
    with pytest.raises(IndexError, match=r"file number must be in range\(-6, 6\), got 6"):
        source[6]
    with pytest.raises(TypeError, match="file number must be an integer or a slice, got 'a'"):
        source["a"]


def test_parts_have_files_labels_and_classes(tmp_path):
    source = open_images(folder(tmp_path))
    train, test = split(source, [0.5, 0.5], seed=1, stratify=source.labels)
    assert sorted([*train.files, *test.files]) == sorted(source.files)
    for part in (train, test, train.select([2, 0]), concatenate([test, train])):
        assert part.classes == source.classes
        assert [label for _, label in part] == part.labels.tolist()
        assert [source.files.index(file) for file in part.files] == part.numbers.tolist()
    assert pickle.loads(pickle.dumps(train)).files == train.files


@pytest.mark.parametrize("decode", [None, ImageDecoder(8)])
@pytest.mark.parametrize("other", [[1], 1])
def test_labels_of_several_lengths_are_told(decode, other, tmp_path):
    file = open_images(folder(tmp_path)).files[0]
    source = open_images([(file, [1, 2]), (file, other)], decode=decode)
    for each in (source, source.select([0, 1])):
        with pytest.raises(
            ValueError, match=r"1 of 2.*; labels of several lengths need .* pad\(\)$"
        ):
            batch_of(plan_of(each, 2))


@pytest.mark.parametrize("arena_bytes", [1, 2_000, 4 << 20])
def test_batch_is_its_samples_whatever_is_read_at_once(tmp_path, monkeypatch, arena_bytes):
    """In several goes, and with files that are larger than what is kept for them."""
    monkeypatch.setattr(imagefiles, "_ARENA_BYTES", arena_bytes)
    source, numbers = open_images(varied(tmp_path), decode=RANDOM), [7, 2, 2, 0, 10, 5]
    expected = [source.sample(number, generator(5, 2, number, DECODE)) for number in numbers]
    for _ in range(2):  # In memory that is used again.
        images, labels, failures = filled(source, numbers)
        assert failures == []
        for row, (image, label) in enumerate(expected):
            np.testing.assert_array_equal(images[row], image)
            assert labels[row] == label


def test_threads_do_not_share_memory(tmp_path):
    source, barrier = open_images(varied(tmp_path), decode=ImageDecoder(16)), threading.Barrier(4)
    expected = np.stack([image for image, _ in source])

    def check(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        barrier.wait(30)
        numbers = [rng.integers(0, len(source), 9) for _ in range(30)]
        return all(np.array_equal(filled(source, each)[0], expected[each]) for each in numbers)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(check, range(4)))


def test_labels_of_a_batch(tmp_path):
    put(tmp_path, "1.jpg", "2.jpg")
    pairs = [(tmp_path / "1.jpg", [0.5, 1]), (tmp_path / "2.jpg", [2, 3])]
    _, labels, _ = filled(open_images(pairs, decode=ImageDecoder(8)), [1, 0, 1])
    assert (labels.dtype, labels.tolist()) == (np.float32, [[2, 3], [0.5, 1], [2, 3]])


def spoiled(root: Path, kind: str) -> Path:
    """A file that can't be read, of this kind, among others."""
    path = put(root, "a/0.jpg", "a/1.jpg", "b/2.jpg") / "a/1.jpg"
    content = path.read_bytes()
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "broken link":
        path.symlink_to(root / "nothing")
    elif kind != "gone":
        cut = {"empty": b"", "cut": content[:-200], "text": b"This is none.", "head": content[:30]}
        path.write_bytes(cut[kind])
    return path


WRONG = {
    "empty": (RecordError, "byte 0: expected an image, found an empty file"),
    "cut": (RecordError, "byte 0: expected a JPEG image, found a damaged one"),
    "head": (RecordError, "byte 0: expected a JPEG image, found a damaged one"),
    "text": (RecordError, "expected an image, found 13 bytes that begin with 54 68 69 73"),
    "pipe": (RecordError, "expected a file, found something else"),
    "folder": (RecordError, "expected a file, found a folder"),
    "gone": (FileNotFoundError, r'a link to nothing: open the images again, or on_error="skip"'),
    "broken link": (FileNotFoundError, "No such file, or a link to nothing"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_unreadable_file_is_named_and_leaves_the_rest(tmp_path, kind):
    path = spoiled(tmp_path, kind)
    paths = [path, tmp_path / "a/0.jpg", path, tmp_path / "b/2.jpg"]
    source = open_images(paths, decode=ImageDecoder(8))
    images, _, failures = filled(source, [0, 1, 2, 3])
    kind_of_error, message = WRONG[kind]
    with pytest.raises(kind_of_error, match=message) as caught:
        source[0]
    assert str(path) in str(caught.value)
    assert [row for row, _ in failures] == [0, 2]
    for _, error in failures:
        with pytest.raises(kind_of_error, match=message):
            raise error
    np.testing.assert_array_equal(images[[1, 3]], np.stack([source[1][0], source[3][0]]))


def test_link_to_nothing_counts(tmp_path):
    spoiled(tmp_path, "broken link")
    assert len(open_images(tmp_path)) == 3


@pytest.mark.parametrize("decode", [None, len])
def test_missing_file_is_named_whoever_decodes(tmp_path, decode):
    source = open_images(folder(tmp_path), decode=decode)
    Path(source.files[0]).unlink()
    for ask in (source.__getitem__, source.read):
        with pytest.raises(FileNotFoundError, match="open the images again"):
            ask(0)


def meanwhile(path: Path, content: bytes) -> Any:
    """Gives room for a file, and writes another one before that is read."""

    def room(size: int) -> memoryview:
        path.write_bytes(content)
        return memoryview(bytearray(size))

    return room


def test_file_that_changes_while_it_is_read(tmp_path):
    path = put(tmp_path, "1.jpg") / "1.jpg"
    name = os.fsencode(path)
    assert read_file(name, meanwhile(path, jpeg(0) + b"more")) == jpeg(0)
    path.write_bytes(jpeg(0))
    with pytest.raises(ValueError, match=r"bytes, found 100: the file was cut meanwhile"):
        read_file(name, meanwhile(path, jpeg(0)[:100]))


def test_file_that_comes_in_parts_is_read_whole(tmp_path, monkeypatch):
    """As from a share over a network."""
    readv = os.readv
    monkeypatch.setattr(os, "readv", lambda file, rooms: readv(file, (rooms[0][:100],)))
    assert open_images(put(tmp_path, "a/1.jpg")).read(0) == jpeg(0)


def test_users_exception_is_its_own(tmp_path):
    def refuse(content: bytes) -> None:
        raise FileNotFoundError("of my own")

    with pytest.raises(FileNotFoundError, match=r"^of my own$"):
        open_images(folder(tmp_path), decode=refuse)[0]


def test_file_of_absurd_size_is_refused(tmp_path):
    path = put(tmp_path, "1.jpg") / "1.jpg"
    os.truncate(path, 1 << 40)
    with pytest.raises(
        RecordError, match=r"at most 1,073,741,824 bytes, found a file of 1,099,511"
    ):
        open_images([path])[0]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="descriptors are counted there")
def test_no_descriptor_stays_open(tmp_path):
    spoiled(tmp_path, "pipe")
    before = descriptors()
    source = open_images(tmp_path, decode=ImageDecoder(8))
    for _ in range(3):
        filled(source, [0, 1, 2])
        with pytest.raises(RecordError):
            source[1]
        source[0]
    assert descriptors() == before


def test_closed_source_says_so(tmp_path):
    with open_images(folder(tmp_path), decode=ImageDecoder(8)) as source:
        filled(source, [0])
    for ask in (source.__getitem__, source.read, lambda number: filled(source, [number])):
        with pytest.raises(ClosedError, match="the images have been closed; open them again"):
            ask(0)
    assert source.labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_copy_for_another_process_finds_the_files(tmp_path, monkeypatch):
    varied(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    source = open_images("photos", decode=RANDOM)
    filled(source, [0])
    pickled = pickle.dumps(source, 5)
    assert len(pickled) < 5_000  # Without the memory that files are read into.
    monkeypatch.chdir("/")
    copy = pickle.loads(pickled)
    for ours, other in zip(all_samples(source), all_samples(copy)):
        np.testing.assert_array_equal(ours[0], other[0])
    assert (copy.classes, list(copy.files)) == (source.classes, list(source.files))
    np.testing.assert_array_equal(copy.labels, source.labels)
