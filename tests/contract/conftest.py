"""Both front ends: Keras on TensorFlow, or on what ``KERAS_BACKEND`` says, and MXNet if it runs."""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path

import pytest

from tests.contract.front_ends import MXNET_RUNS, NEEDS_MXNET

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_FOLDER = Path(__file__).parent
_MOVED = "ignore:Please import `csr_matrix` from the `scipy.sparse` namespace:DeprecationWarning"

if MXNET_RUNS:
    with warnings.catch_warnings():
        # While it is imported, MXNet looks at every name that NumPy ever had.
        warnings.simplefilter("ignore", DeprecationWarning)
        from adapters.gluon import import_mxnet

        import_mxnet()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip Gluon where MXNet doesn't run; let MXNet ask SciPy for a name that has moved."""
    for item in items:
        if item.path.is_relative_to(_FOLDER):
            item.add_marker(pytest.mark.filterwarnings(_MOVED))
            callspec = getattr(item, "callspec", None)
            if callspec is not None and callspec.params.get("front_end") == "gluon":
                item.add_marker(NEEDS_MXNET)


@pytest.fixture(params=["keras", "gluon"])
def front_end(request: pytest.FixtureRequest) -> str:
    """Both of them, for a test that doesn't say which."""
    return request.param


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "adapters")
    return caplog
