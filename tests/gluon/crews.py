"""Loaders whose batches are made inline, by threads and by processes."""

from __future__ import annotations

from typing import Any

import pytest

from adapters import gluon_loader

THREADS = "threads-2"
PROCESSES = "processes-2"
CREWS = ["inline", THREADS, PROCESSES]

# What two processes do in the engine is tested there.
every_crew = pytest.mark.parametrize(
    "crew", ["inline", THREADS, pytest.param(PROCESSES, marks=pytest.mark.full)]
)
every_quick_crew = pytest.mark.parametrize("crew", ["inline", THREADS])
every_kind = pytest.mark.parametrize("crew", ["inline", THREADS, "processes-1"])


def arguments_of(crew: str) -> dict[str, Any]:
    """``"threads-2"``, ``"processes-1"``, ``"inline"`` as what a user asks for."""
    kind, _, count = crew.partition("-")
    return {"num_workers": int(count or 0), "thread_pool": kind == "threads"}


def opened(data: Any, crew: str, batch_size: int | None = 4, **arguments: Any) -> Any:
    """A loader, for a ``with`` statement."""
    return gluon_loader(data, batch_size, **arguments_of(crew), **arguments)
