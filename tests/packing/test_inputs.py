"""What can be packed: every input becomes one record, or is named as skipped, or refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import ImageDecoder, RecordError, open_images, open_records, pack
from adapters.packing import Manifest
from tests.packing.materials import FORMATS, accounted, folder, image, jpeg, packed
from tests.sources.record_files import damage

# What is no image.
NO_IMAGES = [b"", b"This is no image at all.", jpeg(0)[:-200], jpeg(0)[:4]]
formats = pytest.mark.parametrize("format", FORMATS)


def packed_of(source: Any, out: Path, format: str = "recordio", **options: Any) -> Manifest:
    return pack(source, out, format=format, **options)


def records_of(source: Any, out: Path, **options: Any) -> list[tuple[Any, int, bytes]]:
    return packed(out, packed_of(source, out, **options))


def skipped_of(source: Any, out: Path, **options: Any) -> list[str]:
    manifest = packed_of(source, out, on_error="skip", **options)
    assert accounted(manifest)
    return [each.name for each in manifest.skipped]


# --- a folder per class ---


def test_folder_numbers_classes_by_name(tmp_path):
    """Also one without images, and one of any name."""
    odd = os.fsdecode(b"b\xe9")
    source = folder(tmp_path / "in", 6, [odd, "ant", "Cat"])
    (source / "a class").mkdir()
    found = records_of(source, tmp_path / "out")
    assert Manifest.load(tmp_path / "out.json").classes == ["Cat", "a class", "ant", odd]
    assert [(label, identity) for label, identity, _ in found] == [
        *((0, 0), (0, 1), (2, 2), (2, 3), (3, 4), (3, 5))
    ]


@pytest.mark.parametrize("name", ["ant/broken.jpg", "ant/pipe.jpg"])
def test_folder_names_broken_links_and_pipes(tmp_path, name):
    """And doesn't wait for a pipe."""
    source = folder(tmp_path / "in", 2)
    if "pipe" in name:
        os.mkfifo(source / name)
    else:
        (source / name).symlink_to(tmp_path / "nothing")
    assert skipped_of(source, tmp_path / "out") == [str(source / name)]


# --- what is no image ---


@formats
def test_every_input_is_packed_or_skipped(tmp_path, format):
    source, out = folder(tmp_path / "in", 6), tmp_path / "out"
    for number, content in enumerate(NO_IMAGES):
        (source / f"ant/no image {number}.jpg").write_bytes(content)
    with pytest.raises(RecordError, match=r"in/a.*\.jpg.*(0 bytes|54 68 69 73|damaged)"):
        packed_of(source, out, format)
    manifest = packed_of(source, out, format, on_error="skip", shard_bytes=2000)
    skipped = {each.name for each in manifest.skipped}
    files = {str(path): path.read_bytes() for path in source.rglob("*") if path.is_file()}
    found = packed(out, manifest)
    kept = sorted(files.keys() - skipped)
    assert sorted(image for _, _, image in found) == sorted(files[name] for name in kept)
    assert (accounted(manifest), manifest.read, len(skipped)) == (True, len(files), 4)
    # Ids leave out what was skipped.
    assert {identity for _, identity, _ in found} < set(range(len(files)))
    (source / "beside.jpg").write_bytes(b"")
    (source / "ant/notes.txt").write_bytes(b"No image is expected here.")
    for path in source.glob("*/*.jpg"):
        path.write_bytes(b"no image")
    assert len(skipped_of(source, tmp_path / "none")) == len(files)


# --- lists and tables ---


def listed(root: Path, text: str) -> Path:
    (root / "sub").mkdir(parents=True)
    (root / "a.jpg").write_bytes(jpeg(1))
    (root / "sub/b.jpg").write_bytes(jpeg(2))
    path = root / "images.lst"
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("7\t3\ta.jpg\n5\t4\tsub/b.jpg", [(3.0, 7), (4.0, 5)]),
        ("0\t3.000000\ta.jpg\r\n\r\n1\t4\tsub/b.jpg\r\n", [(3.0, 0), (4.0, 1)]),
        ("0\t-1\ta.jpg\n1\t0.5\tsub/b.jpg\n", [(-1.0, 0), (0.5, 1)]),
        ("0\t1\t2\t0.25\ta.jpg\n", [([1.0, 2.0, 0.25], 0)]),
        ("0\t1\ta.jpg\n0\t2\ta.jpg\n", [(1.0, 0), (2.0, 0)]),
        (f"{2**63 - 1}\t1\ta.jpg\n", [(1.0, 2**63 - 1)]),
    ],
)
def test_list_says_label_and_id(tmp_path, lines, expected):
    source = listed(tmp_path, lines)
    for format in FORMATS:
        found = records_of(source, tmp_path / "out", format=format)
        assert [(label, identity) for label, identity, _ in found] == expected


def test_list_with_a_missing_file(tmp_path):
    source = listed(tmp_path, "0\t1\tmissing.jpg\n1\t2\ta.jpg\n2\t3\tsub\n")
    with pytest.raises(FileNotFoundError, match=r"missing\.jpg"):
        packed_of(source, tmp_path / "out")
    names = [str(tmp_path / "missing.jpg"), str(tmp_path / "sub")]
    assert skipped_of(source, tmp_path / "out") == names


def test_table_is_packed_with_its_labels(tmp_path):
    folder(tmp_path / "in", 2)
    (tmp_path / "x.csv").write_text("filename,class\nin/bee/001.jpg,wasp\nin/ant/000.jpg,ant\n")
    for root in (tmp_path, f"file://{tmp_path}"):
        assert records_of(f"{root}/in", tmp_path / "out") == [(0, 0, jpeg(0)), (1, 1, jpeg(1))]
        records = records_of(f"{root}/x.csv", tmp_path / "out")
        assert records == [(1, 0, jpeg(1)), (0, 1, jpeg(0))]
    assert Manifest.load(tmp_path / "out.json").classes == ["ant", "wasp"]


# --- arrays and sources ---


@pytest.mark.parametrize("labels", [[4, 5, 6], range(4, 7), np.array([[4], [5], [6]], np.uint8)])
def test_arrays_are_packed(tmp_path, labels):
    images = np.stack([image(number) for number in range(3)])
    found = records_of((images, labels), tmp_path / "out")
    assert [label for label, _, _ in found] == [4, 5, 6]


def test_samples_of_a_list_are_packed(tmp_path):
    """Of sizes that differ, encoded or not."""
    source = [(image(1), 1), (jpeg(2), 2), (bytearray(jpeg(3)), 3), (image(4, 7, 9), np.int8(4))]
    found = records_of(source, tmp_path / "out")
    assert [label for label, _, _ in found] == [1, 2, 3, 4]


def test_records_are_packed_again(tmp_path):
    first = packed_of(folder(tmp_path / "in", 4), tmp_path / "first.rec", encoding="raw")
    records = open_records(tmp_path / "first.rec", decode="image")
    second = packed_of(records, tmp_path / "second.rec", encoding="raw")
    assert [each.sha256 for each in second.files] == [each.sha256 for each in first.files]


def test_records_that_are_damaged_are_skipped_by_number(tmp_path):
    path = tmp_path / "first.tfrecord"
    packed_of(folder(tmp_path / "in", 4), path, "tfrecord")
    damage(path, -9, 1)
    records = open_records(path, decode="image")
    assert skipped_of(records, tmp_path / "second", format="tfrecord") == ["sample 3"]


@formats
def test_open_images_keep_their_files(tmp_path, format):
    root, out = folder(tmp_path / "in", 4), tmp_path / "out"
    manifest = packed_of(open_images(root, classes=["bee"]), out, format)
    assert packed(out, manifest) == [(0, 0, jpeg(1)), (0, 1, jpeg(3))]
    assert manifest.classes == ["bee"]
    part = open_images(root).select([3, 0, 3])
    manifest = packed_of(part, out, format)
    files = [(part[at][1], at, part.whole.read(n)) for at, n in enumerate([3, 0, 3])]
    assert (packed(out, manifest), manifest.classes) == (files, ["ant", "bee"])
    one, other = (packed_of(each, out, format).files for each in (root, open_images(root)))
    assert [each.sha256 for each in one] == [each.sha256 for each in other]


def test_open_images_with_a_decoder_are_what_it_makes(tmp_path):
    source = open_images(folder(tmp_path / "in", 2), decode=ImageDecoder(8))
    packed_of(source, tmp_path / "out.rec", encoding="raw")
    records = open_records(tmp_path / "out.rec", decode="image")
    for (stored, label), (expected, own) in zip(records, source, strict=True):
        np.testing.assert_array_equal(stored, expected)
        assert label == own


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
def test_source_that_is_none_is_told_so(tmp_path, source, error, message):
    with pytest.raises(error, match=message):
        packed_of(source, tmp_path / "out")
