"""The scripts in examples/ run, at a small size, where what they import is installed."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
# Arguments, and what is to be seen at the end.
SCRIPTS = {
    "continue_after_a_crash.py": ([], "the weights are the same to the last bit"),
    "gluon_caltech256.py": (["--size", "64", "--epochs", "1"], "images/s, accuracy"),
    "gluon_mnist.py": (["--small", "--epochs", "1"], "ToTensor"),
    "hugging_face.py": (["--epochs", "1"], "accuracy"),
    "image_data_generator.py": ([], "now: "),
    "own_source.py": ([], "the same with no worker and with two"),
    "photos_to_resnet.py": (["--size", "32", "--epochs", "1"], "val_accuracy"),
    "typed_tfrecords.py": (["--samples", "640", "--epochs", "1"], "accuracy"),
}
# ResNet-50 alone takes a minute to compile.
_LONG = {"photos_to_resnet.py"}


def test_every_script_is_known_here():
    found = {path.name for path in EXAMPLES.glob("*.py")}
    assert found == {*SCRIPTS, "shapes.py"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.full if name in _LONG else ()) for name in SCRIPTS],
)
def test_a_script_runs(name):
    path = EXAMPLES / name
    imported = re.findall(r"^(?:import|from) (\w+)", path.read_text(), re.MULTILINE)
    for package in {*imported, "cv2"} - {"adapters", "shapes"}:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} isn't installed")
    arguments, said = SCRIPTS[name]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "HF_HUB_OFFLINE": "1"}
    if importlib.util.find_spec("jax") is not None:
        environment["KERAS_BACKEND"] = "jax"
    finished = subprocess.run(
        [sys.executable, str(path), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert finished.returncode == 0, finished.stderr
    assert said in finished.stdout
