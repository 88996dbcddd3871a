"""``open_images`` of a folder with a folder per class: which files, what order, which labels."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import ImageDecoder, open_images, open_records, pack
from adapters.sources.files import Files, runs_of
from tests.sources.image_folders import folder, jpeg, names_of, put, varied


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


# --- which files, which labels ---


def test_classes_are_numbered_in_the_order_of_their_names(tmp_path):
    source = open_images(put(tmp_path, "bee/1.jpg", "ant/1.jpg", "Cat/1.jpg", "ant/2.jpg"))
    assert source.classes == ["Cat", "ant", "bee"]
    assert source.labels.tolist() == [0, 1, 1, 2]
    assert list(source.files) == [
        str(tmp_path / name) for name in ("Cat/1.jpg", "ant/1.jpg", "ant/2.jpg", "bee/1.jpg")
    ]


def test_labels_are_an_array_that_nobody_writes_to(tmp_path):
    labels = open_images(folder(tmp_path)).labels
    assert (labels.dtype, labels.flags.writeable) == (np.int64, False)


def test_classes_that_were_given_say_the_order_and_which_there_are(tmp_path):
    source = open_images(put(tmp_path, "a/1.jpg", "b/1.jpg", "c/1.jpg"), classes=["c", "a"])
    assert source.classes == ["c", "a"]
    assert source.labels.tolist() == [0, 1]
    assert names_of(tmp_path, classes=("c", "a")) == ["c/1.jpg", "a/1.jpg"]


def test_files_in_folders_of_a_class_count_among_the_others_by_name(tmp_path):
    put(tmp_path, "a/2/x.jpg", "a/1.jpg", "a/3.jpg", "a/2/deep/y.jpg", "b/1.jpg")
    assert names_of(tmp_path) == ["a/1.jpg", "a/2/deep/y.jpg", "a/2/x.jpg", "a/3.jpg", "b/1.jpg"]
    assert open_images(tmp_path).labels.tolist() == [0, 0, 0, 0, 1]


def test_the_order_is_that_of_pack(tmp_path):
    names = ["a/2/x.jpg", "a/1.jpg", "a/B.jpg", "a/2.jpg", "b/é.jpg", "b/z.jpg", "b/10.jpg"]
    put(tmp_path / "in", *names)
    pack(tmp_path / "in", tmp_path / "out.rec", format="recordio")
    records, source = (
        open_records(tmp_path / "out.rec", decode="image"),
        open_images(tmp_path / "in"),
    )
    assert len(source) == len(records) == len(names)
    for (image, label), (packed, packed_label) in zip(source, records):
        np.testing.assert_array_equal(image, packed)
        assert label == packed_label


@pytest.mark.parametrize(
    "name",
    [
        "a b.jpg",
        " .jpg",
        "größe 漢字.JPG",
        os.fsdecode(b"odd \xff\xfe.jpeg"),
        "UPPER.PNG",
        "a\nb.JPe",
    ],
)
def test_a_file_may_have_any_name(tmp_path, name):
    put(tmp_path, f"a/{name}", "b/1.jpg")
    assert names_of(tmp_path) == [f"a/{name}", "b/1.jpg"]
    assert open_images(tmp_path)[0][0].shape == (20, 30, 3)


def test_a_class_may_have_a_name_that_is_not_utf_8(tmp_path):
    odd = os.fsdecode(b"b\xe9")
    source = open_images(put(tmp_path, f"{odd}/1.jpg", "a/1.jpg"))
    assert source.classes == ["a", odd]
    assert source[1][1] == 1


def test_one_class_is_enough(tmp_path):
    source = open_images(put(tmp_path, "a/1.jpg", "a/2.jpg"))
    assert (source.classes, source.labels.tolist()) == (["a"], [0, 0])


@pytest.mark.parametrize("given", [str, Path, lambda path: f"{path}/"])
def test_a_folder_is_named_by_a_string_or_a_path(tmp_path, given):
    assert len(open_images(given(folder(tmp_path)))) == 6


def test_paths_are_those_of_the_folder_as_it_was_given(tmp_path, monkeypatch):
    put(tmp_path / "photos", "a/1.jpg")
    monkeypatch.chdir(tmp_path)
    source = open_images("photos", decode=bytes)
    assert list(source.files) == ["photos/a/1.jpg"]
    monkeypatch.chdir("/")
    assert source[0][0] == jpeg(0)


# --- what doesn't count ---


@pytest.mark.parametrize("name", ["a/.x.jpg", ".x/x.jpg", "a/.x/x.jpg", ".x.jpg", "a/._1.jpg"])
def test_names_that_begin_with_a_dot_do_not_count(tmp_path, caplog, name):
    put(tmp_path, "a/1.jpg", "b/1.jpg", name)
    assert names_of(tmp_path) == ["a/1.jpg", "b/1.jpg"]
    assert told(caplog) == []


@pytest.mark.parametrize("name", ["Thumbs.db", ".DS_Store", "desktop.ini"])
def test_what_systems_leave_in_folders_does_not_count(tmp_path, caplog, name):
    put(tmp_path, "a/1.jpg", f"a/{name}", name)
    assert names_of(tmp_path) == ["a/1.jpg"]
    assert told(caplog) == []


def test_files_that_are_not_named_like_images_are_left_out_in_one_line(tmp_path, caplog):
    put(tmp_path, "a/1.jpg", "a/x.txt", "b/y.TXT", "b/2.jpg", "b/none", "b/x.mp4")
    assert names_of(tmp_path) == ["a/1.jpg", "b/2.jpg"]
    assert told(caplog) == [
        f"{tmp_path}: left out 4 files that aren't named like images (2 .txt, 1 without an ending, "
        "1 .mp4); a list of files takes any"
    ]


def test_images_beside_the_classes_are_left_out_in_one_line(tmp_path, caplog):
    put(tmp_path, "a/1.jpg", "loose.jpg", "readme.md")
    assert names_of(tmp_path) == ["a/1.jpg"]
    assert told(caplog) == [
        f"{tmp_path}: left out 1 images beside the folders of the classes; a list of files takes "
        "any"
    ]


def test_a_class_without_images_keeps_its_number_and_is_named(tmp_path, caplog):
    put(tmp_path, "a/1.jpg", "c/1.jpg")
    (tmp_path / "b").mkdir()
    source = open_images(tmp_path)
    assert (source.classes, source.labels.tolist()) == (["a", "b", "c"], [0, 2])
    assert told(caplog) == [f"{tmp_path}: there are no images in the folders ['b']"]


# --- links ---


def test_links_to_files_are_followed(tmp_path):
    put(tmp_path, "a/1.jpg", "b/1.jpg")
    (tmp_path / "b/2.jpg").symlink_to(tmp_path / "a/1.jpg")
    source = open_images(tmp_path, decode=bytes)
    assert [label for _, label in source] == [0, 1, 1]
    assert source[2][0] == source[0][0]


@pytest.mark.parametrize("place", ["c", "a/more"])
def test_links_to_folders_are_followed(tmp_path, place):
    put(tmp_path / "in", "a/1.jpg", "b/1.jpg")
    put(tmp_path / "other", "1.jpg", "2.jpg")
    (tmp_path / "in" / place).symlink_to(tmp_path / "other")
    assert len(open_images(tmp_path / "in")) == 4


@pytest.mark.parametrize(("place", "target"), [("a/again", "a"), ("a/all", "."), ("a/b/up", "a")])
def test_a_link_to_a_folder_above_leads_to_nothing_more(tmp_path, place, target):
    put(tmp_path, "a/1.jpg", "a/b/2.jpg", "c/1.jpg")
    (tmp_path / place).symlink_to((tmp_path / target).resolve())
    assert names_of(tmp_path) == ["a/1.jpg", "a/b/2.jpg", "c/1.jpg"]


def test_a_link_to_itself_is_a_file_that_cannot_be_read(tmp_path):
    put(tmp_path, "a/1.jpg")
    (tmp_path / "a/0.jpg").symlink_to(tmp_path / "a/0.jpg")
    (tmp_path / "b").symlink_to(tmp_path / "b")
    source = open_images(tmp_path)
    assert source.classes == ["a"]
    with pytest.raises(OSError, match=r"symbolic links: '.*a/0\.jpg'"):
        source[0]


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path, monkeypatch):
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


# --- what can't be opened ---


def test_a_folder_without_folders_is_told_what_to_do(tmp_path):
    put(tmp_path, "1.jpg", "2.jpg")
    with pytest.raises(
        ValueError,
        match=r"must have a folder per class, got '.*' with 2 images and no folder: "
        r"give images with labels as a list \[\(file, label\), \.\.\.\] or a table, and those "
        r"without as a list of files",
    ):
        open_images(tmp_path)


def test_a_folder_without_images_says_what_counts(tmp_path):
    put(tmp_path, "a/1.txt")
    with pytest.raises(ValueError, match=r"at least one image, .*'a'.*\.jpg"):
        open_images(tmp_path)


@pytest.mark.parametrize(
    ("classes", "error", "message"),
    [
        (["a", "x"], ValueError, r"classes must be folders in '.*', \['a', 'b'\], got 'x'"),
        (["a", "a"], ValueError, r"classes must be one name or more, each once, got \['a', 'a'\]"),
        ([], ValueError, r"one name or more"),
        ("ab", TypeError, "classes must be a list of names, got 'ab'"),
        ([0, 1], TypeError, "classes must be names, got 0"),
        (3, TypeError, "classes must be a list of names, got 3"),
        ({"a"}, TypeError, r"names, whose order says their numbers, got \{'a'\}: sorted makes one"),
        ({"b": 0, "a": 1}, TypeError, r"got \{.*\}: sorted\(classes, key=classes.get\) makes one"),
        ([".hidden"], ValueError, r"got '\.hidden'"),
    ],
)
def test_classes_that_cannot_be_are_refused(tmp_path, classes, error, message):
    put(tmp_path, "a/1.jpg", "b/1.jpg", ".hidden/1.jpg")
    with pytest.raises(error, match=message):
        open_images(tmp_path, classes=classes)


@pytest.mark.parametrize("arguments", [{"root": "/"}, {"columns": ("a", "b")}])
def test_what_is_about_tables_is_refused_for_a_folder(tmp_path, arguments):
    with pytest.raises(ValueError, match="for lists and tables, got a folder"):
        open_images(folder(tmp_path), **arguments)


@pytest.mark.parametrize("decode", ["example", "jpeg", {"x": ImageDecoder(8)}, 7, None])
def test_what_a_file_can_become_is_said(tmp_path, decode):
    if decode is None:
        assert open_images(folder(tmp_path))[0][0].dtype == np.uint8
        return
    with pytest.raises(ValueError, match='decode must be None, "image", an ImageDecoder or a fun'):
        open_images(folder(tmp_path), decode=decode)


# --- many files ---


def test_names_of_many_files_take_little_memory():
    """A million of them: a name, an offset and the number of a folder each, and no objects."""
    runs = [(f"/data/n{n:04d}", [f"n{n:04d}_{i}.JPEG" for i in range(100)]) for n in range(100)]
    files = Files(runs)
    size = sum(len(part) for part in pickle.dumps(files, 5).split(b"\0" * 1000))
    assert size < 45 * len(files)
    assert (files[0], files[9_999]) == ("/data/n0000/n0000_0.JPEG", "/data/n0099/n0099_99.JPEG")


def test_files_are_a_sequence(tmp_path):
    files = open_images(varied(tmp_path, 5)).files
    paths = [files[number] for number in range(len(files))]
    assert list(files) == paths
    assert files[1:4] == paths[1:4]
    assert files[-1] == paths[-1]
    assert paths[2] in files
    assert repr(files).startswith(f"<5 files: '{paths[0]}', ")
    with pytest.raises(IndexError):
        files[5]


def test_a_name_with_a_zero_in_it_is_refused():
    with pytest.raises(ValueError, match="must not have a 0"):
        Files(runs_of(["a/b\0c.jpg"]))
