"""What can be packed: every input becomes one record, or is named as skipped, or refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import ImageDecoder, RecordError, open_images, open_records, pack
from tests.packing.materials import FORMATS, accounted, folder, image, jpeg, packed

# What is no image, and how the reason begins or what it names.
NO_IMAGES = {
    "empty": (b"", "0 bytes"),
    "text": (b"This is no image at all.", "54 68 69 73"),
    "cut": (jpeg(0)[:-200], "damaged"),
    "header only": (jpeg(0)[:4], "damaged"),
}


def labels_of(source: Any, out: Path, **options: Any) -> list[Any]:
    manifest = pack(source, out, format="recordio", **options)
    return [label for label, _, _ in packed(out, manifest)]


# --- a folder per class ---


def test_classes_are_numbered_in_the_order_of_their_names(tmp_path):
    source = folder(tmp_path / "in", 3, ["bee", "ant", "Cat"])
    manifest = pack(source, tmp_path / "out", format="recordio")
    assert manifest.classes == ["Cat", "ant", "bee"]


def test_the_label_is_the_number_of_the_class(tmp_path):
    source = folder(tmp_path / "in", 5, ["ant", "bee"])
    assert labels_of(source, tmp_path / "out") == [0, 0, 0, 1, 1]


def test_ids_count_the_inputs(tmp_path):
    source = folder(tmp_path / "in", 4)
    manifest = pack(source, tmp_path / "out", format="tfrecord")
    assert [identity for _, identity, _ in packed(tmp_path / "out", manifest)] == [0, 1, 2, 3]


def test_a_class_without_images_keeps_its_number(tmp_path):
    source = folder(tmp_path / "in", 2, ["ant", "cat"])
    (source / "bee").mkdir()
    assert labels_of(source, tmp_path / "out") == [0, 2]


@pytest.mark.parametrize(
    "name",
    [
        "a b.jpg",
        " .jpg",
        "größe 漢字.jpg",
        os.fsdecode(b"odd \xff\xfe.jpg"),
        "no ending",
        "UPPER.JPG",
        "new\nline.jpg",
        "nested/deeper/x.jpg",
        "-of-.jpg",
    ],
)
def test_a_file_of_any_name_is_packed(tmp_path, name):
    source = folder(tmp_path / "in", 2)
    path = source / "bee" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(jpeg(9))
    manifest = pack(source, tmp_path / "out", format="recordio")
    assert (1, jpeg(9)) in [
        (label, image) for label, _, image in packed(tmp_path / "out", manifest)
    ]


def test_a_class_may_have_a_name_that_is_not_utf_8(tmp_path):
    odd = os.fsdecode(b"b\xe9")
    source = folder(tmp_path / "in", 2, ["ant", odd])
    pack(source, tmp_path / "out", format="recordio")
    assert type(pack(source, tmp_path / "out", format="recordio")).load(
        tmp_path / "out.json"
    ).classes == ["ant", odd]


@pytest.mark.parametrize("name", ["ant/.hidden.jpg", ".cache/x.jpg", "ant/.cache/x.jpg", ".x.jpg"])
def test_names_that_begin_with_a_dot_are_no_input(tmp_path, name):
    source = folder(tmp_path / "in", 2)
    (source / name).parent.mkdir(exist_ok=True)
    (source / name).write_bytes(b"anything")
    assert pack(source, tmp_path / "out", format="recordio").read == 2


def test_links_to_files_are_followed(tmp_path):
    source = folder(tmp_path / "in", 2)
    (source / "bee/link.jpg").symlink_to(source / "ant/000.jpg")
    assert labels_of(source, tmp_path / "out") == [0, 1, 1]


@pytest.mark.parametrize("place", ["cat", "ant/more"])
def test_links_to_folders_are_followed(tmp_path, place):
    source, other = folder(tmp_path / "in", 2), folder(tmp_path / "other", 3, ["x"])
    (source / place).symlink_to(other / "x")
    assert pack(source, tmp_path / "out", format="recordio").packed == 5


def test_a_link_to_a_folder_above_ends(tmp_path):
    source = folder(tmp_path / "in", 2)
    (source / "ant/again").symlink_to(source / "ant")
    assert pack(source, tmp_path / "out", format="recordio").packed == 2


@pytest.mark.parametrize("name", ["ant/broken.jpg", "broken.jpg"])
def test_a_link_to_nothing_is_named(tmp_path, name):
    source = folder(tmp_path / "in", 2)
    (source / name).symlink_to(tmp_path / "nothing")
    manifest = pack(source, tmp_path / "out", format="recordio", on_error="skip")
    assert [each.name for each in manifest.skipped] == [str(source / name)]


def test_a_pipe_is_named_and_not_waited_for(tmp_path):
    source = folder(tmp_path / "in", 2)
    os.mkfifo(source / "ant/pipe.jpg")
    manifest = pack(source, tmp_path / "out", format="recordio", on_error="skip")
    assert [each.name for each in manifest.skipped] == [str(source / "ant/pipe.jpg")]


def test_a_file_beside_the_classes_is_refused(tmp_path):
    source = folder(tmp_path / "in", 2)
    (source / "loose.jpg").write_bytes(jpeg(0))
    with pytest.raises(
        RecordError, match=r"loose\.jpg.*expected a file in the folder of its class"
    ):
        pack(source, tmp_path / "out", format="recordio")


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path, monkeypatch):
    """As root reads everything, the system's refusal is played."""
    source = folder(tmp_path / "in", 2)
    scandir = os.scandir

    def refusing(path: Any) -> Any:
        if os.fspath(path).endswith("bee"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(PermissionError, match="bee"):
        pack(source, tmp_path / "out", format="recordio", on_error="skip")


# --- what is no image ---


@pytest.mark.parametrize("kind", NO_IMAGES)
def test_what_is_no_image_is_refused_by_name(tmp_path, kind):
    content, reason = NO_IMAGES[kind]
    source = folder(tmp_path / "in", 3)
    (source / "bee/x.jpg").write_bytes(content)
    with pytest.raises(RecordError, match=f"bee/x.jpg.*{reason}"):
        pack(source, tmp_path / "out", format="recordio")


@pytest.mark.parametrize("format", FORMATS)
def test_every_input_is_in_one_place(tmp_path, format):
    source = folder(tmp_path / "in", 6)
    for name, (content, _) in NO_IMAGES.items():
        (source / "ant" / f"{name}.jpg").write_bytes(content)
    (source / "loose.txt").write_bytes(b"loose")
    out = tmp_path / "out"
    manifest = pack(source, out, format=format, on_error="skip", shard_bytes=2000)
    skipped = {each.name for each in manifest.skipped}
    content = [image for _, _, image in packed(out, manifest)]
    files = {str(path): path.read_bytes() for path in source.rglob("*") if path.is_file()}
    assert sorted(content) == sorted(files[name] for name in files.keys() - skipped)
    assert (accounted(manifest), manifest.read, len(skipped)) == (True, len(files), 5)


def test_ids_leave_out_what_was_skipped(tmp_path):
    source = folder(tmp_path / "in", 4)
    (source / "ant/001.jpg").write_bytes(b"no image")
    manifest = pack(source, tmp_path / "out", format="recordio", on_error="skip")
    assert [identity for _, identity, _ in packed(tmp_path / "out", manifest)] == [0, 2, 3, 4]


def test_nothing_but_what_is_skipped_is_accounted_for_too(tmp_path):
    source = folder(tmp_path / "in", 2)
    for path in source.rglob("*.jpg"):
        path.write_bytes(b"no image")
    manifest = pack(source, tmp_path / "out", format="recordio", on_error="skip")
    assert (manifest.read, manifest.packed, len(manifest.skipped)) == (2, 0, 2)


# --- lists ---


def listed(root: Path, text: str | bytes) -> Path:
    """A list beside two images, ``a.jpg`` and ``sub/b.jpg``."""
    (root / "sub").mkdir()
    (root / "a.jpg").write_bytes(jpeg(1))
    (root / "sub/b.jpg").write_bytes(jpeg(2))
    path = root / "images.lst"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("0\t3\ta.jpg\n1\t4\tsub/b.jpg\n", [(3.0, 0), (4.0, 1)]),
        ("7\t3\ta.jpg\n5\t4\tsub/b.jpg", [(3.0, 7), (4.0, 5)]),
        ("0\t3.000000\ta.jpg\r\n\r\n1\t4\tsub/b.jpg\r\n", [(3.0, 0), (4.0, 1)]),
        ("0\t-1\ta.jpg\n1\t0.5\tsub/b.jpg\n", [(-1.0, 0), (0.5, 1)]),
        ("0\t1\t2\t0.25\ta.jpg\n", [([1.0, 2.0, 0.25], 0)]),
        ("0\t1\ta.jpg\n0\t2\ta.jpg\n", [(1.0, 0), (2.0, 0)]),
        (f"{2**63 - 1}\t1\ta.jpg\n", [(1.0, 2**63 - 1)]),
    ],
)
@pytest.mark.parametrize("format", FORMATS)
def test_a_list_says_label_and_id(tmp_path, format, lines, expected):
    source = listed(tmp_path, lines)
    manifest = pack(source, tmp_path / "out", format=format)
    found = [(label, identity) for label, identity, _ in packed(tmp_path / "out", manifest)]
    assert found == expected


def test_paths_of_a_list_may_begin_elsewhere(tmp_path):
    (tmp_path / "images").mkdir()
    source = listed(tmp_path / "images", "0\t1\tb.jpg\n").rename(tmp_path / "moved.lst")
    manifest = pack(source, tmp_path / "out", format="recordio", root=tmp_path / "images/sub")
    assert packed(tmp_path / "out", manifest) == [(1.0, 0, jpeg(2))]


def test_a_list_may_name_a_file_whose_name_is_not_utf_8(tmp_path):
    source = listed(tmp_path, b"0\t1\todd \xff.jpg\n")
    (tmp_path / os.fsdecode(b"odd \xff.jpg")).write_bytes(jpeg(3))
    manifest = pack(source, tmp_path / "out", format="recordio")
    assert packed(tmp_path / "out", manifest) == [(1.0, 0, jpeg(3))]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("a.jpg", "not enough values"),
        ("0\ta.jpg", "no label"),
        ("zero\t1\ta.jpg", "invalid literal"),
        ("1.5\t1\ta.jpg", "invalid literal"),
        ("0\tone\ta.jpg", "could not convert"),
        ("0 1 a.jpg", "not enough values"),
        ("-1\t1\ta.jpg", "a number below 0"),
        (f"{2**63}\t1\ta.jpg", "a number .* above"),
        ("inf\t1\ta.jpg", "invalid literal"),
    ],
)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_line_that_is_none_is_refused_with_its_number(tmp_path, line, why, on_error):
    source = listed(tmp_path, f"0\t1\ta.jpg\n\n{line}\n")
    with pytest.raises(ValueError, match=rf"images\.lst, line 3: .*\({why}"):
        pack(source, tmp_path / "out", format="recordio", on_error=on_error)


def test_a_missing_file_of_a_list_is_an_error(tmp_path):
    source = listed(tmp_path, "0\t1\ta.jpg\n1\t1\tmissing.jpg\n")
    with pytest.raises(FileNotFoundError, match=r"missing\.jpg"):
        pack(source, tmp_path / "out", format="recordio")


def test_a_missing_file_of_a_list_is_skipped_by_name(tmp_path):
    source = listed(tmp_path, "0\t1\tmissing.jpg\n1\t2\ta.jpg\n2\t3\tsub\n")
    manifest = pack(source, tmp_path / "out", format="recordio", on_error="skip")
    names = [each.name for each in manifest.skipped]
    assert names == [str(tmp_path / "missing.jpg"), str(tmp_path / "sub")]
    assert [label for label, _, _ in packed(tmp_path / "out", manifest)] == [2.0]


# --- arrays and sources ---


@pytest.mark.parametrize(
    "labels", [[4, 5, 6], range(4, 7), np.array([4, 5, 6]), np.array([[4], [5], [6]], np.uint8)]
)
def test_arrays_are_packed(tmp_path, labels):
    images = np.stack([image(number) for number in range(3)])
    assert labels_of((images, labels), tmp_path / "out") == [4, 5, 6]


def test_a_list_of_samples_is_a_source(tmp_path):
    """Of sizes that differ, encoded or not."""
    source = [(image(1), 1), (jpeg(2), 2), (bytearray(jpeg(3)), 3), (image(4, 7, 9), np.int8(4))]
    assert labels_of(source, tmp_path / "out") == [1, 2, 3, 4]


def test_a_record_source_is_packed_again(tmp_path):
    source = folder(tmp_path / "in", 4)
    first = pack(source, tmp_path / "first.rec", format="recordio", encoding="raw")
    records = open_records(tmp_path / "first.rec", decode="image")
    second = pack(records, tmp_path / "second.rec", format="recordio", encoding="raw")
    assert [each.sha256 for each in second.files] == [each.sha256 for each in first.files]


@pytest.mark.parametrize("format", FORMATS)
def test_the_files_of_images_that_are_open_are_kept_as_they_are(tmp_path, format):
    root = folder(tmp_path / "in", 4)
    source = open_images(root, classes=["bee"])
    manifest = pack(source, tmp_path / "out", format=format)
    assert packed(tmp_path / "out", manifest) == [(0, 0, jpeg(1)), (0, 1, jpeg(3))]
    assert manifest.classes == ["bee"]


def test_a_part_of_images_that_are_open_keeps_its_files_and_the_names_of_all_classes(tmp_path):
    source = open_images(folder(tmp_path / "in", 4)).select([3, 0, 3])
    manifest = pack(source, tmp_path / "out", format="recordio")
    files = [(source[at][1], at, source.whole.read(n)) for at, n in enumerate([3, 0, 3])]
    assert (packed(tmp_path / "out", manifest), manifest.classes) == (files, ["ant", "bee"])


def test_images_that_are_open_are_packed_as_the_folder_is(tmp_path):
    root = folder(tmp_path / "in", 5)
    one, other = (
        pack(source, tmp_path / name, format="tfrecord")
        for name, source in (("one", root), ("other", open_images(root)))
    )
    assert [each.sha256 for each in one.files] == [each.sha256 for each in other.files]


def test_a_file_of_images_that_is_none_is_skipped_by_name(tmp_path):
    root = folder(tmp_path / "in", 4)
    source = open_images(root)
    (root / "ant/000.jpg").write_bytes(b"")
    (root / "bee/001.jpg").unlink()
    manifest = pack(source, tmp_path / "out", format="tfrecord", on_error="skip")
    assert [each.name for each in manifest.skipped] == [
        str(root / "ant/000.jpg"),
        str(root / "bee/001.jpg"),
    ]
    assert manifest.packed == 2


def test_images_that_a_decoder_makes_are_packed_as_it_makes_them(tmp_path):
    source = open_images(folder(tmp_path / "in", 2), decode=ImageDecoder(8))
    pack(source, tmp_path / "out.rec", format="recordio", encoding="raw")
    records = open_records(tmp_path / "out.rec", decode="image")
    for (stored, label), (expected, own) in zip(records, source):
        np.testing.assert_array_equal(stored, expected)
        assert label == own


def test_a_table_is_packed_with_its_labels(tmp_path):
    folder(tmp_path / "in", 2)
    (tmp_path / "x.csv").write_text("filename,class\nin/bee/001.jpg,wasp\nin/ant/000.jpg,ant\n")
    manifest = pack(tmp_path / "x.csv", tmp_path / "out", format="recordio")
    assert packed(tmp_path / "out", manifest) == [(1.0, 0, jpeg(1)), (0.0, 1, jpeg(0))]
    assert manifest.classes == ["ant", "wasp"]


def test_a_damaged_record_of_a_source_is_skipped_by_number(tmp_path):
    pack(folder(tmp_path / "in", 4), tmp_path / "first.tfrecord", format="tfrecord")
    content = bytearray((tmp_path / "first.tfrecord").read_bytes())
    content[-9] ^= 1
    (tmp_path / "first.tfrecord").write_bytes(content)
    records = open_records(tmp_path / "first.tfrecord", decode="image")
    manifest = pack(records, tmp_path / "second", format="tfrecord", on_error="skip")
    assert ([each.name for each in manifest.skipped], manifest.packed) == (["sample 3"], 3)


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("nowhere", FileNotFoundError, "no folder and no list at 'nowhere'"),
        ("nowhere.lst", FileNotFoundError, "nowhere.lst"),
        (__file__, ValueError, "see `adapters convert`"),
        ([], ValueError, "at least one sample"),
        (iter([1]), TypeError, "random access"),
        ([np.zeros((4, 4), np.uint8)], TypeError, r"must give \(image, label\), got ndarray"),
        ([(1, 2, 3)], TypeError, r"must give \(image, label\), got tuple"),
        ((np.zeros((3, 4, 4)), [1, 2]), ValueError, "equal lengths"),
    ],
)
def test_what_cannot_be_packed_is_told_so(tmp_path, source, error, message):
    with pytest.raises(error, match=message):
        pack(source, tmp_path / "out", format="recordio")


@pytest.mark.parametrize(
    ("make", "message"), [([], "a folder per class"), (["ant"], "at least one")]
)
def test_a_folder_without_images_is_told_so(tmp_path, make, message):
    (tmp_path / "in").mkdir()
    for name in make:
        (tmp_path / "in" / name).mkdir()
    with pytest.raises(ValueError, match=message):
        pack(tmp_path / "in", tmp_path / "out", format="recordio")


def test_an_empty_list_is_told_so(tmp_path):
    with pytest.raises(ValueError, match="at least one image"):
        pack(listed(tmp_path, "\n"), tmp_path / "out", format="recordio")
