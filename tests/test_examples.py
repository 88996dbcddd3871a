"""The scripts in examples/ run, at a small size, where what they import is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from pathlib import Path

import pytest

from tests.engine.scripts import ended

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
    "several_jax.py": (["--epochs", "2"], "1 processes, accuracy"),
    "several_mxnet.py": ([], "position {'epoch': 3, 'samples': 0}"),
    "several_tensorflow.py": ([], "position {'epoch': 3, 'samples': 0}"),
    "several_torch.py": ([], "position {'epoch': 3, 'samples': 0}"),
    "several_torch_fit.py": ([], "position {'epoch': 2, 'samples': 0}"),
    "typed_tfrecords.py": (["--samples", "640", "--epochs", "1"], "accuracy"),
}
NOTEBOOK = EXAMPLES / "first_steps.ipynb"


def test_every_script_is_known_here():
    found = {path.name for path in EXAMPLES.glob("*.py")}
    assert found == {*SCRIPTS, "shapes.py"}


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs(name):
    path = EXAMPLES / name
    imported = re.findall(r"^(?:import|from) (\w+)", path.read_text(), re.MULTILINE)
    for package in {*imported, "cv2"} - {"adapters", "shapes"}:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} isn't installed")
    arguments, said = SCRIPTS[name]
    environment = {"HF_HUB_OFFLINE": "1"}
    # ResNet-50 takes longer to compile than to train here.
    backend = "torch" if name == "photos_to_resnet.py" else "jax"
    if importlib.util.find_spec(backend) is not None:
        environment["KERAS_BACKEND"] = backend
    finished = ended(path, *arguments, timeout=280, variables=environment)
    assert finished.returncode == 0, finished.stderr
    assert said in finished.stdout


def cells(kind: str) -> list[dict]:
    """The notebook's cells of a kind."""
    return [each for each in json.loads(NOTEBOOK.read_text())["cells"] if each["cell_type"] == kind]


def test_the_notebook_opens_with_results_shown():
    """Each cell of code was run, in order, without an error; a picture is among the results."""
    code = cells("code")
    assert [each["execution_count"] for each in code] == list(range(1, len(code) + 1))
    outputs = [output for each in code for output in each["outputs"]]
    assert [each["output_type"] for each in outputs if each["output_type"] == "error"] == []
    assert any("image/png" in each.get("data", {}) for each in outputs)
    said = "".join("".join(each.get("text", [])) for each in outputs)
    assert "the same to the last bit: True" in said
    assert "/tmp" not in NOTEBOOK.read_text()


@pytest.mark.full
def test_the_cells_of_the_notebook_run(tmp_path):
    for package in ("keras", "cv2", "jax"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} isn't installed")
    script = tmp_path / "notebook.py"
    script.write_text("\n\n".join("".join(each["source"]) for each in cells("code")))
    folders = os.pathsep.join(map(str, (EXAMPLES, EXAMPLES.parent)))
    finished = ended(script, variables={"PYTHONPATH": folders, "KERAS_BACKEND": "jax"})
    assert finished.returncode == 0, finished.stderr
    assert "the same to the last bit: True" in finished.stdout
