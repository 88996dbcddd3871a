"""``adapters doctor``: of a script, run as its author would; of the machine; and ``--tune``."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adapters import machine as described
from adapters import pack
from adapters.arguments import counted
from adapters.cli import doctor
from adapters.diagnosis import sweep
from adapters.gluon import import_mxnet
from tests.cli.scripts import doctored, found_in
from tests.diagnosis.made_up import made_up
from tests.packing.materials import folder, jpeg

MODEL = """
import sys
import time
import keras
import numpy as np

def model():
    made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made

x, y = np.zeros((64, 3), "float32"), np.zeros(64, "float32")
"""
PY_DATASET = f"""{MODEL}
class Slow(keras.utils.PyDataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        time.sleep(0.02)
        return x[8 * index : 8 * index + 8], y[8 * index : 8 * index + 8]

if __name__ == "__main__":
    import lying_beside
    print("given", sys.argv)
    model().fit(Slow(), epochs=2, verbose=0)
    print("the script went on")
"""
GENERATOR = MODEL + "model().fit(((x, y) for _ in range(100)), verbose=0)"
OWN_CODE = f"""{MODEL}
from adapters import SafeSequence

def slow(given):
    print("ready", flush=True)
    time.sleep(0.02)
    return given

def broken(*given):
    raise {{error}}("mine")

class Broken(keras.utils.PyDataset):
    __len__ = lambda self: 8

    def __getitem__(self, index):
        broken()

def transformed(workers=0, **functions):
    return SafeSequence((x, y), 8, workers=workers, **functions)

model().fit({{data}}, verbose=0)
"""


def fitting(data: str, error: str = "") -> str:
    return OWN_CODE.replace("{error}", error).replace("{data}", data)


@pytest.fixture
def examine(tmp_path: Path, say: Any) -> Any:
    """Runs the command on a script of this text: status, output, errors."""

    def said(text: str, *options: Any) -> tuple[int, str, str]:
        script = tmp_path / "train.py"
        script.write_text(text)
        return say("doctor", "--seconds", 0.02, *options, script)

    return said


# --- of a script with Keras ---


def test_script_ends_after_its_first_fit(tmp_path):
    (tmp_path / "lying_beside.py").write_text("")
    process = doctored(tmp_path, PY_DATASET, "--epochs", "3")
    assert found_in(process) == "storage: fetching the samples"
    assert f"given {[str(tmp_path / 'train.py'), '--epochs', '3']}" in process.stdout
    assert "thread_safe=True, if several threads may run your code at once" in process.stdout
    assert "the script went on" not in process.stdout


def test_script_with_a_generator_is_refused(examine):
    status, _, errors = examine(GENERATOR)
    assert status == 1
    assert "adapters doctor: fit was given a generator, which gives" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("data", "error", "place"),
    [
        ("transformed(transform=broken)", "TypeError", "in sample 0, batch 0 of epoch 0"),
        ("transformed(batch_transform=broken)", "OSError", "batch 0 of epoch 0"),
        ("transformed(collate=broken)", "TypeError", "batch 0 of epoch 0"),
        ("Broken()", "OSError", ""),
        # Before there is a loader.
        ("broken()", "ValueError", ""),
        ("broken()", "OSError", ""),
        ("broken()", "ImportError", ""),
    ],
)
def test_exception_of_user_code_has_its_place(tmp_path, examine, data, error, place):
    status, _, errors = examine(fitting(data, error))
    assert status == 1
    assert "Traceback (most recent call last)" in errors
    assert re.search(r'train\.py", line \d+, in broken\n    raise ', errors)
    assert f"{error}: " in errors
    assert "mine" in errors
    assert place in errors
    assert errors.endswith(f"adapters doctor: {tmp_path}/train.py ended with that exception\n")


def test_frameworks_are_as_they_were(examine):
    importlib.import_module("adapters.keras.sequence")  # It ends what each call of fit began.
    keras, mxnet = importlib.import_module("keras"), import_mxnet()
    before = keras.Model.fit, mxnet.gluon.data.DataLoader.__iter__
    assert examine("import keras, mxnet\nraise ValueError")[0] == 1
    assert (keras.Model.fit, mxnet.gluon.data.DataLoader.__iter__) == before


def test_script_without_a_loop_is_an_error(tmp_path, examine):
    status, output, errors = examine("print('trained nothing')")
    assert (status, output) == (1, "trained nothing\n")
    expected = f"adapters doctor: {tmp_path}/train.py came to its end without a call of Keras's"
    assert errors.startswith(expected)


def test_relative_import_has_its_remedy(examine):
    assert examine("from . import it")[2].endswith(
        "exception: give the module's name, adapters doctor package.module\n"
    )


@pytest.mark.parametrize("name", ["nowhere.py", "nowhere", "nowhere.train", "no/where"])
def test_script_that_is_missing_is_an_error(say, name):
    expected = f"name of a module as for python -m, got {name!r}: there is none"
    assert expected in say("doctor", name)[2]


@pytest.fixture
def machine(say: Any) -> Any:
    """Runs the command without a script: what it says, by the first word of each line."""

    def said() -> dict[str, str]:
        status, output, _ = say("doctor")
        assert status == 0
        return dict(line.split(": ", 1) for line in output.splitlines())

    return said


BROKEN = "it was built, but can't be loaded: no libjpeg"


@pytest.mark.parametrize(
    ("name", "found", "said"),
    [
        ("load", SimpleNamespace(HUFFMAN_IS_OWN=1), "there"),
        ("load", SimpleNamespace(HUFFMAN_IS_OWN=0), "there, linked with a shared libjpeg; "),
        ("trouble", BROKEN, BROKEN),
    ],
)
def test_machine_tells_of_the_kernel(machine, monkeypatch, name, found, said):
    monkeypatch.setattr(described, name, lambda: found)
    assert machine()["native kernel"].startswith(said)


def test_machine_asks_for_headers_of_a_missing_kernel(machine, monkeypatch):
    monkeypatch.setattr(described, "load", lambda: None)
    monkeypatch.setenv("ADAPTERS_KERNEL", "0")
    assert machine()["native kernel"].startswith("switched off by ADAPTERS_KERNEL=0")
    monkeypatch.delenv("ADAPTERS_KERNEL")
    said = machine()["native kernel"]
    assert said.startswith("missing; ")
    assert "apt-get install gcc libjpeg62-turbo-dev" in said
    assert "pip install this package again" in said
    assert "pip cache remove loader_adapters" in said  # Else its wheel without the kernel comes.


@pytest.mark.parametrize("place", [0, 1], ids=["before the script", "after the script"])
def test_options_before_or_after_the_script(monkeypatch, say, place):
    found = made_up(storage=0.038)
    asked = []

    def diagnosed(path: str, arguments: list[str], *, skip: int, t: float, **_: Any) -> Any:
        asked.append((path, arguments, skip, t))
        return found

    monkeypatch.setattr(doctor, "diagnose_script", diagnosed)
    words = ["train.py"]
    words[place:place] = ["--step-ms", "20", "--skip", "1"]
    status, output, _ = say("doctor", *words, "--", "--epochs", "3", "--step-ms", "x")
    assert (status, output.startswith(str(found))) == (0, True)
    assert asked == [("train.py", ["--epochs", "3", "--step-ms", "x"], 1, 0.02)]


def test_machine_tells_of_a_missing_library(machine, monkeypatch):
    monkeypatch.setattr(described, "_LIBRARIES", {"numpy": "counts", "no_such": "pip install it"})
    said = machine()
    assert said["numpy"] == "there"
    assert said["no_such"] == "missing; pip install it"


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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tuned_data.py"
    path.write_text(FILE)
    return path


@pytest.fixture
def tune(say: Any) -> Any:
    """Runs the command: status, lines of output, errors."""

    def said(*words: Any) -> tuple[int, list[str], str]:
        status, output, errors = say("doctor", "--tune", *words)
        return status, output.splitlines(), errors

    return said


@pytest.mark.parametrize(("name", "size", "rounds"), [("train", 8, 2), ("make", 4, 1)])
def test_tune_prints_a_table_and_a_line(file, tune, monkeypatch, name, size, rounds):
    """A thread that reads ahead is the fastest, whatever else the machine does."""
    monkeypatch.setattr(sweep, "_measured", lambda *of: (size, 9 if of[2].workers == 1 else 3))
    status, lines, _ = tune(f"{file}:{name}", "--seconds", "0.01", "--rounds", rounds)
    assert (status, lines[0]) == (0, f"batches of {size}; medians of {counted(rounds, 'round')}")
    assert lines[1].split() == ["kind", "workers", "samples/s", "range"]
    assert {line.split()[0] for line in lines[2:-2]} == {"auto", "inline", "threads", "not"}
    assert any(line.startswith("not tried: processes: ") for line in lines)
    assert lines[-2].startswith("recommended, at 9 samples/s of the loader alone, ")
    assert lines[-2].endswith(" over its present setting:")
    assert lines[-1].startswith("  SafeSequence(..., workers=1, use_multiprocessing=False)")


@pytest.mark.parametrize("kind", ["records", "folder"])
def test_tune_of_pictures(tmp_path, tune, monkeypatch, kind):
    """As one trains on them."""
    monkeypatch.setattr(sweep, "obstacle_to_processes", lambda plan: "not today")
    monkeypatch.setattr(sweep, "usable_cpus", lambda: 1)
    path = folder(tmp_path / "photos", 8)
    if kind == "records":
        path = tmp_path / "train.tfrecord"
        pack([(jpeg(number), number) for number in range(8)], path, format="tfrecord")
    status, lines, _ = tune(path, *QUICK)
    assert (status, lines[0]) == (0, "batches of 8; medians of 1 round")


def test_tune_sends_functions_of_the_file_to_processes(tmp_path, tune, monkeypatch):
    monkeypatch.setattr(sweep, "usable_cpus", lambda: 1)
    path = tmp_path / "tuned_data.py"
    path.write_text(FILE.replace("steps=steps", "steps=None"))
    status, lines, _ = tune(f"{path}:train", *QUICK)
    assert status == 0
    assert any(line.startswith("processes ") for line in lines)


GOT_INT = "must be a SafeSequence, a gluon_loader, or a function that makes one, got int"


@pytest.mark.parametrize(("name", "message"), [("number", GOT_INT), ("wrong", "got list")])
def test_tune_of_something_else_is_refused(file, tune, name, message):
    status, lines, errors = tune(f"{file}:{name}")
    assert (status, lines) == (1, [])
    assert message in errors


@pytest.mark.parametrize(
    ("text", "place", "error"),
    [
        ("def broken():\n    raise {error}('mine')\nbroken()\n", "in broken", "BrokenPipeError"),
        ("def train():\n    raise {error}('mine')\n", "in train", "ImportError"),
        ("def train():\n    raise {error}('mine')\n", "in train", "BrokenPipeError"),
        (
            FILE + "def broken(sample):\n    raise {error}('mine')\n"
            "train = SafeSequence(Waiting(), 8, transform=broken, workers=0)\n",
            "in broken",
            "TypeError",
        ),
    ],
    ids=["in the file", "in the function", "a pipe in the function", "in a transform"],
)
def test_tune_shows_exceptions_with_their_place(tmp_path, tune, text, place, error):
    path = tmp_path / "tuned_data.py"
    path.write_text(text.replace("{error}", error))
    status, _, errors = tune(f"{path}:train", *QUICK)
    assert status == 1
    assert "Traceback (most recent call last)" in errors
    assert 'tuned_data.py", line' in errors
    assert place in errors
    assert f"{error}: " in errors
    assert "mine" in errors
    assert errors.splitlines()[-1].startswith("adapters doctor: ")
