"""Keras's private names: one file knows them, and Keras may move each of them."""

from __future__ import annotations

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
from tests.keras.recording import BACKEND, INLINE, Recorder, built_recorder, samples_of
from tests.keras.samples import BATCH_SIZE

NAMES = [
    "data_adapters",
    "py_dataset_adapter",
    "PyDatasetAdapter",
    "its arguments",
    "_standardize_batch",
    "_get_iterator",
    "its parameters",
    "get_data_adapter",
    *({"tensorflow": ["data_adapter_utils", "get_tensor_spec"]}.get(BACKEND, [])),
    *({"jax": ["JAXEpochIterator"]}.get(BACKEND, [])),
]
BATCHES = 10


@pytest.fixture(scope="module")
def found() -> dict[str, list[Any]]:
    """What became of training without each name."""
    lines = run_program("moved").output.splitlines()
    return {name: rest for name, *rest in map(json.loads, lines)}


def test_nothing_is_missing_in_this_keras():
    assert (internals.missing(), internals.by_own_adapter) == ([], False)


def test_every_name_was_taken_away(found):
    assert list(found) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_training_goes_on_without_a_name_and_one_warning_says_so(found, name):
    warnings, as_it_was, predicted, _, left = found[name]
    # Only what is said of the lag depends on that one.
    needed = name != "JAXEpochIterator"
    assert [("not known" in warning) for warning in warnings] == needed * [True]
    assert (as_it_was, predicted, left) == (needed, list(range(10)), [])


@pytest.mark.parametrize("name", NAMES)
def test_batches_are_read_ahead_without_a_name_in_the_order_of_our_own_adapter(found, name):
    """The source gives none before the next one has been begun."""
    recorder = Recorder()
    with SafeSequence(Numbered(BATCHES), **INLINE) as sequence:
        recorder.fit(sequence, epochs=2, verbose=0)
    assert found[name][3] == recorder.trained


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_comes_once_per_epoch_without_a_name(found, name):
    batches = found[name][3]
    epochs = [samples_of(batches[:BATCHES]), samples_of(batches[BATCHES:])]
    assert epochs == 2 * [list(range(BATCHES * BATCH_SIZE))]


def test_one_file_knows_the_private_names():
    room = Path(adapters.keras.__file__).parent
    knowing = [
        path.name
        for path in room.glob("*.py")
        if re.search(r"keras\.src|_data_shard", path.read_text())
    ]
    assert knowing == ["internals.py"]


def test_resume_is_refused_where_keras_cannot_begin_within_an_epoch(tmp_path, monkeypatch):
    monkeypatch.setattr(internals, "missing_to_continue", lambda: ["a name"])
    model = built_recorder()
    said = r"3\.9 or newer: Keras .* has no a name"
    with SafeSequence(np.arange(8), 4) as sequence, pytest.raises(ImportError, match=said):
        model.fit(sequence, verbose=0, callbacks=[Resume(tmp_path)])
