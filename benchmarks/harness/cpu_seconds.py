"""CPU time of a row, its workers included."""

from __future__ import annotations

from collections.abc import Iterable

import psutil


def tree_cpu_seconds() -> float:
    """User and system time of this process and all below it, ended ones included."""
    this = psutil.Process()
    return cpu_seconds_of([this, *this.children(recursive=True)])


def cpu_seconds_of(processes: Iterable[psutil.Process]) -> float:
    """User and system time of these, and of those below them that have ended."""
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue  # ended since; its parent has its time
        total += times.user + times.system + times.children_user + times.children_system
    return total
