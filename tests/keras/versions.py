"""What some versions of Keras can't do with any data set, as marks for the tests that it concerns.

Keras 3.6 keeps the iterator of the pass that builds the model, on JAX and PyTorch.
"""

from __future__ import annotations

import pytest

from adapters.keras import internals
from tests.keras.recording import BACKEND, VERSION


def jax_platform() -> str:
    """What JAX computes on, as Keras asks for it."""
    import jax

    return str(jax.default_backend())


_BUILDS_BY_ITERATING = VERSION < (3, 7) and BACKEND != "tensorflow"

LOSES_THE_FIRST_BATCH = pytest.mark.xfail(
    _BUILDS_BY_ITERATING, reason="Keras 3.6 drops the batch that it built the model with"
)
TAKES_THE_BUILD_FOR_AN_EPOCH = pytest.mark.xfail(
    _BUILDS_BY_ITERATING, reason="Keras 3.6 doesn't end the pass that it built the model with"
)
VALIDATES_ON_WHERE_IT_STOPPED = pytest.mark.xfail(
    VERSION < (3, 7), reason="Keras 3.6 keeps the iterator of validation_data with its steps"
)
WARNS_BEFORE_IT_RAISES = pytest.mark.skipif(
    BACKEND == "tensorflow" and not hasattr(internals.EpochIterator, "_interrupted_warning"),
    reason="before 3.9, Keras warns that the data have ended",
)
_AHEAD_ON_JAX = BACKEND == "jax" and (VERSION < (3, 15) or jax_platform() != "cpu")
READS_A_BATCH_AHEAD = pytest.mark.xfail(
    # On a GPU, batches are there ahead without Keras's help.
    _AHEAD_ON_JAX and jax_platform() == "cpu",
    reason="on a GPU, and before 3.15 on all, Keras asks JAX's iterator for a batch more before "
    "it trains on one",
)
# How many batches Keras has asked for before it trains on one.
BATCHES_AHEAD = 3 if BACKEND == "tensorflow" else int(_AHEAD_ON_JAX)
LOSES_A_LAST_PART = pytest.mark.xfail(
    VERSION < (3, 7) and BACKEND == "tensorflow",
    reason="Keras 3.6 drops the metrics and updates of a last execution with fewer steps",
)
NEEDS_RESUME = pytest.mark.skipif(
    bool(internals.missing_to_continue()), reason="Resume is refused with this Keras"
)
