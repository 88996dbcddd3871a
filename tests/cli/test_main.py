"""Every command as it is typed: what it prints, its status, its bar of progress."""

from __future__ import annotations

import gzip
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adapters import __version__, open_records
from adapters.cli import main
from adapters.packing import Manifest
from adapters.progress import bar
from tests.cli.scripts import command, ended
from tests.packing.materials import FORMATS, SUFFIXES

COMMANDS = ["pack", "verify", "convert", "inspect", "doctor", "replay", "plan", "cache"]
OF_FILES = COMMANDS[:4]
REPLAY = ["replay", "a.py", "--batch", "0"]


@pytest.mark.parametrize("format", FORMATS)
def test_pack_prints_the_sums(tmp_path, source, say, format):
    status, output, errors = say("pack", source, tmp_path / "x", "--format", format)
    size = Path(tmp_path / f"x-00000-of-00001{SUFFIXES[format]}").stat().st_size
    sums = "6 read, 6 packed, 0 skipped: 1 file, 0.0 MiB"
    expected = f"{sums}, {size / 6:,.0f} bytes a record in jpeg\n"
    assert (status, output, errors) == (0, expected, "")


@pytest.mark.parametrize(
    ("format", "ending"),
    [
        *(("recordio", ending) for ending in ("rec", "recordio")),
        *(("tfrecord", ending) for ending in ("tfrecord", "tfrecords", "tfrec", "record")),
    ],
)
def test_pack_takes_the_format_of_the_ending(tmp_path, source, say, format, ending):
    say("pack", source, tmp_path / f"x.{ending}")
    assert (tmp_path / f"x.{ending}").exists()
    assert Manifest.load(tmp_path / "x.json").format == format


def test_pack_takes_options(tmp_path, source, say):
    words = ["--resize", 16, "--quality", 70, "--shard-bytes", "2K", "--workers", 2]
    status, _, _ = say("pack", source, tmp_path / "x.rec", *words)
    manifest = Manifest.load(tmp_path / "x.json")
    settings = {"encoding": "jpeg", "resize": 16, "quality": 70, "shard_bytes": 2048}
    assert (status, len(manifest.files) > 1, manifest.settings) == (0, True, settings)


def test_pack_takes_a_list_with_a_root(tmp_path, source, say):
    (tmp_path / "x.lst").write_text("0\t5\tant/000.jpg\n")
    words = ["--root", source, "--encoding", "raw"]
    status, output, _ = say("pack", tmp_path / "x.lst", tmp_path / "x.rec", *words)
    assert (status, output.endswith(" bytes a record in raw\n")) == (0, True)
    assert open_records(tmp_path / "x.rec", decode="image")[0][1] == 5


def test_pack_names_what_is_no_image(tmp_path, source, say):
    (source / "ant/x.jpg").write_bytes(b"no image")
    status, output, errors = say("pack", source, tmp_path / "x.rec")
    assert (status, output) == (1, "")
    assert errors.startswith(f"adapters pack: {source}/ant/x.jpg, byte 0: expected an image")
    status, output, _ = say("pack", source, tmp_path / "x.rec", "--on-error", "skip")
    first, last = output.splitlines()
    assert status == 0
    assert last.startswith("7 read, 6 packed, 1 skipped: 1 file, 0.0 MiB, ")
    assert first.startswith(f"skipped {source}/ant/x.jpg: expected an image, found 8 bytes")


def test_pack_prints_names_that_are_no_utf_8(tmp_path, source):
    """In a process of its own, whose output is as strict as a terminal's."""
    (source / "ant" / os.fsdecode(b"odd \xff.jpg")).write_bytes(b"no image")
    words = ["pack", source, tmp_path / "x.rec", "--on-error", "skip"]
    process = ended(*words, PYTHONWARNINGS="error")
    assert (process.returncode, process.stderr) == (0, "")
    assert "odd \\udcff.jpg: expected an image" in process.stdout


@pytest.mark.parametrize(
    ("text", "size"), [("1000000", 10**6), ("64MB", 64 << 20), ("2GiB", 2 << 30), (" 3kB ", 3072)]
)
def test_pack_takes_sizes_with_units(tmp_path, source, say, text, size):
    say("pack", source, tmp_path / "x.rec", "--shard-bytes", text)
    assert Manifest.load(tmp_path / "x.json").settings["shard_bytes"] == size


def test_index_of_another_file_stays(tmp_path, source, say):
    say("pack", source, tmp_path / "x.rec")
    (tmp_path / "x.json").unlink()
    index = (tmp_path / "x.idx").read_bytes()
    say("pack", source, tmp_path / "x.tfrecord")
    (tmp_path / "x.tfrecord.idx").unlink()
    say("verify", tmp_path / "x.tfrecord", "--write-index")
    assert (tmp_path / "x.idx").read_bytes() == index
    assert (tmp_path / "x.tfrecord.idx").is_file()


def test_index_that_is_stale_is_replaced(tmp_path, source, say):
    say("pack", source, tmp_path / "x.rec")
    index = (tmp_path / "x.idx").read_bytes()
    for named in ("x.rec", "x.json"):
        (tmp_path / "x.idx").write_text("0\t12\n")
        assert say("verify", tmp_path / named, "--write-index")[0] == 0
        assert (tmp_path / "x.idx").read_bytes() == index


def test_index_is_none_of_a_compressed_file(tmp_path, source, say):
    say("pack", source, tmp_path / "x.tfrecord")
    path = tmp_path / "y.tfrecord.gz"
    path.write_bytes(gzip.compress((tmp_path / "x.tfrecord").read_bytes()))
    status, output, _ = say("verify", path, "--write-index")
    assert (status, f"{path}: compressed, so that" in output) == (1, True)
    assert output.endswith("6 good records, 1 problem\n")


def test_convert_there_and_back(tmp_path, source, say):
    say("pack", source, tmp_path / "x.rec")
    there = say("convert", tmp_path / "x.rec", tmp_path / "y.tfrecord")
    say("convert", tmp_path / "y.tfrecord", tmp_path / "z", "--format", "recordio")
    assert there == (0, f"{tmp_path}/y.tfrecord: 6 records\n", "")
    assert (tmp_path / "z").read_bytes() == (tmp_path / "x.rec").read_bytes()


def test_convert_replaces_no_file(tmp_path, source, say):
    """As it would if OUT were forgotten behind a wildcard."""
    say("pack", source, tmp_path / "a.rec")
    before = (tmp_path / "a.rec").read_bytes()
    status, _, errors = say("convert", tmp_path / "a.rec", tmp_path / "a.rec")
    assert (status, "OUT must be a new file" in errors) == (1, True)
    assert (tmp_path / "a.rec").read_bytes() == before


def test_wildcard_of_a_shell(tmp_path, source, say):
    """All that pack wrote is named, as `train*` does; verify knows manifests, too."""
    say("pack", source, tmp_path / "train", "--format", "recordio", "--shard-bytes", "2KB")
    found = sorted(each for each in tmp_path.iterdir() if each.name.startswith("train"))
    assert {each.suffix for each in found} == {".rec", ".idx", ".json"}
    status, output, _ = say("verify", *found)
    assert (status, output.splitlines()[-1]) == (0, "6 good records, 0 problems")
    assert say("inspect", *found)[0] == 0
    assert say("convert", *found, tmp_path / "all.tfrecord")[0] == 0
    assert len(open_records(tmp_path / "all.tfrecord")) == 6


# --- status ---


@pytest.mark.parametrize("command", OF_FILES)
def test_missing_file_is_status_1(tmp_path, monkeypatch, say, command):
    monkeypatch.chdir(tmp_path)
    out = ["out.rec"] if command in ("pack", "convert") else []
    status, output, errors = say(command, "missing", *out)
    assert (status, "missing" in output + errors, "Traceback" in errors) == (1, True, False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "required: COMMAND"),
        (["burn"], "invalid choice"),
        (["pack", "a"], "required: out"),
        (["pack", "a", "b"], "--format must be given where OUT doesn't end in .rec (recordio)"),
        (["convert", "a", "b.txt"], "--format must be given"),
        (["pack", "a", "b.rec", "--format", "zip"], "invalid choice: 'zip'"),
        (
            ["pack", "a", "b.rec", "--shard-bytes", "many"],
            "bytes such as 65536 or 64MB, got 'many'",
        ),
        (["pack", "a", "b.rec", "--shard-bytes", "0"], "got '0'"),
        (["pack", "a", "b.rec", "--shard-bytes", "²"], "got '²'"),
        (["pack", "a", "b.rec", "--workers", "some"], "must be a number or \"auto\", got 'some'"),
        (["pack", "a", "b.rec", "--resize", "0"], "must be an integer >= 1, got '0'"),
        (["pack", "a", "b.rec", "--quality", "101"], "must be <= 100, got '101'"),
        (["pack", "a", "b.rec", "--on-error", "ignore"], "invalid choice: 'ignore'"),
        (["verify"], "required: files"),
        (["verify", "a", "--all"], "unrecognized arguments: --all"),
        (["inspect", "a", "--count", "0"], "must be an integer >= 1, got '0'"),
        (["doctor", "--seconds", "inf", "a.py"], "--seconds: must be a number > 0, got 'inf'"),
        (["doctor", "--step-ms", "nan", "a.py"], "--step-ms: must be a number > 0, got 'nan'"),
        (["doctor", "--skip", "-1", "a.py"], "--skip: must be an integer >= 0, got '-1'"),
        (["doctor", "--skip", "1"], "--skip needs a script"),
        (["doctor", "--tune", "a.py:b", "--rounds", "0"], "argument --rounds: must be "),
        (["doctor", "--step-ms", "10", "--tune", "a.py:b"], "--step-ms needs a script"),
        (["doctor", "--tune", "a.py:b", "train.py"], "--tune measures a loader without a script"),
        (["doctor", "--rounds", "3", "train.py"], "--rounds needs --tune TARGET"),
        (["doctor", "--", "--epochs", "3"], "a script must be given before --, got none"),
        (
            ["doctor", "train.py", "--epochs", "3"],
            "unrecognized arguments: --epochs 3: the script's own must follow after --: adapters "
            "doctor train.py -- --epochs 3",
        ),
        (["doctor", "train.py", "fast"], "adapters doctor train.py -- fast"),
        (["doctor", "-m", "a.b"], "give the module's name alone, adapters doctor package.module"),
        (["inspect", "data.py:train", "a"], "data.py:train must be the only target, got 2"),
        ([*REPLAY, "--epoch", "0", "--lr", "1"], "adapters replay train.py -- --lr 1"),
        (
            [*REPLAY[:2], "--epoch", "0", "--step", "-1"],
            "--step: must be an integer >= 0, got '-1'",
        ),
        ([*REPLAY, "--epoch", "-1"], "argument --epoch: must be an integer >= 0, got '-1'"),
        ([*REPLAY, "--epoch", "0", "--skip", "-1"], "argument --skip: must be an integer >= 0"),
    ],
)
def test_wrong_words_are_status_2(say, words, message):
    status, output, errors = say(*words)
    assert (status, output, message in errors) == (2, "", True), errors


@pytest.mark.parametrize("words", [["--help"], *([command, "--help"] for command in COMMANDS)])
def test_help(say, words):
    status, output, errors = say(*words)
    assert (status, errors, output.startswith("usage: adapters")) == (0, "", True)


def test_version(say):
    assert say("--version") == (0, f"adapters {__version__}\n", "")


def test_ctrl_c_is_status_130(monkeypatch, say):
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("adapters.cli.packing.verify", interrupted)
    assert say("verify", "x") == (130, "", "adapters verify: interrupted\n")


def test_closed_pipe_gives_no_traceback(tmp_path, source, say):
    """As in `adapters inspect x.rec | head -0`."""
    say("pack", source, tmp_path / "x.rec")
    reading, writing = os.pipe()
    os.close(reading)
    words = command("inspect", tmp_path / "x.rec")
    with os.fdopen(writing, "wb") as pipe:
        process = subprocess.run(words, stdout=pipe, stderr=subprocess.PIPE, timeout=60)
    assert (process.returncode, process.stderr) == (1, b"")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize(("name", "status"), [("x.rec", 0), ("missing", 1)])
def test_closed_output_changes_no_status(tmp_path, source, say, closed, name, status):
    say("pack", source, tmp_path / "x.rec")
    words = ["sh", "-c", f'"$@" {closed}', "sh", *command("inspect")]
    process = subprocess.run([*words, tmp_path / name], capture_output=True, timeout=60)
    said = (process.returncode, bool(process.stdout), bool(process.stderr))
    assert said == (status, not status and closed == "2>&-", bool(status) and closed == ">&-")


def test_bar_without_standard_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with bar("verify", shown=True) as progress:
        progress(1, 2)


# --- the program ---


def test_pack_imports_no_framework(tmp_path, source):
    others = {"keras", "tensorflow", "mxnet", "torch", "jax", "asyncio"}
    others |= {f"adapters.{room}" for room in ("diagnosis", "engine", "planning", "viewing")}
    script = (
        "import sys; from adapters.cli import main; main(sys.argv[1:])\n"
        f"print({others} & set(sys.modules))"
    )
    words = ["pack", source, tmp_path / "x.rec", "--resize", "16"]
    program = [sys.executable, "-c", script, *map(str, words)]
    output = subprocess.check_output(program, text=True, timeout=60)
    assert output.splitlines()[-1] == "set()"


class Terminal(io.StringIO):
    """Standard error, as if somebody looked at it."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "drawn"), [(Terminal, True), (io.StringIO, False)])
@pytest.mark.parametrize("command", ["pack", "verify", "convert"])
def test_bar_is_drawn_on_a_terminal_only(tmp_path, source, monkeypatch, command, stream, drawn):
    main(["pack", str(source), str(tmp_path / "x.rec")])
    words = {
        "pack": [str(source), str(tmp_path / "y.rec")],
        "verify": [str(tmp_path / "x.rec")],
        "convert": [str(tmp_path / "x.rec"), str(tmp_path / "y.tfrecord")],
    }
    errors = stream()
    monkeypatch.setattr(sys, "stderr", errors)
    main([command, *words[command]])
    unit = "image" if command == "pack" else "record"
    found = re.search(rf"{command}: .*{unit}", errors.getvalue()) is not None
    assert (found, bool(errors.getvalue())) == (drawn, drawn)


def test_bar_says_what_is_done(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with bar("verify", "record") as progress:
        progress(3, 10)
        first = terminal.getvalue()
        progress(1, 20)  # The next file
    assert re.search(r"verify: .*3/10 \[.*<.*record", first)  # So long, and so long still
    assert re.search(r"verify: .*1/20 \[.*record", terminal.getvalue())


def test_bar_of_the_doctor(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())

    def diagnosed(*_: Any, progress: Any, **__: Any) -> str:
        progress(1, 3)
        return "found"

    monkeypatch.setattr("adapters.cli.doctor.diagnose_script", diagnosed)
    assert main(["doctor", "train.py"]) == 0
    assert re.search(r"doctor: .*1/3 \[.*round", terminal.getvalue())


REPLAYED = """
import sys
import keras, numpy as np
from adapters import SafeSequence

data = np.arange(12 * 64, dtype="float32").reshape(12, 8, 8, 1)
model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(1)])
model.compile("sgd", "mse")
with SafeSequence((data, np.arange(12)), int(sys.argv[1]), workers=0) as train:
    model.fit(train, epochs=3, verbose=0)
print("trained")
"""


def test_replay_of_a_batch(tmp_path, say):
    script, sheet = tmp_path / "train.py", tmp_path / "sheet.png"
    script.write_text(REPLAYED)
    options = ["--epoch", 2, "--batch", 1, "--sheet", sheet]
    status, output, errors = say("replay", script, *options, "--", "4")
    assert status == 0, errors
    first, *table, last = output.splitlines()
    assert first.startswith("batch 1 of epoch 2: 4 samples, float32 (4, 8, 8, 1)")
    rows = [[str(row), str(row + 4), str(row + 4)] for row in range(4)]
    assert [line.split() for line in table[1:]] == rows
    assert last == str(sheet)
    assert sheet.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (REPLAYED, r": batch index must be in range\(-3, 3\), got 99$"),
        ("print('nothing')", "came to its end without a call of Keras's fit"),
        (REPLAYED.replace("fit(train", "fit(data, np.arange(12)"), "SafeSequence .*, got ndarray"),
    ],
)
def test_replay_of_a_batch_that_is_missing(tmp_path, say, text, said):
    script = tmp_path / "train.py"
    script.write_text(text)
    status, _, errors = say("replay", script, "--epoch", 0, "--batch", 99, "--", "4")
    assert status == 1
    assert re.search(said, errors.splitlines()[-1])
    assert "Traceback" not in errors
