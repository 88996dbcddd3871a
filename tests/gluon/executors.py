"""Loaders whose batches are made inline, by threads and by processes, and scripts."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from adapters import gluon_loader
from tests.engine.scripts import ended

THREADS = "threads-2"
PROCESSES = "processes-2"
EXECUTORS = ["inline", THREADS, PROCESSES]

every_quick_executor = pytest.mark.parametrize("executor", ["inline", THREADS])
every_kind = pytest.mark.parametrize("executor", ["inline", THREADS, "processes-1"])


def arguments_of(executor: str) -> dict[str, Any]:
    """``"threads-2"``, ``"processes-1"``, ``"inline"`` as what a user asks for."""
    kind, _, count = executor.partition("-")
    return {"num_workers": int(count or 0), "thread_pool": kind == "threads"}


def opened(data: Any, executor: str, batch_size: int | None = 4, **arguments: Any) -> Any:
    """A loader, for a ``with`` statement."""
    return gluon_loader(data, batch_size, **arguments_of(executor), **arguments)


def output_of(text: str) -> list[str]:
    """What a script prints, line by line; it must end well, and say nothing else."""
    process = ended("-W", "error", "-c", textwrap.dedent(text))
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout.splitlines()
