"""A pytest plugin that sends the test files' own classes to worker processes whole, not by name.

That is what becomes of the classes of a script. By name, each worker would import the test file,
and with it every backend of Keras, or nose, which isn't there.
"""

from __future__ import annotations

import sys

import cloudpickle
import pytest

_SUBSTITUTES = "tests.peers.in_keras"  # Imports more of Keras than what derives from it needs.


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tell cloudpickle, once the files have been imported."""
    modules = {module for item in session.items if (module := getattr(item, "module", None))}
    for module in modules | {sys.modules.get(_SUBSTITUTES)} - {None}:
        cloudpickle.register_pickle_by_value(module)
