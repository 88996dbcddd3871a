"""The frameworks whose own readers and writers the tests of formats compare with."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np
import pytest


@pytest.fixture(scope="session")
def mx_recordio() -> Any:
    if importlib.util.find_spec("mxnet") is None:
        pytest.skip("MXNet isn't installed")
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        pytest.skip("MXNet 1.9.1 doesn't run on NumPy 2")
    with warnings.catch_warnings():
        # While it is imported, MXNet looks at every name that NumPy ever had, np.mirr for one.
        warnings.simplefilter("ignore", DeprecationWarning)
        from adapters.gluon import import_mxnet

        return import_mxnet().recordio


@pytest.fixture(scope="session")
def tf() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("tensorflow", reason="TensorFlow isn't installed")
