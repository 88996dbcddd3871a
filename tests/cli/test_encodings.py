"""Every encoding behind every command, and ``adapters pack --compare``."""

from __future__ import annotations

import time

import pytest

from adapters import RecordWriter, open_records
from adapters.packing.encoding import ImageEncoder
from adapters.records import irheader
from tests.packing.materials import FORMATS, SUFFIXES, jpeg


@pytest.mark.parametrize("format", FORMATS)
def test_every_command_knows_raw_images(tmp_path, source, say, format):
    path, other = tmp_path / f"x{SUFFIXES[format]}", tmp_path / "y"
    words = ["--encoding", "raw", "--resize", 16]
    assert " bytes a record in raw " in say("pack", source, path, *words)[1]
    assert say("verify", tmp_path / "x.json")[:2] == (
        0,
        "6 records are right, 0 things are wrong\n",
    )
    shown = "raw (NPY), uint8 (16, 24, 3)"
    assert say("inspect", path, "--sheet", tmp_path / "x.png")[1].count(shown) == 5
    target = next(each for each in FORMATS if each != format)
    assert say("convert", path, other, "--format", target)[0] == 0
    assert shown in say("inspect", other)[1]
    found = zip(open_records(path, decode="image"), open_records(other, decode="image"))
    assert all((image == same).all() and label == other for (image, label), (same, other) in found)


def test_a_truncated_picture_is_found(tmp_path, say):
    """Its record's CRC is right: it was cut before it was written."""
    content = ImageEncoder("", "raw", None, None).image(jpeg(1))
    with RecordWriter(tmp_path / "x.rec", format="recordio") as writer:
        writer.write(irheader.pack(1, 0, content))
        writer.write(irheader.pack(1, 1, content[:-1]))
    status, output, _ = say("verify", tmp_path / "x.rec")
    assert status == 1
    assert "record 1, byte" in output
    assert "1 records are right, 1 things are wrong" in output


def test_compare_packs_nothing_and_says_what_each_encoding_costs(tmp_path, source, say):
    begun = time.perf_counter()
    status, output, errors = say("pack", source, "--compare", "--resize", 16, "--quality", 80)
    assert time.perf_counter() - begun < 10
    head, names, *rows = output.splitlines()
    assert (status, errors) == (0, "")
    assert head.startswith("6 pictures, of which 6 were encoded; ")
    assert names.split() == [
        "--encoding",
        "bytes",
        "a",
        "picture",
        "all",
        "of",
        "them",
        "samples/s",
    ]
    costs = {
        name: (int(size.replace(",", "")), float(pace.replace(",", "")))
        for name, size, _, _, pace in map(str.split, rows)
    }
    assert list(costs) == ["jpeg", "raw"]
    assert costs["raw"][0] == 16 * 24 * 3 + 128
    assert all(pace > 0 for _, pace in costs.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_compare_leaves_out_what_cannot_be_encoded(tmp_path, source, say):
    (source / "ant/x.jpg").write_bytes(b"no image")
    output = say("pack", source, "--compare")[1]
    assert output.startswith("7 pictures, of which 6 were encoded; ")
    for path in source.glob("*/0*.jpg"):
        path.write_bytes(b"none either")
    status, output, errors = say("pack", source, "--compare")
    assert (status, output) == (1, "")
    assert "expected an image" in errors


def test_compare_leaves_out_files_of_a_table_that_cannot_be_read(tmp_path, source, say):
    names = [path.relative_to(source).as_posix() for path in sorted(source.glob("*/*.jpg"))]
    (source / names[1]).write_bytes(b"")
    table = source / "labels.csv"
    table.write_text("".join(f"{name},1\n" for name in names))
    output = say("pack", table, "--compare")[1]
    assert output.startswith(f"{len(names)} pictures, of which {len(names) - 1} were encoded; ")
