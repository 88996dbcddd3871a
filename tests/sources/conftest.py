"""TensorFlow, whose readers and writers the tests of features compare with."""

from __future__ import annotations

from typing import Any

import pytest

from tests.records.conftest import tf

__all__ = ["safe_sequence", "tf"]


@pytest.fixture
def safe_sequence(tf: Any) -> Any:
    """``SafeSequence``, whose Keras computes with TensorFlow where nobody says otherwise."""
    from adapters import SafeSequence

    return SafeSequence
