"""What goes wrong with ``PyDataset`` and ``workers > 1``, and doesn't inside a ``SafeSequence``.

Every row is done twice, by ``programs/faults.py``, which says what it does: with the plain
``PyDataset``, whose outcome is reported and may be right (another backend, a better Keras, luck),
and with a ``SafeSequence``, whose outcome has to be. Not here: processes that are forked break CUDA
(Keras 20619, keras-io 1838).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import pytest

from tests.keras.programs import Program
from tests.keras.recording import BACKEND
from tests.keras.versions import VALIDATES_ON_WHERE_IT_STOPPED

# A row that takes longer hangs. Reported only, so a slow machine fails no test.
PLAIN_SECONDS = 12
SAFE_SECONDS = 60

RIGHT: dict[str, Any] = {
    # On JAX and PyTorch, batches of the pass that builds the model were served to the next one.
    "fresh_fit": [[0, 0], [0, 0]],
    "fresh_evaluate": [],
    "predict_unbuilt": list(range(20)),
    # Each validation went on where the one before it had stopped.
    "validation_steps": 3 * [0, 1, 2, 3],
    # Keras 20032 and 20123.
    "few_steps_per_epoch": [3, 3, 3, 3],
    "many_steps_per_epoch": [15, 15],
    # Keras 23283.
    "batches_before_on_epoch_begin": 0,
    # On TensorFlow, UnknownError.
    "exception_type": "LookupError",
    "survivors": [0, 0, 0],
    # Forked workers have one seed.
    "draws_of_processes": 20,
    
@pytest.mark.parametrize(
    ("row", "right"),
    [
        pytest.param(row, right, marks=MARKS.get(row, ()), id=row)
        for MARKS in [
            {
                "validation_steps": VALIDATES_ON_WHERE_IT_STOPPED,
                # It seeds NumPy's global generator with a count of its calls, and a build pass of
                # JAX or PyTorch has batches computed in vain.
                "image_data_generator": pytest.mark.xfail(
                    reason="ImageDataGenerator's pixels depend on how often it was asked",
                    strict=False,
                ),
            }
        ]
        for row, right in {**RIGHT, **RIGHT_OF_HANGING}.items()
    ],
)
def test_it_goes_right_inside_a_safe_sequence(
    row: str, right: Any, outcomes: Any, report: Callable[[str], None]
) -> None:
    plain, safe = (found.get(row, "not reached") for found in outcomes)
    told = "as it should be" if plain == right else f"{plain}, should be {right}"
    report(f"Keras {keras.__version__}, {BACKEND}, plain PyDataset, {row}: {told}")
    assert safe == right
