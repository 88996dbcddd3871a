"""``adapters doctor``: of a script, run as its author would, and of the machine."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from adapters import machine as described
from adapters.cli import doctor, main
from adapters.diagnosis.page import page_of
from adapters.gluon import import_mxnet
from tests.cli.scripts import command, doctored, environment, found_in, told_in
from tests.diagnosis.made_up import made_up

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
PY_DATASET = (
    MODEL
    + """
class Slow(keras.utils.PyDataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        time.sleep(0.05)
        return x[8 * index : 8 * index + 8], y[8 * index : 8 * index + 8]

if __name__ == "__main__":
    print("given", sys.argv[1:])
    model().fit(Slow(), epochs=2, verbose=0)
    print("the script went on")
"""
)
ARRAYS = (
    MODEL
    + """
made = model()
made.fit(x, y, verbose=0)
print("skipped one")
made.fit(x=x, y=y, batch_size=16, epochs=3, verbose=0)
"""
)
SEQUENCE = (
    MODEL
    + """
from adapters import SafeSequence

def slow(batch):
    time.sleep(0.05)
    return batch

model().fit(SafeSequence((x, y), 8, batch_transform=slow, workers=0), verbose=0)
"""
)
GENERATOR = MODEL + "model().fit(((x, y) for _ in range(100)), verbose=0)"
FAILING = (
    MODEL
    + """
from adapters import SafeSequence

def broken(sample):
    raise LookupError("no such picture")

model().fit(SafeSequence((x, y), 8, transform=broken), verbose=0)
"""
)
OWN_CODE = (
    MODEL
    + """
from adapters import SafeSequence

def broken(*given):
    raise {error}("mine")

class Broken(keras.utils.PyDataset):
    __len__ = lambda self: 8

    def __getitem__(self, index):
        broken()

def transformed(**functions):
    return SafeSequence((x, y), 8, workers=0, **functions)

model().fit({data}, verbose=0)
"""
)
ENDLESS = (
    MODEL
    + """
from adapters import SafeSequence

def slow(sample):
    print("ready", flush=True)
    time.sleep(0.01)
    return sample

model().fit(SafeSequence((x, y), 8, transform=slow, workers=2), verbose=0)
"""
)


# --- of a script with Keras ---


def test_a_py_dataset_on_slow_storage_is_found_and_the_script_ends_there(tmp_path):
    process = doctored(tmp_path, PY_DATASET, "--epochs", "3")
    assert found_in(process) == "storage: fetching the samples"
    assert "given ['--epochs', '3']" in process.stdout
    assert "thread_safe=True, if several threads may run your code at once" in process.stdout
    assert "the script went on" not in process.stdout


@pytest.mark.full
def test_calls_of_fit_are_skipped_and_arrays_examined(tmp_path):
    process = doctored(tmp_path, ARRAYS, options=["--skip", 1])
    assert "skipped one" in process.stdout
    assert "a batch of 16 " in process.stdout
    assert told_in(process) in ("the step itself", None)


@pytest.mark.full
def test_the_step_time_to_keep_up_with_can_be_given(tmp_path):
    process = doctored(tmp_path, SEQUENCE, options=["--step-ms", 10])
    assert "ready within t = 10 ms: 0.0% of the batches, too few" in process.stdout


@pytest.mark.full
def test_a_generator_is_refused_in_a_line(tmp_path):
    process = doctored(tmp_path, GENERATOR)
    assert process.returncode == 1
    assert "adapters doctor: fit was given a generator, which gives" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.full
def test_an_exception_in_a_transform_is_shown_with_its_sample(tmp_path):
    process = doctored(tmp_path, FAILING)
    assert process.returncode == 1
    assert "LookupError: no such picture" in process.stderr
    assert "in sample 0, batch 0 of epoch 0" in process.stderr


@pytest.mark.parametrize("error", ["TypeError", "ValueError", "KeyError", "OSError", "ImportError"])
@pytest.mark.parametrize(
    "data",
    [
        "transformed(transform=broken)",
        "transformed(batch_transform=broken)",
        "transformed(collate=broken)",
        "Broken()",
    ],
)
def test_an_exception_of_the_users_code_is_shown_with_its_place(tmp_path, capsys, data, error):
    script = tmp_path / "train.py"
    script.write_text(OWN_CODE.replace("{error}", error).replace("{data}", data))
    assert main(["doctor", "--seconds", "0.02", str(script)]) == 1
    errors = capsys.readouterr().err
    assert "Traceback (most recent call last)" in errors
    assert re.search(r'train\.py", line \d+, in broken\n    raise ', errors)
    assert f"{error}: " in errors
    assert "mine" in errors
    assert errors.endswith(f"adapters doctor: {script} ended with that exception\n")


def test_ctrl_c_ends_an_examination(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(ENDLESS)
    process = subprocess.Popen(
        command("doctor", "--seconds", 30, script),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    try:
        assert process.stdout.readline().startswith("ready")
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=90)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, errors.splitlines()[-1:]) == (130, ["adapters doctor: interrupted"])


def test_the_frameworks_are_as_they_were_before(tmp_path):
    importlib.import_module("adapters.keras.sequence")  # It ends what each call of fit began.
    keras, mxnet = importlib.import_module("keras"), import_mxnet()
    before = keras.Model.fit, mxnet.gluon.data.DataLoader.__iter__
    script = tmp_path / "train.py"
    script.write_text("import keras, mxnet\nraise ValueError")
    assert main(["doctor", str(script)]) == 1
    assert (keras.Model.fit, mxnet.gluon.data.DataLoader.__iter__) == before


# --- of a script without a loop ---


def test_a_script_without_a_loop_is_an_error(tmp_path):
    process = doctored(tmp_path, "print('trained nothing')")
    assert process.returncode == 1
    assert process.stdout == "trained nothing\n"
    assert "came to its end without a call of Keras's fit or a loop" in process.stderr


@pytest.mark.parametrize("error", ["ValueError", "TypeError", "KeyError", "OSError", "ImportError"])
def test_an_exception_of_the_script_is_shown_with_its_place(tmp_path, capsys, error):
    script = tmp_path / "train.py"
    script.write_text(f"def load():\n    raise {error}('no data here')\nload()\n")
    assert main(["doctor", str(script)]) == 1
    errors = capsys.readouterr().err
    assert f"{error}: " in errors
    assert "no data here" in errors
    assert 'train.py", line 2, in load' in errors
    assert errors.endswith(f"adapters doctor: {script} ended with that exception\n")


@pytest.mark.full
def test_an_exception_of_the_script_in_fit_is_shown_with_its_place(tmp_path):
    text = MODEL + "def length():\n    return len(None)\nmodel().fit(x, y, verbose=length())\n"
    process = doctored(tmp_path, text)
    assert process.returncode == 1
    assert "TypeError: object of type 'NoneType' has no len()" in process.stderr
    assert "in length" in process.stderr


def test_a_script_that_is_not_there_is_an_error(capsys):
    assert main(["doctor", "nowhere.py"]) == 1
    assert "adapters doctor: script must be the path of a file, got 'nowhere.py'" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("option", ["--seconds", "--step-ms"])
def test_times_must_be_above_nothing(capsys, option):
    with pytest.raises(SystemExit) as end:
        main(["doctor", option, "0", "train.py"])
    assert end.value.code == 2
    assert f"{option}: must be a number > 0, got '0'" in capsys.readouterr().err


# --- of the machine ---


@pytest.fixture
def machine(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command without a script: what it says, by the first word of each line."""

    def said() -> dict[str, str]:
        assert main(["doctor"]) == 0
        return dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())

    return said


def test_the_cpus_that_may_be_used_are_told(machine, monkeypatch):
    monkeypatch.setattr(described, "usable_cpus", lambda: 3)
    monkeypatch.setattr(described.os, "cpu_count", lambda: 8)
    assert machine()["CPUs"] == "3 of 8 may be used"


def test_versions_are_told_of_what_is_installed(machine, monkeypatch):
    monkeypatch.setattr(described, "_FRAMEWORKS", ("numpy", "no-such-framework"))
    ours, numpy = machine()["versions"].split(", ")
    assert ours.startswith("loader-adapters ")
    assert numpy.startswith("numpy ")


@pytest.mark.parametrize(
    ("own", "said"), [(1, "there"), (0, "there, linked with a shared libjpeg; ")]
)
def test_the_kernel_is_there(machine, monkeypatch, own, said):
    monkeypatch.setattr(described, "load", lambda: SimpleNamespace(HUFFMAN_IS_OWN=own))
    assert machine()["image kernel"].startswith(said)


def test_a_kernel_that_is_switched_off_is_told_from_a_missing_one(machine, monkeypatch):
    monkeypatch.setattr(described, "load", lambda: None)
    monkeypatch.setenv("ADAPTERS_KERNEL", "0")
    assert machine()["image kernel"].startswith("switched off by ADAPTERS_KERNEL=0")
    monkeypatch.delenv("ADAPTERS_KERNEL")
    assert machine()["image kernel"].startswith("missing; ")


def test_what_is_wrong_with_a_kernel_that_was_built_is_told(machine, monkeypatch):
    monkeypatch.setattr(
        described, "trouble", lambda: "it was built, but can't be loaded: no libjpeg"
    )
    assert machine()["image kernel"] == "it was built, but can't be loaded: no libjpeg"


@pytest.mark.parametrize("there", [True, False])
def test_the_headers_are_asked_for_where_they_are_missing(machine, monkeypatch, there):
    monkeypatch.setattr(described, "load", lambda: None)
    monkeypatch.delenv("ADAPTERS_KERNEL", raising=False)
    monkeypatch.setattr(described.Path, "is_file", lambda path: there)
    said = machine()["image kernel"]
    assert ("apt-get install gcc libjpeg62-turbo-dev" in said) is not there
    assert "pip install this package again" in said


def test_pips_cache_is_passed_by_where_the_kernel_is_built_again(machine, monkeypatch):
    monkeypatch.setattr(described, "load", lambda: None)
    monkeypatch.delenv("ADAPTERS_KERNEL", raising=False)
    assert "pip cache remove loader_adapters" in machine()["image kernel"]


# --- options, and the script's own arguments ---


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train.py", "--html"], "argument --html: expected one argument"),
        (["--html", "out.html"], "--html needs a script"),
        (["--skip", "1"], "--skip needs a script"),
        (["--step-ms", "10", "--tune", "a.py:b"], "--step-ms needs a script"),
        (["--tune", "a.py:b", "train.py"], "--tune measures a loader without a script"),
        (["--rounds", "3", "train.py"], "--rounds needs --tune TARGET"),
        (["--", "--epochs", "3"], "a script must be given before --, got none"),
        (
            ["train.py", "--epochs", "3"],
            "unrecognized arguments: --epochs 3: the script's own must follow after --: adapters "
            "doctor train.py -- --epochs 3",
        ),
        (["train.py", "fast"], "adapters doctor train.py -- fast"),
        (["train.py", "--html", "no/such/out.html"], "--html must be a file in an existing folder"),
    ],
)
def test_words_that_contradict_each_other_are_refused_before_anything_runs(words, said, capsys):
    with pytest.raises(SystemExit) as end:
        main(["doctor", *words])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("place", [0, 1], ids=["before the script", "after the script"])
def test_options_stand_before_or_after_the_script(tmp_path, monkeypatch, capsys, place):
    found = made_up(storage=0.038)
    asked = []
    monkeypatch.setattr(doctor, "diagnose_script", lambda *given, **_: asked.append(given) or found)
    page = tmp_path / "out.html"
    words = ["train.py"]
    words[place:place] = ["--html", str(page)]
    assert main(["doctor", *words, "--", "--epochs", "3", "--html", "x"]) == 0
    assert asked == [("train.py", ["--epochs", "3", "--html", "x"])]
    assert page.read_text(encoding="utf-8") == page_of(found, "train.py")
    assert capsys.readouterr().out.startswith(str(found))


def test_a_library_that_is_missing_comes_with_its_remedy(machine, monkeypatch):
    monkeypatch.setattr(described, "_LIBRARIES", {"numpy": "counts", "no_such": "pip install it"})
    said = machine()
    assert said["numpy"] == "there"
    assert said["no_such"] == "missing; pip install it"
