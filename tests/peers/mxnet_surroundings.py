"""A pytest plugin with what MXNet 1.9.1's own tests expect around them, and no longer find.

That is nose, which no newer Python than 3.9 imports; a name that NumPy had, which MXNet's functions
for tests use; and sixteen pictures, which the tests would download.
"""

from __future__ import annotations

import functools
import sys
import unittest
from pathlib import Path
from types import ModuleType

import cv2
import numpy as np
import pytest

from adapters.gluon import import_mxnet
from tests.images.pictures import picture

_PICTURES = 16

import_mxnet()
np.bool = bool  # type: ignore[attr-defined]

_tools = ModuleType("nose.tools")
_tools.make_decorator = functools.wraps  # type: ignore[attr-defined]
_tools.assert_raises = unittest.TestCase().assertRaises  # type: ignore[attr-defined]
sys.modules["nose"] = ModuleType("nose")
sys.modules["nose.tools"] = _tools


def pytest_sessionstart() -> None:
    """Put the pictures where the tests look for them before they download any."""
    folder = Path("data/test_images/test_images")
    folder.mkdir(parents=True)
    for number in range(_PICTURES):
        cv2.imwrite(str(folder / f"{number}.jpg"), picture(48 + number, 64))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take the source tree's own MXNet, which isn't built, off the path again."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith("../../../python")]
