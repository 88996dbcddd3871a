"""A process of no job, whatever has started the tests."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from adapters import ranks

VARIABLES = ("RANK", "WORLD_SIZE", "TF_CONFIG")
PREFIXES = ("SLURM_", "OMPI_", "HOROVOD_", "DMLC_", "PMI_")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody says anything; warnings are given anew."""
    for name in [*os.environ]:
        if name in VARIABLES or name.startswith(PREFIXES):
            monkeypatch.delenv(name)
    monkeypatch.setattr(ranks, "_warned", set())


@pytest.fixture
def in_torch(monkeypatch: pytest.MonkeyPatch):
    """Makes ``torch.distributed`` say a rank, from now on."""

    def say(rank: int, world: int) -> None:
        module = SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: True,
            get_rank=lambda: rank,
            get_world_size=lambda: world,
        )
        monkeypatch.setitem(sys.modules, "torch.distributed", module)

    return say
