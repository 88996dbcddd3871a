"""``open_images`` of a folder with a folder per class: which files, what order, which labels."""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np
import pytest

from adapters import ImageDecoder, open_images, open_records, pack
from adapters.sources.files import Files, runs_of
from tests.sources.image_folders import folder, jpeg, names_of, put, varied


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
    source = open_images(put(tmp_path, "a/1.jpg", "b/1.jpg", "c/1.jpg"), classes=["c", "a"])
    assert source.classes == ["c", "a"]
    assert source.labels.tolist() == [0, 1]
    assert names_of(tmp_path, classes=("c", "a")) == ["c/1.jpg", "a/1.jpg"]


def test_nested_files_are_ordered_by_name(tmp_path):
    put(tmp_path, "a/2/x.jpg", "a/1.jpg", "a/3.jpg", "a/2/deep/y.jpg", "b/1.jpg")
    assert names_of(tmp_path) == ["a/1.jpg", "a/2/deep/y.jpg", "a/2/x.jpg", "a/3.jpg", "b/1.jpg"]
    assert open_images(tmp_path).labels.tolist() == [0, 0, 0, 0, 1]


def test_order_is_that_of_pack(tmp_path):
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


ODD = os.fsdecode(b"odd \xff\xfe")


@pytest.mark.parametrize(
    "name", ["a b.jpg", " .jpg", "größe 漢字.JPG", f"{ODD}.jpeg", "UPPER.PNG", "a\nb.JPe"]
)
def test_files_and_classes_may_have_any_name(tmp_path, name):
    source = open_images(put(tmp_path, f"a/{name}", f"b{ODD}/1.jpg"))
    assert names_of(tmp_path) == [f"a/{name}", f"b{ODD}/1.jpg"]
    assert source.classes == ["a", f"b{ODD}"]
    assert source[0][0].shape == (20, 30, 3)


def test_paths_are_as_given(tmp_path, monkeypatch):
    root = put(tmp_path / "photos", "a/1.jpg")
    for given in (str(root), root, f"{root}/"):
        assert list(open_images(given).files) == [f"{root}/a/1.jpg"]
    monkeypatch.chdir(tmp_path)
    source = open_images("photos", decode=bytes)
    assert list(source.files) == ["photos/a/1.jpg"]
    monkeypatch.chdir("/")
    assert source[0][0] == jpeg(0)


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
    assert "left out 4 files that aren't named like images (2 .txt, 1 without" in files
    assert "left out 1 images beside the folders of the classes" in loose


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
    source = open_images(root, decode=bytes)
    assert len(source) == 3
    assert [path for path in source.files if path.startswith(str(root / place))]


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


@pytest.mark.parametrize(
    ("classes", "error", "message"),
    [
        (["a", "x"], ValueError, r"classes must be folders in '.*', \['a', 'b'\], got 'x'"),
        (["a", "a"], ValueError, r"classes must be one name or more, each once, got \['a', 'a'\]"),
        ("ab", TypeError, "classes must be a list of names, got 'ab'"),
        ({"a"}, TypeError, r"names, whose order says their numbers, got \{'a'\}: sorted makes one"),
        ({"b": 0, "a": 1}, TypeError, r"got \{.*\}: sorted\(classes, key=classes.get\) makes one"),
        ([".hidden"], ValueError, r"got '\.hidden'"),
    ],
)
def test_wrong_classes_are_refused(tmp_path, classes, error, message):
    put(tmp_path, "a/1.jpg", "b/1.jpg", ".hidden/1.jpg")
    with pytest.raises(error, match=message):
        open_images(tmp_path, classes=classes)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"root": "/"}, "for lists and tables, got a folder"),
        ({"columns": ("a", "b")}, "for lists and tables, got a folder"),
        *(
            ({"decode": decode}, 'decode must be None, "image", an ImageDecoder or a fun')
            for decode in ("example", {"x": ImageDecoder(8)}, 7)
        ),
    ],
)
def test_arguments_of_tables_and_wrong_decode_are_refused(tmp_path, arguments, said):
    with pytest.raises(ValueError, match=said):
        open_images(folder(tmp_path), **arguments)


def test_names_take_little_memory():
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
    with pytest.raises(IndexError):
        files[5]
    with pytest.raises(ValueError, match="must not have a 0"):
        Files(runs_of(["a/b\0c.jpg"]))
