"""Random generators in user code: whom the search for their names asks, and whom it does not."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from adapters.random_state import generator_name


class Touchy:
    """Warns of each access to its attributes, as ``torch.distributed.reduce_op`` does."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"{name} was accessed")


def test_objects_that_warn_of_each_access_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("touchy")
    module.touchy = Touchy()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "touchy", module)
    generators = iter([np.random.default_rng()])
    assert generator_name(next(generators)) == "a generator (numpy's Generator)"
