"""TensorFlow, whose readers and writers the tests of features compare with."""

from __future__ import annotations

import pytest

from adapters.images import kernel
from tests.records.conftest import tf

__all__ = ["tf"]


@pytest.fixture(params=["kernel", "numpy"])
def gatherer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features are gathered by the kernel, where it was built, and without it."""
    if request.param == "numpy":
        monkeypatch.setattr(kernel, "load", lambda: None)
    elif kernel.load() is None:
        pytest.skip("the kernel wasn't built")
