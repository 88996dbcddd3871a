"""Keras's private names, which may move, and other packages that patch ``keras.Model``."""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras.src.trainers import data_adapters

import adapters.keras
from adapters import SafeSequence
from adapters.keras import Resume, internals, patches
from tests.keras.programs import run_program
from tests.keras.py_datasets import Numbered
from tests.keras.recording import BACKEND, built_recorder, epochs_of, linear, sequence_of

# What moves, and what the warning calls it; none for what the user asks for.
NAMES: dict[str, str | None] = {
    "ADAPTERS_STOCK_KERAS": None,
    "data_adapters": "get_data_adapter",
    "py_dataset_adapter": "PyDatasetAdapter",
    "PyDatasetAdapter": "PyDatasetAdapter",
    "its arguments": "PyDatasetAdapter",
    "_standardize_batch": "PyDatasetAdapter._standardize_batch",
    "_get_iterator": "PyDatasetAdapter._get_iterator",
    "its parameters": "get_data_adapter",
    "get_data_adapter": "get_data_adapter",
}
if BACKEND == "tensorflow":
    NAMES |= dict.fromkeys(("data_adapter_utils", "get_tensor_spec"), "get_tensor_spec")
BATCHES = 10
CALLS = ("fit", "evaluate", "predict")


def test_names_of_this_keras():
    assert (internals.missing(), internals.by_keras_adapter()) == ([], False)


def test_names_that_have_moved():
    """One warning names each, Keras is left as it is, and the batches are the same."""
    found = {}
    for line in run_program("moved").output.splitlines():
        name, warnings, *rest = json.loads(line)
        found[name] = [f"({NAMES[name]})" in warning for warning in warnings], *rest
    trained = epochs_of(sequence_of(BATCHES, shuffle=True, workers=0), 2)
    tested = 2 * [list(range(4 * i, 4 * i + 4)) for i in range(BATCHES)]
    expected = True, list(range(10)), trained, tested, 2, []
    assert found == {name: ([True] if said else [], *expected) for name, said in NAMES.items()}


def test_adapter_of_a_py_dataset_is_keras_s():
    assert type(internals.data_adapters.get_data_adapter(Numbered(2))).__name__ == (
        "PyDatasetAdapter"
    )


def test_tf_dataset_on_any_backend():
    pytest.importorskip("tensorflow")
    with sequence_of(3, workers=0) as sequence:
        adapter = data_adapters.get_data_adapter(sequence)
        assert len(list(adapter.get_tf_dataset())) == 3


ROOM = Path(adapters.keras.__file__).parent
# Of the standard library, with a way without it; of named tuples, documented.
OF_OTHERS = {"_register_atexit", "_fields"}


def private_names(path: Path) -> set[str]:
    """The names with an underscore that a module asks objects for, or gives them."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return {name for name in found if re.fullmatch(r"_[a-z]\w*", name)}


def defined_names(path: Path) -> set[str]:
    """The functions, variables and attributes that a module makes."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return found


def test_private_names_are_in_one_file():
    """What other files ask objects for, they define themselves."""
    others = sorted(set(ROOM.glob("*.py")) - {ROOM / "internals.py"})
    ours = {name for path in ROOM.parent.rglob("*.py") for name in defined_names(path)}
    ours -= {"_get_iterator", "_enumerate_iterator", "_interrupted_warning"}  # In internals.py.
    asked = {path.name: sorted(private_names(path) - ours - OF_OTHERS) for path in others}
    assert {name: names for name, names in asked.items() if names} == {}
    assert [path.name for path in others if "keras.src" in path.read_text()] == []


def test_resume_refused_by_old_keras(tmp_path, monkeypatch):
    monkeypatch.setattr(internals, "missing_to_continue", lambda: ["a name"])
    model = built_recorder()
    said = r"3\.9 or newer: Keras .* has no a name"
    with SafeSequence(np.arange(8), 4) as sequence, pytest.raises(ImportError, match=said):
        model.fit(sequence, verbose=0, callbacks=[Resume(tmp_path)])


# --- other packages' patches, as those of autologgers and tuners ---


@pytest.fixture(autouse=True)
def put_back_at_the_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(patches, "_warned", set())
    ours = {name: getattr(keras.Model, name) for name in CALLS}
    of_adapters = data_adapters.get_data_adapter
    yield
    data_adapters.get_data_adapter = of_adapters
    for name, method in ours.items():
        setattr(keras.Model, name, method)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Those of this package: TensorFlow warns of models that it compiles often."""
    ours = [each for each in caplog.records if each.name == "adapters"]
    return [each.getMessage() for each in ours if each.levelname == "WARNING"]


@pytest.mark.parametrize("name", CALLS)
def test_wrapper_lost(name, caplog):
    setattr(keras.Model, name, inspect.unwrap(getattr(keras.Model, name)))
    model = linear()
    x = np.arange(8, dtype="float32").reshape(-1, 1)
    with SafeSequence(x if name == "predict" else (x, x), 2, workers=0) as sequence:
        getattr(model, name)(sequence, verbose=0)
        assert [f"around {name}," in line for line in warnings_of(caplog)] == [True]
        getattr(model, name)(sequence, verbose=0)
    assert len(warnings_of(caplog)) == 1


def test_batches_without_wrapper():
    keras.Model.fit = inspect.unwrap(keras.Model.fit)
    recorder = built_recorder()
    with sequence_of(BATCHES, shuffle=True, workers=2) as sequence:
        recorder.fit(sequence, epochs=2, verbose=0)
        assert sequence.epoch == 2
    assert recorder.trained == epochs_of(sequence_of(BATCHES, shuffle=True, workers=0), 2)


@pytest.mark.one_keras  # Resume needs a newer one than the oldest.
@pytest.mark.parametrize("wraps", [True, False])
def test_patch_around_ours(wraps, tmp_path, caplog):
    recorder, inner, calls = built_recorder(), keras.Model.fit, []

    def fit(self: Any, *arguments: Any, **keywords: Any) -> Any:
        calls.append(1)
        return inner(self, *arguments, **keywords)

    keras.Model.fit = functools.wraps(inner)(fit) if wraps else fit
    with sequence_of(BATCHES, workers=0) as sequence:
        recorder.fit(sequence, epochs=2, callbacks=[Resume(tmp_path)], verbose=0)
    assert (len(recorder.trained), calls, warnings_of(caplog)) == (2 * BATCHES, [1], [])


@pytest.mark.one_keras
def test_resume_without_wrapper(tmp_path):
    keras.Model.fit = inspect.unwrap(keras.Model.fit)
    with sequence_of(BATCHES, workers=0) as sequence, pytest.raises(RuntimeError, match="Resume"):
        built_recorder().fit(sequence, callbacks=[Resume(tmp_path)], verbose=0)


def test_adapter_lost(caplog):
    data_adapters.get_data_adapter = inspect.unwrap(data_adapters.get_data_adapter)
    recorder = built_recorder()
    with sequence_of(BATCHES, workers=0) as sequence:
        recorder.fit(sequence, epochs=2, shuffle=False, verbose=0)
    assert ["restored its get_data_adapter" in line for line in warnings_of(caplog)] == [True]
    assert recorder.trained == 2 * epochs_of(sequence_of(BATCHES, workers=0), 1)


def test_wrapper_and_adapter_lost():
    keras.Model.fit = inspect.unwrap(keras.Model.fit)
    data_adapters.get_data_adapter = inspect.unwrap(data_adapters.get_data_adapter)
    recorder = built_recorder()
    with sequence_of(BATCHES) as sequence:
        recorder.fit(sequence, epochs=2, shuffle=False, verbose=0)
    assert recorder.trained == 2 * epochs_of(sequence_of(BATCHES, workers=0), 1)
