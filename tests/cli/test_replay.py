"""``adapters replay``: a batch of somebody's script."""

from __future__ import annotations

import pytest

from adapters.cli import main
from tests.cli.scripts import ended

_SCRIPT = """
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


def test_a_batch_of_a_script(tmp_path):
    script, sheet = tmp_path / "train.py", tmp_path / "sheet.png"
    script.write_text(_SCRIPT)
    options = ["--epoch", 2, "--batch", 1, "--sheet", sheet]
    process = ended("replay", script, *options, "--", "4", KERAS_BACKEND="jax")
    assert process.returncode == 0, process.stderr
    first, *table, last = process.stdout.splitlines()
    assert first.startswith("batch 1 of epoch 2: 4 samples, float32 (4, 8, 8, 1)")
    assert [line.split() for line in table[1:]] == [
        [str(row), str(row + 4), str(row + 4)] for row in range(4)
    ]
    assert last == str(sheet)
    assert sheet.read_bytes().startswith(b"\x89PNG")


def test_a_batch_that_an_epoch_does_not_have(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(_SCRIPT)
    options = ["--epoch", 0, "--batch", 99, "--", "4"]
    process = ended("replay", script, *options, KERAS_BACKEND="jax")
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1].endswith(": batch index must be in range(-3, 3), got 99")
    assert "Traceback" not in process.stderr


def test_a_script_without_a_loop(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print('nothing')")
    process = ended("replay", script, "--epoch", 0, "--step", 0)
    assert process.returncode == 1
    assert "came to its end without a call of Keras's fit" in process.stderr


def test_a_step_counts_from_zero(capsys):
    with pytest.raises(SystemExit):
        main(["replay", "train.py", "--epoch", "0", "--step", "-1"])
    assert "--step: must be an integer >= 0, got '-1'" in capsys.readouterr().err
