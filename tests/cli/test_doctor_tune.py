"""``adapters doctor --tune``: the table, and the line to paste."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from adapters import pack
from adapters.cli import doctor, main
from adapters.diagnosis import sweep
from tests.packing.materials import folder, jpeg

# No process can be given a generator, and starting processes takes seconds.
FILE = """
import time
import numpy as np
from adapters import SafeSequence

steps = (number for number in range(3))

class Waiting:
    def __len__(self):
        return 64

    def __getitem__(self, number):
        time.sleep(0.002)
        return np.float32([number])

def stepping(sample, steps=steps):
    return sample

train = SafeSequence(Waiting(), 8, transform=stepping)

def make():
    return SafeSequence(Waiting(), 4, transform=stepping)

def wrong():
    return [1, 2]

number = 7
"""
QUICK = ["--seconds", "0.02", "--rounds", "1"]


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command adds to the module search path goes with the test."""
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tuned_data.py"
    path.write_text(FILE)
    return path


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command: status, lines of output, errors."""

    def said(*words: Any) -> tuple[int, list[str], str]:
        try:
            status = main(["doctor", "--tune", *map(str, words)])
        except SystemExit as end:
            status = int(end.code or 0)
        captured = capsys.readouterr()
        return status, captured.out.splitlines(), captured.err

    return said


def test_the_table_is_printed(file, say):
    status, lines, _ = say(f"{file}:train", *QUICK)
    assert (status, lines[0]) == (0, "batches of 8; medians of 1 rounds")
    assert lines[1].split() == ["kind", "workers", "queue", "samples/s", "range"]
    kinds = {line.split()[0] for line in lines[2:-2]}
    assert kinds == {"auto", "inline", "threads", "not"}


def test_the_recommended_line_is_the_last(file, say):
    _, lines, _ = say(f"{file}:train", *QUICK)
    assert lines[-2].startswith("recommended, at ")
    assert " samples/s of the loader alone, " in lines[-2]
    assert lines[-2].endswith(" beside its own setting:")
    assert lines[-1].startswith("  SafeSequence(..., workers=")
    assert "workers=0" not in lines[-1]


def test_why_processes_were_not_tried_is_printed(file, say):
    _, lines, _ = say(f"{file}:train", *QUICK)
    assert any(line.startswith("not tried: processes: ") for line in lines)


def test_a_function_that_makes_a_loader_is_called(file, say):
    status, lines, _ = say(f"{file}:make", *QUICK)
    assert (status, lines[0]) == (0, "batches of 4; medians of 1 rounds")


def test_a_module_is_looked_for_where_one_is(file, say, monkeypatch):
    monkeypatch.chdir(file.parent)
    monkeypatch.delitem(sys.modules, "tuned_data", raising=False)
    monkeypatch.setattr(sweep, "obstacle_to_processes", lambda plan: "not today")
    status, lines, _ = say("tuned_data:train", *QUICK)
    monkeypatch.delitem(sys.modules, "tuned_data")
    assert (status, lines[0]) == (0, "batches of 8; medians of 1 rounds")


def test_functions_of_the_file_can_be_sent_to_processes(tmp_path, say, monkeypatch):
    monkeypatch.setattr(sweep, "usable_cpus", lambda: 1)
    monkeypatch.setattr(sweep, "_QUEUES", ())
    path = tmp_path / "tuned_data.py"
    path.write_text(FILE.replace("steps=steps", "steps=None"))
    status, lines, _ = say(f"{path}:train", *QUICK)
    assert status == 0
    assert any(line.startswith("processes ") for line in lines)


def test_record_files_are_tuned_as_one_trains_on_pictures(tmp_path, say, monkeypatch):
    monkeypatch.setattr(sweep, "obstacle_to_processes", lambda plan: "not today")
    path = tmp_path / "train.tfrecord"
    pack([(jpeg(number), number) for number in range(8)], path, format="tfrecord")
    status, lines, _ = say(path, *QUICK)
    assert (status, lines[0]) == (0, "batches of 8; medians of 1 rounds")


def test_a_folder_is_tuned_as_one_trains_on_pictures(tmp_path, say, monkeypatch):
    monkeypatch.setattr(sweep, "obstacle_to_processes", lambda plan: "not today")
    status, lines, _ = say(folder(tmp_path / "photos", 8), *QUICK)
    assert (status, lines[0]) == (0, "batches of 8; medians of 1 rounds")


def test_rounds_are_as_many_as_asked_for(file, say):
    lines = say(f"{file}:train", "--seconds", "0.01", "--rounds", "2")[1]
    assert lines[0] == "batches of 8; medians of 2 rounds"


# --- what is refused ---


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "must define nothing when it is imported, and doesn't"),
        ("number", "must be a SafeSequence, a gluon_loader, or a function that makes one, got int"),
        ("wrong", "got list"),
    ],
)
def test_a_name_of_something_else_is_refused(file, say, name, message):
    status, lines, errors = say(f"{file}:{name}")
    assert (status, lines) == (1, [])
    assert message in errors


@pytest.mark.parametrize("name", ["nowhere.py:train", "no_such_module:train", "nowhere.rec"])
def test_what_is_not_there_is_refused_in_a_line(say, name):
    status, lines, errors = say(name)
    assert (status, lines) == (1, [])
    assert errors.startswith("adapters doctor: ")
    assert "nowhere" in errors or "no_such_module" in errors


@pytest.mark.parametrize("option", ["--seconds", "--rounds"])
def test_no_measurement_is_refused(file, say, option):
    status, _, errors = say(f"{file}:train", option, "0")
    assert status == 2
    assert f"argument {option}: must be " in errors
    assert "got '0'" in errors


# --- what goes wrong in somebody's own code ---


@pytest.mark.parametrize(
    "error", ["TypeError", "ValueError", "KeyError", "ImportError", "OSError", "BrokenPipeError"]
)
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("def broken():\n    raise {error}('mine')\nbroken()\n", "in broken"),
        ("def train():\n    raise {error}('mine')\n", "in train"),
        (
            FILE + "def broken(sample):\n    raise {error}('mine')\n"
            "train = SafeSequence(Waiting(), 8, transform=broken, workers=0)\n",
            "in broken",
        ),
    ],
    ids=["in the file", "in the function", "in a transform"],
)
def test_an_exception_of_the_users_code_comes_with_its_place(tmp_path, say, text, place, error):
    path = tmp_path / "tuned_data.py"
    path.write_text(text.replace("{error}", error))
    status, _, errors = say(f"{path}:train", *QUICK)
    assert status == 1
    assert "Traceback (most recent call last)" in errors
    assert 'tuned_data.py", line' in errors
    assert place in errors
    assert f"{error}: " in errors
    assert "mine" in errors
    assert errors.splitlines()[-1].startswith("adapters doctor: ")


def test_an_exception_of_a_module_comes_with_its_place(tmp_path, say, monkeypatch):
    (tmp_path / "broken_data.py").write_text("import no_such_library\n")
    monkeypatch.chdir(tmp_path)
    status, _, errors = say("broken_data:train")
    assert status == 1
    assert 'broken_data.py", line 1' in errors
    assert "ModuleNotFoundError: No module named 'no_such_library'" in errors


def test_what_is_wrong_with_the_command_comes_without_a_traceback(file, say):
    for name in (f"{file}:nothing", "nowhere.py:train", "no_such_module:train", "nowhere.rec"):
        assert "Traceback" not in say(name)[2]


def test_ctrl_c_is_told_and_leaves_nothing(file, say, monkeypatch):
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "table_of", interrupted)
    status, _, errors = say(f"{file}:train", *QUICK)
    assert status == 130
    assert "adapters doctor: interrupted" in errors
