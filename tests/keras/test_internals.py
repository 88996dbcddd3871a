"""Keras's private names, which may move, and other packages that patch ``keras.Model``."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import json
import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras.src.trainers import data_adapters

import adapters
from adapters import SafeSequence
from adapters.keras import Resume, internals, patches
from tests.keras.programs import run_program
from tests.keras.py_datasets import Numbered
from tests.keras.recording import BACKEND, built_recorder, epochs_of, linear, sequence_of

# What moves, and what the warning calls it; none for what the user asks for.
NAMES: dict[str, str | None] = {
    "ADAPTERS_STOCK_KERAS": None,
    "data_adapters": "get_data_adapter",
    "PyDatasetAdapter": "PyDatasetAdapter",
    "its arguments": "PyDatasetAdapter",
    "_get_iterator": "PyDatasetAdapter._get_iterator",
    "its parameters": "get_data_adapter",
}
if BACKEND == "tensorflow":
    NAMES["get_tensor_spec"] = "get_tensor_spec"
BATCHES = 5
CALLS = ("fit", "evaluate", "predict")


def test_names_of_this_keras():
    assert (internals.missing(), internals.by_keras_adapter()) == ([], False)


def test_names_that_have_moved():
    """One warning names each, Keras is left as it is, and the batches are the same."""
    found = {}
    for line in run_program("moved").splitlines():
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


def test_private_names_are_in_one_file():
    """What other files ask objects for, the package defines itself."""
    room = Path(adapters.__file__).parent / "keras"
    others = set(room.parent.rglob("*.py")) - {room / "internals.py"}
    nodes = {path: [*ast.walk(ast.parse(path.read_text()))] for path in others}
    # Of the standard library, with a way without it; of named tuples, documented.
    ours = {"_register_atexit", "_fields"}
    for node in itertools.chain(*nodes.values()):
        if isinstance(node, ast.FunctionDef):
            ours.add(node.name)
        elif isinstance(getattr(node, "ctx", None), ast.Store):
            ours.add(getattr(node, "attr", None) or getattr(node, "id", None))
    for path in room.glob("*.py"):
        for node in nodes.get(path, []):
            name = getattr(node, "attr", None) or getattr(node, "value", None)
            if isinstance(name, str) and re.fullmatch(r"_[a-z]\w*", name):
                assert name in ours, path
        assert path.name == "internals.py" or "keras.src" not in path.read_text()


def test_resume_refused_by_old_keras(tmp_path, monkeypatch):
    monkeypatch.setattr(internals, "missing_to_continue", lambda: ["a name"])
    model = built_recorder()
    said = r"3\.9 or newer: Keras .* has no a name"
    with SafeSequence(np.arange(8), 4) as sequence, pytest.raises(ImportError, match=said):
        model.fit(sequence, verbose=0, callbacks=[Resume(tmp_path)])


# --- other packages' patches, as those of autologgers and tuners ---


@pytest.fixture(autouse=True)
def put_back_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "_warned", set())
    monkeypatch.setattr(data_adapters, "get_data_adapter", data_adapters.get_data_adapter)
    for name in CALLS:
        monkeypatch.setattr(keras.Model, name, getattr(keras.Model, name))


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Those of this package: TensorFlow warns of models that it compiles often."""
    ours = [each for each in caplog.records if each.name == "adapters"]
    return [each.getMessage() for each in ours if each.levelname == "WARNING"]


def fitted(sequence: SafeSequence, **options: Any) -> Any:
    recorder = built_recorder()
    with sequence:
        recorder.fit(sequence, epochs=2, verbose=0, **options)
    return recorder.trained


SHUFFLED = {"shuffle": True, "workers": 2}


@pytest.mark.parametrize("name", CALLS)
def test_wrapper_lost(name, caplog):
    setattr(keras.Model, name, inspect.unwrap(getattr(keras.Model, name)))
    model = linear(run_eagerly=True)
    x = np.arange(8, dtype="float32").reshape(-1, 1)
    with SafeSequence(x if name == "predict" else (x, x), 2, workers=0) as sequence:
        for _ in range(2):
            getattr(model, name)(sequence, verbose=0)
    assert [f"around {name}," in line for line in warnings_of(caplog)] == [True]


def test_batches_without_wrapper():
    keras.Model.fit = inspect.unwrap(keras.Model.fit)
    sequence = sequence_of(BATCHES, **SHUFFLED)
    assert fitted(sequence) == epochs_of(sequence_of(BATCHES, **SHUFFLED), 2)
    assert sequence.epoch == 2


@pytest.mark.one_keras  # Resume needs a newer one than the oldest.
@pytest.mark.parametrize("wraps", [True, False])
def test_patch_around_ours(wraps, tmp_path, caplog):
    inner, calls = keras.Model.fit, []

    def fit(self: Any, *arguments: Any, **keywords: Any) -> Any:
        calls.append(1)
        return inner(self, *arguments, **keywords)

    keras.Model.fit = functools.wraps(inner)(fit) if wraps else fit
    trained = fitted(sequence_of(BATCHES, workers=0), callbacks=[Resume(tmp_path)])
    assert (len(trained), calls, warnings_of(caplog)) == (2 * BATCHES, [1], [])


@pytest.mark.one_keras
def test_resume_without_wrapper(tmp_path):
    keras.Model.fit = inspect.unwrap(keras.Model.fit)
    with pytest.raises(RuntimeError, match="Resume"):
        fitted(sequence_of(BATCHES, workers=0), callbacks=[Resume(tmp_path)])


@pytest.mark.parametrize("fit_lost", [False, True])
def test_adapter_lost(fit_lost, caplog):
    data_adapters.get_data_adapter = inspect.unwrap(data_adapters.get_data_adapter)
    if fit_lost:
        keras.Model.fit = inspect.unwrap(keras.Model.fit)
    trained = fitted(sequence_of(BATCHES), shuffle=False)
    assert trained == 2 * epochs_of(sequence_of(BATCHES, workers=0), 1)
    assert ["restored its get_data_adapter" in line for line in warnings_of(caplog)] == [True]
