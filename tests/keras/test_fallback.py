"""What holds where our own adapter reads holds where Keras's does, as ``fallback`` has it read.

``test_internals.py`` takes away one name after the other; here, tests of this folder run without
one.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import sys

import pytest

from tests.keras.conftest import CHILD, OtherRun
from tests.keras.recording import BACKEND, VERSION

# What differs on every backend, as docs/keras-internals.md says.
DIFFERENT = [
    # Asks Keras for an adapter by its private name.
    "test_endless.py::test_an_adapter_gives_round_after_round_in_order",
    # TensorFlow names the difference, and not the batch.
    "test_failures.py::test_a_batch_that_tensorflow_can_not_take_is_named",
    # Keras 3.6 takes any tuple for a batch until the model is to be built.
    *(
        ["test_failures.py::test_a_batch_of_four_members_is_refused_by_keras"]
        if VERSION < (3, 7)
        else []
    ),
]
# It prefetches by itself as far as it likes.
DIFFERENT_ON_TENSORFLOW = [
    "test_endless.py::test_its_hooks_are_called_between_the_epochs_of_keras",
    "test_sequence_source.py::"
    "test_steps_that_end_just_before_an_epoch_does_have_not_begun_the_next",
]


# For what the backend doesn't change, the one that starts in the shortest time will do.
QUICK = "jax" if importlib.util.find_spec("jax") else BACKEND
ONCE = [pytest.mark.one_backend, pytest.mark.full]
# Each of these is a process of its own, whose imports take longer than most of its tests.
# Delivery is tested on all backends, and with every Keras.
RUNS = [
    pytest.param(
        ["test_delivery.py"], BACKEND, marks=() if CHILD in os.environ else pytest.mark.full
    ),
    pytest.param(["test_endless.py", "test_sequence_source.py"], BACKEND, marks=ONCE),
    pytest.param(["test_endings.py", "test_interruption.py"], QUICK, marks=ONCE),
    pytest.param(
        ["test_execution.py", "test_failures.py", "test_subclasses.py", "test_validation.py"],
        QUICK,
        marks=ONCE,
    ),
]


@pytest.mark.runs_tests
@pytest.mark.timeout(900)
@pytest.mark.flaky(reruns=0)
@pytest.mark.parametrize(
    ("names", "backend"), RUNS, ids=lambda value: value if isinstance(value, str) else value[0]
)
def test_their_tests_pass_by_public_names_alone(names, backend, tmp_path):
    # Dumps a traceback after a time that is meant for a single test.
    faulthandler.cancel_dump_traceback_later()
    different = DIFFERENT + (DIFFERENT_ON_TENSORFLOW if backend == "tensorflow" else [])
    code, output = OtherRun(sys.executable, backend).outcome(
        tmp_path / "output.txt",
        "--full",
        "-p",
        "tests.keras.without_a_name",
        *(f"--deselect=tests/keras/{other}" for other in different),
        *(f"tests/keras/{name}" for name in names),
    )
    assert code == 0, output[-20000:]
