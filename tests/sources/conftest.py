"""TensorFlow, whose readers and writers the tests of features compare with."""

from __future__ import annotations

from tests.records.conftest import tf

__all__ = ["tf"]
