"""Keras's private names: one file knows them, and Keras may move each of them."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adapters.keras
from adapters import SafeSequence
from adapters.keras import Resume, internals
from tests.keras.programs import run_program
from tests.keras.py_datasets import Numbered
from tests.keras.recording import BACKEND, built_recorder, epochs_of, sequence_of

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


@pytest.fixture(scope="module")
def found() -> dict[str, list[Any]]:
    """What became of training without each name."""
    lines = run_program("moved").output.splitlines()
    return {name: rest for name, *rest in map(json.loads, lines)}


def test_nothing_is_missing_in_this_keras():
    assert (internals.missing(), internals.by_keras_adapter()) == ([], False)


def test_every_name_was_taken_away(found):
    assert list(found) == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_keras_is_left_as_it_is_and_one_warning_names_what_moved(found, name):
    warnings, as_it_was, *_ = found[name]
    expected = [] if NAMES[name] is None else [True]
    assert [f"({NAMES[name]})" in warning for warning in warnings] == expected
    assert as_it_was


@pytest.mark.parametrize("name", NAMES)
def test_batches_are_the_same_without_a_name(found, name):
    _, _, predicted, trained, tested, epoch, left = found[name]
    assert predicted == list(range(10))
    assert trained == epochs_of(sequence_of(BATCHES, shuffle=True, workers=0), 2)
    assert tested == 2 * [list(range(4 * i, 4 * i + 4)) for i in range(BATCHES)]
    assert (epoch, left) == (2, [])


def test_the_adapter_of_a_safe_sequence_is_ours_and_that_of_a_py_dataset_keras_s():
    adapters_of = (
        internals.data_adapters.get_data_adapter(x) for x in (sequence_of(1), Numbered(2))
    )
    names = [type(adapter).__name__ for adapter in adapters_of]
    assert names == ["SafeSequenceAdapter", "PyDatasetAdapter"]


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


def test_one_file_knows_the_private_names():
    """What other files ask objects for, they define themselves."""
    others = sorted(set(ROOM.glob("*.py")) - {ROOM / "internals.py"})
    ours = {name for path in ROOM.parent.rglob("*.py") for name in defined_names(path)}
    ours -= {"_get_iterator", "_enumerate_iterator", "_interrupted_warning"}  # In internals.py.
    asked = {path.name: sorted(private_names(path) - ours - OF_OTHERS) for path in others}
    assert {name: names for name, names in asked.items() if names} == {}
    assert [path.name for path in others if "keras.src" in path.read_text()] == []


def test_resume_is_refused_where_keras_cannot_begin_within_an_epoch(tmp_path, monkeypatch):
    monkeypatch.setattr(internals, "missing_to_continue", lambda: ["a name"])
    model = built_recorder()
    said = r"3\.9 or newer: Keras .* has no a name"
    with SafeSequence(np.arange(8), 4) as sequence, pytest.raises(ImportError, match=said):
        model.fit(sequence, verbose=0, callbacks=[Resume(tmp_path)])
