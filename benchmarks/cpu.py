"""CPU time of a row, its workers included."""

from __future__ import annotations

import psutil


def tree_cpu_seconds() -> float:
    """User and system time of this process and all below it, ended ones included."""
    this = psutil.Process()
    total = 0.0
    for process in [this, *this.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue  # ended since; its parent has its time
        total += times.user + times.system + times.children_user + times.children_system
    return total
