"""The manifest: what it says, and that it can be read again."""

from __future__ import annotations

import hashlib
import json
import os

import pytest

from adapters import __version__, pack
from adapters.packing import Manifest, verify
from adapters.packing.manifest import Skipped
from tests.packing.materials import files_in, folder


def test_it_counts_what_was_read_packed_and_skipped(tmp_path):
    source = folder(tmp_path / "in", 5)
    (source / "bee/none.jpg").write_bytes(b"no image")
    pack(source, tmp_path / "x", format="recordio", on_error="skip", shard_bytes=2000)
    content = json.loads((tmp_path / "x.json").read_text())
    assert (content["read"], content["packed"], len(content["skipped"])) == (6, 5, 1)
    assert sum(each["records"] for each in content["files"]) == 5


def test_it_has_the_size_and_the_checksum_of_every_file(tmp_path):
    pack(folder(tmp_path / "in", 5), tmp_path / "x", format="recordio", shard_bytes=2000)
    content = json.loads((tmp_path / "x.json").read_text())
    files = {name: data for name, data in files_in(tmp_path).items() if name.endswith(".rec")}
    assert {each["name"]: (each["bytes"], each["sha256"]) for each in content["files"]} == {
        name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()
    }


def test_it_says_which_input_was_skipped_and_why(tmp_path):
    source = folder(tmp_path / "in", 2)
    (source / "bee/none.jpg").write_bytes(b"no image")
    manifest = pack(source, tmp_path / "x", format="recordio", on_error="skip")
    (skipped,) = manifest.skipped
    assert skipped.name == str(source / "bee/none.jpg")
    assert "8 bytes that begin with 6e 6f" in skipped.reason


def test_it_says_how_images_were_made(tmp_path):
    manifest = pack(folder(tmp_path / "in", 2), tmp_path / "x", format="recordio", resize=16)
    assert manifest.settings == {
        "encoding": "jpeg",
        "resize": 16,
        "quality": None,
        "shard_bytes": 128 << 20,
    }


def test_what_pack_returns_is_what_is_written(tmp_path):
    manifest = pack(folder(tmp_path / "in", 5), tmp_path / "x", format="tfrecord")
    assert Manifest.load(tmp_path / "x.json") == manifest


def test_it_names_no_machine_and_no_time(tmp_path):
    """The same input gives the same bytes, also tomorrow and elsewhere."""
    pack(folder(tmp_path / "in", 2), tmp_path / "x", format="recordio")
    text = (tmp_path / "x.json").read_text()
    assert [
        word for word in (str(tmp_path), os.uname().nodename, __version__) if word in text
    ] == []


@pytest.mark.parametrize("name", ["größe 漢字", os.fsdecode(b"odd \xff\xfe"), 'quote" \\ \n', "😀"])
def test_any_name_is_read_again(tmp_path, name):
    manifest = Manifest("recordio", {}, [name], 1, 0, [Skipped(name, name)], [])
    manifest.write(tmp_path / "x.json")
    assert Manifest.load(tmp_path / "x.json") == manifest


def test_names_that_are_text_can_be_read_by_people(tmp_path):
    Manifest("recordio", {}, ["größe"]).write(tmp_path / "x.json")
    assert "größe" in (tmp_path / "x.json").read_text("utf-8")


def test_it_is_json_even_with_a_name_that_is_not_utf_8(tmp_path):
    Manifest("recordio", {}, [os.fsdecode(b"odd \xff")]).write(tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text("utf-8"))["classes"] == ["odd \udcff"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"5",
        b"null",
        b"\xff\xfe\xfd",
        b'{"skipped": [], "files": []}',
        b'{"skipped": [1], "files": []}',
        b'{"skipped": [], "files": [{"name": "x"}]}',
        b'{"format": "x", "settings": {}, "classes": null, "skipped": [], "files": [], "y": 1}',
    ],
)
def test_what_is_no_manifest_is_told_so(tmp_path, content):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.json is not a manifest"):
        Manifest.load(tmp_path / "x.json")


@pytest.mark.parametrize(
    "content", ["[]", "5", "null", '{"a": 1}', '{"skipped": [1], "files": []}']
)
def test_json_that_is_no_manifest_is_told_what_one_is(tmp_path, content):
    (tmp_path / "x.json").write_text(content)
    (problem,) = verify(tmp_path / "x.json")[1]
    expected = "is not a manifest: it must be the JSON file that pack writes beside its files"
    assert problem == f"{tmp_path}/x.json {expected}"
