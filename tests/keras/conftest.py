"""The backend of Keras that the tests in this folder run on.

Keras fixes its backend when it is imported, so one process tests one backend: the one that
``KERAS_BACKEND`` names, TensorFlow if it doesn't. CI runs the folder once for each backend, and for
older and newer versions of Keras, without what is marked ``one_backend`` or ``one_keras``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import cloudpickle
import pytest

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# TensorFlow's news about the processor.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

BACKENDS = ("tensorflow", "jax", "torch")

# TensorFlow takes longest.
full_on_tensorflow = (
    pytest.mark.full if os.environ["KERAS_BACKEND"] == "tensorflow" else pytest.mark.one_keras
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "one_backend: no other backend or Keras changes it")
    config.addinivalue_line("markers", "one_keras: no other version of Keras changes it")


@pytest.fixture
def light_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes import Keras without a framework behind it."""
    monkeypatch.setenv("KERAS_BACKEND", "numpy")


@pytest.fixture
def sent_by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    """Send worker processes what the test's file defines, as what a script defines is sent.

    They import no Keras, which takes each of them 2 to 4 seconds.
    """
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)
