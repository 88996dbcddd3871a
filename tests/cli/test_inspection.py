"""``adapters inspect`` of a loader, a source or a path: tables, sheets, statistics."""

from __future__ import annotations

import sys

import pytest

from adapters import pack
from adapters.cli import main
from tests.packing.materials import folder

FILE = """
import numpy as np
from adapters import SafeSequence

images = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), np.uint8)
train = SafeSequence((images, np.arange(20)), 4, workers=0)
empty = []
table = ({"price": np.arange(3.0)}, np.array([1, 0, 1]))

def broken():
    raise KeyError("mine")
"""


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command adds to the module search path goes with the test."""
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_a_sequence_of_a_file(tmp_path, capsys):
    (tmp_path / "data.py").write_text(FILE)
    sheet = tmp_path / "sheet.png"
    assert main(["inspect", f"{tmp_path}/data.py:train", "--sheet", str(sheet)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["batch", "sample", "[0]", "[1]"]
    assert lines[-2].split()[:2] == ["1", "3"]
    assert lines[-1] == f"{sheet}: their images"
    assert sheet.read_bytes().startswith(b"\x89PNG")


def test_a_source_and_its_statistics(tmp_path, capsys):
    (tmp_path / "data.py").write_text(FILE)
    assert main(["inspect", f"{tmp_path}/data.py:table", "--statistics"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("3 samples\n[0].price: number")
    assert "[1]: labels, 2 different ones" in out


@pytest.mark.parametrize(("words", "rows"), [([], 8), (["--batches", "1"], 4)])
def test_batches_are_shown_as_many_as_asked_for(tmp_path, capsys, words, rows):
    (tmp_path / "data.py").write_text(FILE)
    assert main(["inspect", f"{tmp_path}/data.py:train", *words]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + rows


@pytest.mark.parametrize(("words", "rows"), [([], 3), (["--count", "2"], 2)])
def test_samples_of_a_source_are_shown_as_many_as_asked_for(tmp_path, capsys, words, rows):
    (tmp_path / "data.py").write_text(FILE)
    assert main(["inspect", f"{tmp_path}/data.py:table", *words]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + rows


def test_statistics_of_paths(tmp_path, capsys):
    folder(tmp_path / "photos", 4)
    for name in "ab":
        pack(tmp_path / "photos", tmp_path / f"{name}.rec", format="recordio")
    paths = [str(tmp_path / name) for name in ("photos", "a.rec", "b.rec")]
    assert main(["inspect", *paths, "--statistics"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith(" samples")] == ["4 samples", "8 samples"]


def test_an_object_is_the_only_target(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["inspect", "data.py:train", str(tmp_path)])
    assert "data.py:train must be the only target, got 2" in capsys.readouterr().err


def test_a_path_may_have_a_colon(tmp_path, capsys):
    folder(tmp_path / "photos", 2)
    pack(tmp_path / "photos", tmp_path / "of:day.rec", format="recordio")
    assert main(["inspect", str(tmp_path / "of:*.rec")]) == 0
    assert "of:day.rec: recordio, 2 records" in capsys.readouterr().out


def test_what_cannot_be_shown(tmp_path, capsys):
    (tmp_path / "data.py").write_text(FILE)
    for name, message in {
        "nothing": "must define nothing when it is imported, and doesn't",
        "broken": "KeyError: 'mine'",
    }.items():
        assert main(["inspect", f"{tmp_path}/data.py:{name}"]) == 1
        assert message in capsys.readouterr().err
    assert main(["inspect", f"{tmp_path}/data.py:empty"]) == 1
    assert "Traceback" not in (said := capsys.readouterr().err)
    assert "at least one sample" in said
    assert main(["inspect", f"{tmp_path}/data.py:table", "--sheet", "x.png"]) == 1
    assert "hold no images" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["inspect"], ["doctor", "--tune"]])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (":train", "FILE.py:NAME or MODULE:NAME must name a file or a module, got ''"),
        ("none.py:train", "FILE.py:NAME must name a file before its colon, got 'none.py'"),
        ("nobody-knows://a/x.rec", "nothing that is installed reads nobody-knows://"),
    ],
)
def test_what_is_named_is_not_there(command, name, message, capsys):
    assert main([*command, name]) == 1
    assert message in (said := capsys.readouterr().err)
    assert "Traceback" not in said


@pytest.mark.parametrize("command", [["inspect"], ["doctor", "--tune"]])
def test_a_function_that_needs_arguments_is_refused_in_a_line(tmp_path, command, capsys):
    (tmp_path / "data.py").write_text("def train(folder, size=2):\n    return []\n")
    name = f"{tmp_path}/data.py:train"
    assert main([*command, name]) == 1
    expected = f"{name} must be called without arguments, got train(folder, size=2): "
    assert capsys.readouterr().err.startswith(f"adapters {command[0]}: {expected}")
