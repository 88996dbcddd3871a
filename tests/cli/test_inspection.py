"""``adapters inspect``: of files, folders and objects, as lines, sheets and statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from adapters import Feature, ImageDecoder, RecordWriter, open_records, pack
from adapters.cli import main
from adapters.records import example, irheader
from tests.images.pictures import encoded, npy
from tests.packing.materials import folder, image, jpeg
from tests.sources.example_files import listed, message


def written(path: Path, *payloads: bytes) -> Path:
    format = "tfrecord" if path.suffix == ".tfrecord" else "recordio"
    with RecordWriter(path, format=format) as writer:
        for payload in payloads:
            writer.write(payload)
    return path


def lines(capsys: Any, *words: Any) -> list[str]:
    assert main(["inspect", *map(str, words)]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (irheader.pack(3, 0, jpeg(0)), "label 3.0, JPEG of 20 x 30"),
        (irheader.pack([1, 0.5], 0, jpeg(0)), "label [1.0, 0.5], JPEG of 20 x 30"),
        (irheader.pack(0, 0, encoded(image(0), "PNG")), "label 0.0, PNG of 20 x 30"),
        (irheader.pack(0, 0, encoded(image(0), "BMP")), "label 0.0, BMP of 20 x 30"),
        (irheader.pack(0, 0, encoded(image(0), "WEBP")), "label 0.0, WebP of 20 x 30"),
        (irheader.pack(0, 0, npy(image(0))), "label 0.0, raw (NPY), uint8 (20, 30, 3)"),
        (irheader.pack(0, 0, npy(np.zeros(4, "f4"))), "label 0.0, raw (NPY), float32 (4,)"),
        (irheader.pack(0, 0, jpeg(0)[:9]), "label 0.0, JPEG, damaged: expected a JPEG image"),
        (irheader.pack([1, 2], 0, npy(image(0))[:-1]), "label [1.0, 2.0], raw (NPY), damaged: "),
        (b"", "0 bytes, b''"),
        (b"text", "4 bytes, b'text'"),
        (bytes(17), f"17 bytes, {bytes(16)!r}, ..."),
    ],
)
def test_recordio_is_described(tmp_path, capsys, payload, expected):
    path = written(tmp_path / "x.rec", payload)
    head, line = lines(capsys, path)
    assert head == f"{path}: recordio, 1 record, {path.stat().st_size:,} bytes"
    assert line.startswith(f"  0: {len(payload):,} bytes, ")
    assert expected in line


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (
            example.encode({"image/encoded": jpeg(0), "image/class/label": 7}),
            "label 7, JPEG of 20 x 30",
        ),
        (
            example.encode({"image/encoded": jpeg(0), "image/class/label": [1, 2]}),
            "label [1, 2], JPEG of 20 x 30",
        ),
        (
            example.encode({"b": b"word", "a": [1, 2], "c": 0.5}),
            "a: int64 [1, 2], b: b'word', c: float32 [0.5]",
        ),
        (example.encode({"a": range(9)}), "a: int64 [0, 1, 2, 3] and 5 more"),
        (example.encode({"a": bytes(99)}), "a: 1 x bytes of length [99]"),
        (example.encode({"a": ["x", "yz"]}), "a: 2 x bytes of length [1, 2]"),
        (b"text", "b'text'"),
    ],
)
def test_tfrecord_is_described(tmp_path, capsys, payload, expected):
    path = written(tmp_path / "x.tfrecord", payload)
    head, line, *_ = lines(capsys, path)
    assert head == f"{path}: tfrecord, 1 record, {path.stat().st_size:,} bytes"
    assert line == f"  0: {len(payload):,} bytes, {expected}"


def test_damaged_feature_is_said_so(tmp_path, capsys):
    """A list of floats of 3 bytes: an Example in all but its values."""
    damaged = bytes.fromhex("0a0e 0a0c 0a0161 1207 1205 0a03000000")
    path = written(tmp_path / "x.tfrecord", damaged, example.encode({"a": 1}))
    _, first, second, *_ = lines(capsys, path)
    assert first == "  0: damaged: expected floats of 4 bytes each, found 3 bytes"
    assert second.endswith("a: int64 [1]")


def test_damaged_record_is_said_so(tmp_path, capsys):
    path = written(tmp_path / "x.tfrecord", b"first", b"second")
    content = bytearray(path.read_bytes())
    content[12] ^= 1
    path.write_bytes(content)
    _, first, second = lines(capsys, path)
    assert first.startswith(f"  0: damaged: {path}, record 0, byte 0: expected ")
    assert second == "  1: 6 bytes, b'second'"


def test_features_can_be_pasted(tmp_path, capsys):
    """And fit the file they were taken from."""

    def payload(number: int) -> bytes:
        features = {
            "raw": bytes([number, 255, 0, 9]),
            "photo": jpeg(number),
            "name": "x" * number,
            "pair": [0.5, number],
            "some": range(number),
            "blob": b"\xff" * (number + 1),
            "label": number,
        }
        return example.encode(features if number else {**features, "rare": b"yes"})

    path = written(tmp_path / "x.tfrecord", *map(payload, range(3)))
    said = lines(capsys, path)[4:]
    assert said == [
        "decode = {",
        '    "blob": Feature(bytes),',
        '    "label": Feature("int64"),',
        '    "name": Feature(str),',
        '    "pair": Feature("float32", (2,)),',
        '    "photo": ImageDecoder(),',
        '    "rare": Feature(str, default=""),',
        '    "raw": Feature("uint8", (4,), stored="raw"),',
        '    "some": Feature("int64", (None,), default=0),',
        "}",
    ]
    names: dict[str, Any] = {"Feature": Feature, "ImageDecoder": ImageDecoder}
    exec("\n".join(said), names)
    samples = list(open_records(path, decode=names["decode"]))
    assert [sample["some"].tolist() for sample in samples] == [[], [0], [0, 1]]
    assert [sample["rare"] for sample in samples] == ["yes", "", ""]


@pytest.mark.parametrize(("words", "shown"), [([], 5), (["--count", 2], 2), (["--count", 99], 7)])
def test_count_of_records(tmp_path, capsys, words, shown):
    for name in "ab":
        written(tmp_path / f"{name}.rec", *[b"x"] * 7)
    assert len(lines(capsys, tmp_path / "*.rec", *words)) == 2 * (1 + shown)
    (tmp_path / "x.rec").write_bytes(b"")
    assert lines(capsys, tmp_path / "x.rec") == [f"{tmp_path}/x.rec: empty, 0 records, 0 bytes"]


def test_sheet_has_the_order(tmp_path, capsys):
    colours = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
    samples = [(np.full((40, 60, 3), colour, np.uint8), 0) for colour in colours]
    pack(samples, tmp_path / "x.tfrecord", format="tfrecord", encoding="raw")
    lines(capsys, tmp_path / "x.tfrecord", "--count", 3, "--sheet", tmp_path / "x.png")
    drawn = cv2.imread(str(tmp_path / "x.png"))[:, :, ::-1]  # As RGB
    assert [tuple(drawn[at].tolist()) for at in ((0, 0), (127, 259), (0, 264))] == colours
    assert (drawn[:, 128:132] == 255).all()


def test_sheet_is_none_without_images(tmp_path, told):
    path = written(tmp_path / "x.rec", b"text")
    said = told("inspect", path, "--sheet", tmp_path / "x.png", status=1)
    assert "expected records that are images, found none" in said
    assert not (tmp_path / "x.png").exists()


def test_folder_is_described(tmp_path, capsys):
    root = folder(tmp_path / "photos", 5)
    (root / "ant/000.jpg").write_bytes(b"")
    (root / "ant/002.jpg").write_bytes(jpeg(0)[:9])
    ant, bee = root / "ant", root / "bee"
    found = lines(capsys, root, "--count", 4)
    assert [line.partition(", found a damaged")[0] for line in found] == [
        f"{root}: 5 images, classes: 2",
        "  label 0, 'ant': 3 images",
        "  label 1, 'bee': 2 images",
        f"  0: {ant}/000.jpg, byte 0: expected an image, found an empty file",
        f"  1: {ant}/002.jpg, 9 bytes, label 0, JPEG, damaged: expected a JPEG image",
        f"  2: {ant}/004.jpg, {len(jpeg(4)):,} bytes, label 0, JPEG of 20 x 30",
        f"  3: {bee}/001.jpg, {len(jpeg(1)):,} bytes, label 1, JPEG of 20 x 30",
    ]
    assert lines(capsys, root, "--count", 1)[2] == "  and 1 more"


def test_table_is_described(tmp_path, capsys):
    folder(tmp_path / "photos", 2)
    table = tmp_path / "train.lst"
    table.write_text("0\t1\t2.5\tphotos/ant/000.jpg\n")
    assert lines(capsys, table) == [
        f"{table}: 1 image",
        f"  0: {tmp_path}/photos/ant/000.jpg, {len(jpeg(0)):,} bytes, label [1.0, 2.5], JPEG of "
        "20 x 30",
    ]


@pytest.mark.parametrize("context", [b"", message(1, b"")])
def test_feature_lists_without_a_context(context, tmp_path, capsys):
    steps = message(2, b"".join(message(1, listed([number])) for number in range(1, 4)))
    payload = context + message(2, message(1, message(1, b"t") + steps))
    path = written(tmp_path / "x.tfrecord", payload, payload)
    assert lines(capsys, path)[1:] == [
        f"  0: {len(payload)} bytes, t: 3 steps",
        f"  1: {len(payload)} bytes, t: 3 steps",
        "decode = {",
        '    "t": Feature("int64", (None,), default=0),',
        "}",
    ]


FILE = """
import argparse
from sys import exit
import numpy as np
from adapters import SafeSequence

argparse.ArgumentParser().parse_args()
images = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), np.uint8)
train = SafeSequence((images, np.arange(20)), 4, workers=0)
empty = []
table = ({"price": np.arange(3.0)}, np.array([1, 0, 1]))

def broken():
    raise KeyError("mine")

def needy(folder, size=2):
    return []
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.py"
    path.write_text(FILE)
    return path


def test_object_that_is_a_sequence(tmp_path, data, told):
    sheet = tmp_path / "sheet.png"
    lines = told("inspect", f"{data}:train", "--sheet", sheet).splitlines()
    assert lines[0].split() == ["batch", "sample", "[0]", "[1]"]
    assert lines[-2].split()[:2] == ["1", "3"]
    assert lines[-1] == f"{sheet}: their images"
    assert sheet.read_bytes().startswith(b"\x89PNG")


def test_object_that_is_a_source(data, say):
    status, out, errors = say("inspect", f"{data}:table", "--statistics")
    assert (status, errors) == (0, "")  # Without a terminal, there is no progress bar.
    assert out.startswith("3 samples\n[0].price: number")
    assert "[1]: labels, 2 distinct" in out


@pytest.mark.parametrize(
    ("words", "rows"),
    [("train", 8), ("train --batches 1", 4), ("table", 3), ("table --count 2", 2)],
)
def test_object_has_as_many_rows_as_asked(data, told, words, rows):
    name, *options = words.split()
    assert len(told("inspect", f"{data}:{name}", *options).splitlines()) == 1 + rows


def test_path_may_have_a_colon(tmp_path, told):
    folder(tmp_path / "photos", 2)
    pack(tmp_path / "photos", tmp_path / "of:day.rec", format="recordio")
    assert "of:day.rec: recordio, 2 records" in told("inspect", tmp_path / "of:*.rec")


def test_object_that_cannot_be_shown(data, told):
    expected = "must define nothing when it is imported, and doesn't"
    assert expected in told("inspect", f"{data}:nothing", status=1)
    expected = "missing 1 required positional argument: 'folder'"
    assert expected in told("inspect", f"{data}:needy", status=1)
    assert "KeyError: 'mine'" in told("inspect", f"{data}:broken", status=1)
    assert ":exit ended with that exception" in told("inspect", f"{data}:exit", status=1)
    assert "missing 1 required positional" in told("inspect", f"{data}:SafeSequence", status=1)
    said = told("inspect", f"{data}:empty", status=1)
    assert "Traceback" not in said
    assert "at least one sample" in said
    said = told("inspect", f"{data}:table", "--sheet", "x.png", status=1)
    assert "hold no images" in said


@pytest.mark.parametrize("command", [["inspect"], ["doctor", "--tune"]])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (":train", "FILE.py:NAME or MODULE:NAME must name a file or a module, got ''"),
        ("data.py", "data.py:NAME must be given"),
        ("none.py:train", "FILE.py:NAME must name a file before its colon, got 'none.py'"),
        ("no_such_module:train", "No module named 'no_such_module'"),
        ("nowhere.rec", "nowhere.rec"),
        ("nobody-knows://a/x.rec", "nothing that is installed reads nobody-knows://"),
    ],
)
def test_object_that_is_not_there(command, name, message, say):
    status, output, errors = say(*command, name)
    assert (status, output) == (1, "")
    assert errors.startswith(f"adapters {command[0]}: ")
    assert message in errors
    assert "Traceback" not in errors
