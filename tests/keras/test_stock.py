"""``ADAPTERS_STOCK_KERAS=1``: Keras reads a ``SafeSequence`` by its own adapter, as correctly."""

from __future__ import annotations

import json
from typing import Any

import pytest
from keras.src.trainers import data_adapters

from tests.keras.programs import run_program
from tests.keras.recording import TWO_THREADS, epochs_of, sequence_of

BATCHES = 10


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What the program found out with Keras's own adapter."""
    ended = run_program("stock", environment={"ADAPTERS_STOCK_KERAS": "1"})
    return json.loads(ended.output)


def test_the_variable_leaves_keras_as_it_is(found):
    assert found["adapter"] == "PyDatasetAdapter"


def test_without_the_variable_the_adapter_is_ours():
    adapter = data_adapters.get_data_adapter(sequence_of(1, **TWO_THREADS))
    assert type(adapter).__name__ == "SafeSequenceAdapter"


def test_a_plain_py_dataset_is_left_to_keras():
    from tests.keras.py_datasets import Numbered

    adapter = data_adapters.get_data_adapter(Numbered(2))
    assert type(adapter).__name__ == "PyDatasetAdapter"


def test_each_epoch_has_its_batches(found):
    """Keras permutes them with Python's global generator."""
    epochs = [found["trained"][start : start + BATCHES] for start in (0, 10, 20)]
    expected = epochs_of(sequence_of(BATCHES, shuffle=True), 3)
    assert [sorted(epoch) for epoch in epochs] == [
        sorted(expected[start : start + BATCHES]) for start in (0, 10, 20)
    ]


def test_three_epochs_of_fit_are_three_epochs(found):
    assert found["epoch"] == 3


def test_validation_sees_every_batch_in_order_each_time(found):
    assert found["tested"] == 3 * [list(range(4 * i, 4 * i + 4)) for i in range(BATCHES)]


def test_predict_keeps_the_order(found):
    assert found["predicted"] == list(range(4 * BATCHES))
