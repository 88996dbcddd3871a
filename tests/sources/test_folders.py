"""``open_images`` of a folder per class: which files and labels, and what is wrong with a file."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import (
    ClosedError,
    ImageDecoder,
    RecordError,
    concatenate,
    open_images,
    open_records,
    pack,
    split,
)
from adapters.sources import imagefiles
from adapters.sources.filereader import read_file
from adapters.sources.files import Files, runs_of
from tests.batches import exact
from tests.images.pictures import by_opencv, encoded, npy, picture
from tests.plans import batch_of, plan_of
from tests.sources.image_folders import folder, jpeg, names_of, put, varied
from tests.sources.record_files import assert_batches_are_samples


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_classes_are_numbered_by_name(tmp_path):
    source = open_images(put(tmp_path, "bee/1.jpg", "ant/1.jpg", "Cat/1.jpg", "ant/2.jpg"))
    assert source.classes == ["Cat", "ant", "bee"]
    assert source.labels.tolist() == [0, 1, 1, 2]
    assert (source.labels.dtype, source.labels.flags.writeable) == (np.int64, False)
    names = ("Cat/1.jpg", "ant/1.jpg", "ant/2.jpg", "bee/1.jpg")
    assert list(source.files) == [str(tmp_path / name) for name in names]
    one = open_images(put(tmp_path / "one", "a/1.jpg", "a/2.jpg"))
    assert (one.classes, one.labels.tolist()) == (["a"], [0, 0])


def test_given_classes_say_order_and_choice(tmp_path):
    source = open_images(put(tmp_path, "a/1.jpg", "b/1.jpg", "c/1.jpg"), classes=("c", "a"))
    assert (source.classes, source.labels.tolist()) == (["c", "a"], [0, 1])
    assert list(source.files) == [f"{tmp_path}/c/1.jpg", f"{tmp_path}/a/1.jpg"]


def test_order_is_that_of_pack(tmp_path):
    names = ["a/2/x.jpg", "a/1.jpg", "a/B.jpg", "a/2.jpg", "b/é.jpg", "b/z.jpg", "b/10.jpg"]
    put(tmp_path / "in", *names)
    pack(tmp_path / "in", tmp_path / "out.rec", format="recordio")
    records = open_records(tmp_path / "out.rec", decode="image")
    assert len(records) == len(names)
    for (image, label), (packed, packed_label) in zip(
        open_images(tmp_path / "in"), records, strict=True
    ):
        np.testing.assert_array_equal(image, packed)
        assert label == packed_label


ODD = os.fsdecode(b"odd \xff\xfe")


@pytest.mark.parametrize(
    "name", ["a b.jpg", " .jfif", "größe 漢字.JPG", f"{ODD}.jpeg", "UPPER.PNG", "a\nb.JPe"]
)
def test_files_and_classes_may_have_any_name(tmp_path, name):
    source = open_images(put(tmp_path, f"a/{name}", f"b{ODD}/1.jpg"))
    assert names_of(tmp_path) == [f"a/{name}", f"b{ODD}/1.jpg"]
    assert source.classes == ["a", f"b{ODD}"]
    assert source[0][0].shape == (20, 30, 3)


def test_paths_are_as_given(tmp_path, monkeypatch):
    root = put(tmp_path / "photos", "a/1.jpg")
    for given in (root, f"{root}/"):
        assert list(open_images(given).files) == [f"{root}/a/1.jpg"]
    monkeypatch.chdir(tmp_path)
    assert list(open_images("photos").files) == ["photos/a/1.jpg"]


@pytest.mark.parametrize(
    "name",
    ["a/.x.jpg", ".x/x.jpg", "a/.x/x.jpg", ".x.jpg", "Thumbs.db", "a/.DS_Store", "a/desktop.ini"],
)
def test_hidden_and_system_files_do_not_count(tmp_path, caplog, name):
    put(tmp_path, "a/1.jpg", "b/1.jpg", name)
    assert names_of(tmp_path) == ["a/1.jpg", "b/1.jpg"]
    assert told(caplog) == []


def test_other_files_are_left_out_in_one_line(tmp_path, caplog):
    put(tmp_path / "files", "a/1.jpg", "a/x.txt", "b/y.TXT", "b/2.jpg", "b/none", "b/x.mp4")
    assert names_of(tmp_path / "files") == ["a/1.jpg", "b/2.jpg"]
    put(tmp_path / "loose", "a/1.jpg", "loose.jpg", "readme.md")
    assert names_of(tmp_path / "loose") == ["a/1.jpg"]
    files, loose = told(caplog)
    assert "left out 4 files without an image's ending (2 .txt, 1 without" in files
    assert "left out 1 image beside the folders of the classes" in loose


def test_class_without_images_keeps_its_number(tmp_path, caplog):
    put(tmp_path, "a/1.jpg", "c/1.jpg")
    (tmp_path / "b").mkdir()
    source = open_images(tmp_path)
    assert (source.classes, source.labels.tolist()) == (["a", "b", "c"], [0, 2])
    assert told(caplog) == [f"{tmp_path}: there are no images in the folders ['b']"]


@pytest.mark.parametrize("place", ["c", "a/more", "b/2.jpg"])
def test_links_are_followed(tmp_path, place):
    root = put(tmp_path / "in", "a/1.jpg", "b/1.jpg")
    put(tmp_path / "other", "1.jpg")
    file = "1.jpg" if place.endswith("jpg") else ""
    (root / place).symlink_to(tmp_path / "other" / file)
    files = list(open_images(root).files)
    assert len(files) == 3
    assert [path for path in files if path.startswith(str(root / place))]


@pytest.mark.parametrize(("place", "target"), [("a/again", "a"), ("a/all", "."), ("a/b/up", "a")])
def test_link_to_a_folder_above_ends(tmp_path, place, target):
    put(tmp_path, "a/1.jpg", "a/b/2.jpg", "c/1.jpg")
    (tmp_path / place).symlink_to((tmp_path / target).resolve())
    assert names_of(tmp_path) == ["a/1.jpg", "a/b/2.jpg", "c/1.jpg"]


def test_link_to_itself(tmp_path):
    put(tmp_path, "a/1.jpg")
    (tmp_path / "a/0.jpg").symlink_to(tmp_path / "a/0.jpg")
    (tmp_path / "b").symlink_to(tmp_path / "b")
    source = open_images(tmp_path)
    assert source.classes == ["a"]
    with pytest.raises(OSError, match=r"symbolic links: '.*a/0\.jpg'"):
        source[0]


def test_unreadable_folder_is_an_error(tmp_path, monkeypatch):
    """As root reads everything, the system's refusal is played."""
    put(tmp_path, "a/1.jpg", "b/1.jpg")
    scandir = os.scandir

    def refusing(path: Any) -> Any:
        if os.fspath(path).endswith("b"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(PermissionError, match=str(tmp_path / "b")):
        open_images(tmp_path)


def test_folder_without_classes_or_images(tmp_path):
    put(tmp_path / "flat", "1.jpg", "2.jpg")
    said = r"must have a folder per class, got .* 2 images and no folder: .* \[\(file, label\)"
    with pytest.raises(ValueError, match=said):
        open_images(tmp_path / "flat")
    put(tmp_path / "texts", "a/1.txt")
    with pytest.raises(ValueError, match=r"at least one image, .*'a'.*\.jpg"):
        open_images(tmp_path / "texts")


WRONG_DECODE = 'decode must be None, "image", an ImageDecoder or a fun'


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"classes": ["a", "x"]}, ValueError, r"must be folders in '.*', \['a', 'b'\], got 'x'"),
        ({"classes": ["a", "a"]}, ValueError, r"must be .*, each once, got \['a', 'a'\]"),
        ({"classes": "ab"}, TypeError, "classes must be a list of names, got 'ab'"),
        ({"classes": {"a"}}, TypeError, r"order says their .*, got \{'a'\}: sorted makes one"),
        ({"classes": {"b": 0}}, TypeError, r"\{.*\}: sorted\(classes, key=classes.get\) makes one"),
        ({"classes": [".hidden"]}, ValueError, r"got '\.hidden'"),
        ({"root": "/"}, ValueError, "for lists and tables, got a folder"),
        ({"columns": ("a", "b")}, ValueError, "for lists and tables, got a folder"),
        ({"decode": "example"}, ValueError, WRONG_DECODE),
        ({"decode": {"x": ImageDecoder(8)}}, ValueError, WRONG_DECODE),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, arguments, error, message):
    put(tmp_path, "a/1.jpg", "b/1.jpg", ".hidden/1.jpg")
    with pytest.raises(error, match=message):
        open_images(tmp_path, **arguments)


def test_files_are_a_sequence(tmp_path):
    files = open_images(varied(tmp_path, 5)).files
    paths = [files[number] for number in range(5)]
    assert list(files) == paths
    assert (files[1:4], files[-1]) == (paths[1:4], paths[-1])
    with pytest.raises(IndexError):
        files[5]
    with pytest.raises(ValueError, match="must not have a 0"):
        Files(runs_of(["a/b\0c.jpg"]))


# --- files as samples ---


RANDOM = ImageDecoder(16, crop="random_resized", flip=True)


def test_image_is_rgb_of_its_own_size(tmp_path):
    source = open_images(varied(tmp_path, 3))
    for number, (image, label) in enumerate(source):
        assert (image.dtype, image.shape) == (np.uint8, (20 + number, 50 - number, 3))
        np.testing.assert_allclose(image, by_opencv(jpeg(number, 20 + number, 50 - number)), atol=2)
        assert (label, type(label)) == (number, int)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "NPY"])
def test_content_tells_the_kind(tmp_path, kind):
    content = npy(picture(9, 7)) if kind == "NPY" else encoded(picture(9, 7), kind)
    (put(tmp_path, "a/0.jpg") / "a/1.jpg").write_bytes(content)
    image = open_images(tmp_path)[1][0]
    np.testing.assert_array_equal(image, picture(9, 7))
    image[0] = 0  # It is nobody else's.


def test_functions_and_decoders(tmp_path):
    source = open_images(folder(tmp_path), decode=lambda content: (type(content), len(content)))
    assert source[1] == ((bytes, len(jpeg(2))), 0)
    source = open_images(folder(tmp_path), decode=RANDOM)
    assert len({source[3][0].tobytes() for _ in range(9)}) > 1


def test_index_slice_and_iteration(tmp_path):
    source = open_images(folder(tmp_path), decode=len)
    samples = list(source)
    assert source[-1] == samples[5] == source[np.int64(5)]
    assert source[1:5:2] == source.__getitems__([1, 3]) == samples[1:5:2]
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
        with pytest.raises(ValueError, match=r"labels of several lengths need .* pad\(\)$"):
            batch_of(plan_of(each, 2))


@pytest.mark.parametrize("at_once_bytes", [1, 2_000, 4 << 20])
def test_batch_is_its_samples_whatever_is_read_at_once(tmp_path, monkeypatch, at_once_bytes):
    monkeypatch.setattr(imagefiles, "_AT_ONCE_BYTES", at_once_bytes)
    files = open_images(varied(tmp_path)).files
    pairs = [(file, [n / 2, n]) for n, file in enumerate(files)]
    assert_batches_are_samples(open_images(pairs, decode=RANDOM), 6)


def test_threads_do_not_share_memory(tmp_path):
    source, barrier = open_images(varied(tmp_path), decode=ImageDecoder(16)), threading.Barrier(4)
    expected = np.stack([image for image, _ in source])

    def check(seed: int) -> bool:
        plan = plan_of(source, 9, shuffle=True, seed=seed)
        barrier.wait(30)
        return all(
            np.array_equal(batch_of(plan, epoch)[0], expected[plan.order.batch(epoch, 0)])
            for epoch in range(30)
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(check, range(4)))


DAMAGED = "byte 0: expected a JPEG image, found a damaged one"
GONE = r'a link to nothing: open the images again, or on_error="skip"'
# Each makes a file that can't be read.
WRONG: dict[str, tuple[Callable[[Path], Any], type[Exception], str]] = {
    "empty": (Path.touch, RecordError, "byte 0: expected an image, found an empty file"),
    "cut": (lambda path: path.write_bytes(jpeg(1)[:-200]), RecordError, DAMAGED),
    "head": (lambda path: path.write_bytes(jpeg(1)[:30]), RecordError, DAMAGED),
    "text": (lambda path: path.write_bytes(b"This"), RecordError, "found 4 bytes that begin with"),
    "pipe": (os.mkfifo, RecordError, "expected a file, found something else"),
    "folder": (Path.mkdir, RecordError, "expected a file, found a folder"),
    "gone": (lambda path: None, FileNotFoundError, GONE),
    "broken link": (lambda path: path.symlink_to("nothing"), FileNotFoundError, GONE),
}


@pytest.mark.parametrize("kind", WRONG)
def test_unreadable_file_is_named_and_leaves_the_rest(tmp_path, kind):
    path = put(tmp_path, "a/0.jpg") / "a/1.jpg"
    make, kind_of_error, message = WRONG[kind]
    make(path)
    source = open_images([path, tmp_path / "a/0.jpg", path], decode=ImageDecoder(8))
    seen: list[int] = []

    def answer(error: Exception, number: int) -> Any:
        assert type(error) is kind_of_error
        seen.append(number)
        return np.zeros((8, 8, 3), np.uint8), 5

    images, labels = batch_of(plan_of(source, 3, on_error=answer))
    assert (seen, labels.tolist()) == ([0, 2], [5, 0, 5])
    np.testing.assert_array_equal(images[1], source[1][0])
    for ask in (lambda: source[0], lambda: batch_of(plan_of(source, 3))):
        with pytest.raises(kind_of_error, match=message) as caught:
            ask()
        assert str(path) in str(caught.value)


def test_missing_file_is_named_if_it_is_not_decoded(tmp_path):
    source = open_images(folder(tmp_path), decode=len)
    Path(source.files[0]).unlink()
    for ask in (source.__getitem__, source.read):
        with pytest.raises(FileNotFoundError, match="open the images again"):
            ask(0)


def test_file_that_is_cut_while_it_is_read(tmp_path, monkeypatch):
    path, fstat = put(tmp_path, "1.jpg") / "1.jpg", os.fstat
    monkeypatch.setattr(os, "fstat", lambda file: (fstat(file), os.truncate(path, 100))[0])
    with pytest.raises(ValueError, match=r"bytes, found 100: the file was cut meanwhile"):
        read_file(os.fsencode(path))


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
    with pytest.raises(RecordError, match=r"at most 1,073,741,824 bytes, found a file of 1,099,51"):
        open_images([path])[0]


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="descriptors are counted there")
def test_no_descriptor_stays_open(tmp_path):
    os.mkfifo(put(tmp_path, "a/0.jpg") / "a/1.jpg")
    before = os.listdir("/proc/self/fd")
    source = open_images(tmp_path, decode=ImageDecoder(8))
    for _ in range(3):
        batch_of(plan_of(source, 2, on_error="skip"))
        with pytest.raises(RecordError):
            source[1]
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_closed_source_says_so(tmp_path):
    with open_images(folder(tmp_path), decode=ImageDecoder(8)) as source:
        plan = plan_of(source)
        batch_of(plan)
    for ask in (lambda: source[0], lambda: source.read(0), lambda: batch_of(plan)):
        with pytest.raises(ClosedError, match="the images have been closed; open them again"):
            ask()
    assert source.labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_copy_for_another_process_finds_the_files(tmp_path, monkeypatch):
    varied(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    source = open_images("photos", decode=RANDOM)
    expected = exact(batch_of(plan_of(source, 9)))
    pickled = pickle.dumps(source, 5)
    assert len(pickled) < 5_000  # Without the memory that files are read into.
    monkeypatch.chdir("/")
    copy = pickle.loads(pickled)
    assert exact(batch_of(plan_of(copy, 9))) == expected
    assert (copy.classes, list(copy.files)) == (source.classes, list(source.files))
