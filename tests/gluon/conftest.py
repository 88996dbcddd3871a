"""Tests of the Gluon half run where MXNet does: it is installed, and NumPy is older than 2.

MXNet 1.9.1 was the last release, has wheels for Python up to 3.11 only, and reads names from NumPy
that NumPy 2 no longer has; elsewhere nothing of this folder is even collected.
"""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest

_FOLDER = Path(__file__).parent
_MOVED = "ignore:Please import `csr_matrix` from the `scipy.sparse` namespace:DeprecationWarning"
_RUNS = importlib.util.find_spec("mxnet") is not None and int(np.__version__.split(".")[0]) < 2

collect_ignore_glob = [] if _RUNS else ["*"]

if _RUNS:
    with warnings.catch_warnings():
        # While it is imported, MXNet looks at every name that NumPy ever had, np.mirr for one.
        warnings.simplefilter("ignore", DeprecationWarning)
        # Before any test file: a plain ``import mxnet`` needs names that NumPy has given up.
        from adapters.gluon import import_mxnet

        import_mxnet()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let MXNet be as old as it is: ``mx.nd.array`` asks SciPy for a name that has moved."""
    for item in items:
        if item.path.is_relative_to(_FOLDER):
            item.add_marker(pytest.mark.filterwarnings(_MOVED))
