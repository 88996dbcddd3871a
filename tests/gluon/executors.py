"""Loaders whose batches are made inline, by threads and by processes."""

from __future__ import annotations

from typing import Any

import pytest

from adapters import gluon_loader

THREADS = "threads-2"
PROCESSES = "processes-2"
EXECUTORS = ["inline", THREADS, PROCESSES]

# What two processes do in the engine is tested there.
every_executor = pytest.mark.parametrize(
    "executor", ["inline", THREADS, pytest.param(PROCESSES, marks=pytest.mark.full)]
)
every_quick_executor = pytest.mark.parametrize("executor", ["inline", THREADS])
every_kind = pytest.mark.parametrize("executor", ["inline", THREADS, "processes-1"])


def arguments_of(executor: str) -> dict[str, Any]:
    """``"threads-2"``, ``"processes-1"``, ``"inline"`` as what a user asks for."""
    kind, _, count = executor.partition("-")
    return {"num_workers": int(count or 0), "thread_pool": kind == "threads"}


def opened(data: Any, executor: str, batch_size: int | None = 4, **arguments: Any) -> Any:
    """A loader, for a ``with`` statement."""
    return gluon_loader(data, batch_size, **arguments_of(executor), **arguments)
