"""What goes wrong with ``PyDataset`` and ``workers > 1``, and doesn't inside a ``SafeSequence``.

Every row is done twice, by ``programs/faults.py``, which says what it does: with the plain
``PyDataset``, whose outcome is reported and may be right (another backend, a better Keras, luck),
and with a ``SafeSequence``, whose outcome has to be. Not here: processes that are forked break CUDA
(Keras 20619, keras-io 1838).
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import pytest

from tests.keras.programs import Program
from tests.keras.recording import BACKEND
from tests.keras.versions import VALIDATES_ON_WHERE_IT_STOPPED

# A row that takes longer hangs. With a plain PyDataset that is reported only.
PLAIN_SECONDS = 8
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
    # On JAX.
    "fork_warnings": 0,
}
RIGHT_OF_HANGING: dict[str, Any] = {}
MARKS = {"validation_steps": VALIDATES_ON_WHERE_IT_STOPPED}
# What doesn't depend on the backend, or on TensorFlow only, is done there.
if BACKEND == "tensorflow":
    RIGHT |= {
        # stop_training, a callback's error, a worker's error.
        "survivors": [0, 0, 0],
        # Forked workers have one seed.
        "draws_of_processes": 20,
        # It seeds NumPy's global generator for every batch.
        "image_data_generator": True,
        "order_at_the_defaults_of_fit": [True, True],
    }
    RIGHT_OF_HANGING = {
        # Was skipped, and then one batch too few awaited for ever.
        "none_for_a_batch": "ValueError",
        # Keras 11461.
        "killed_worker": 40,
        # Keras 21001 and 12840.
        "ctrl_c": "KeyboardInterrupt",
    }


@dataclass
class Outcomes:
    """Outcome by row, of programs that run at the same time."""

    plain: list[Program] = field(default_factory=list)
    safe: list[Program] = field(default_factory=list)

    def start(self) -> None:
        """Start the programs; with plain sequences, one per row that may hang."""
        self.plain = [_program("plain", PLAIN_SECONDS, *RIGHT)]
        self.plain += [_program("plain", PLAIN_SECONDS, row) for row in RIGHT_OF_HANGING]
        *others, last = [*RIGHT, *RIGHT_OF_HANGING]
        self.safe = [_program("safe", SAFE_SECONDS, *others), _program("safe", SAFE_SECONDS, last)]
        if last == "ctrl_c":
            for program in (self.plain[-1], self.safe[-1]):
                program.wait_until_ready()
                program.interrupt()

    def collect(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Wait for the programs' ends.

        Once in some 25 times, TensorFlow 2.17 aborts while it asks its iterator for a batch and
        Ctrl-C comes: "free(): invalid next size". That row is then done again.
        """
        plain, safe = _rows(self.plain), _rows(self.safe)
        if "ctrl_c" in RIGHT_OF_HANGING and self.safe[-1].process.returncode == -signal.SIGABRT:
            self.safe.append(_program("safe", SAFE_SECONDS, "ctrl_c"))
            self.safe[-1].wait_until_ready()
            self.safe[-1].interrupt()
            safe |= _rows(self.safe[-1:])
        return plain, safe

    def kill(self) -> None:
        """Leave nothing behind."""
        for program in self.plain + self.safe:
            program.kill()


def _program(kind: str, seconds: int, *rows: str) -> Program:
    return Program("faults", kind, str(seconds), *rows)


def _rows(programs: list[Program]) -> dict[str, Any]:
    ended = [program.end(timeout_seconds=200) for program in programs]
    lines = [line for end in ended for line in end.output.splitlines()]
    return dict(map(json.loads, lines))


@pytest.fixture(scope="module")
def outcomes() -> Any:
    """(plain, safe): outcome by row."""
    found = Outcomes()
    try:
        found.start()
        yield found.collect()
    finally:
        found.kill()


@pytest.mark.one_keras
@pytest.mark.full  # What is right has a test of its own in other files.
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("row", "right"),
    [
        pytest.param(row, right, marks=MARKS.get(row, ()), id=row)
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
