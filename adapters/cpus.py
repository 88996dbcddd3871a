"""Number of CPUs that this process may use: its affinity and its control group's quota.

Containers are limited by a CPU quota more often than by affinity: `docker run --cpus=2` on a
machine with 64 CPUs. More threads or processes than that only wait for each other.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


def usable_cpus() -> int:
    """Number of CPUs that this process may use, at least 1: affinity and control group."""
    return max(1, min([len(os.sched_getaffinity(0)), *map(math.ceil, _quotas())]))


def _quotas() -> Iterator[float]:
    """CPU quotas of this process's control group and its ancestors."""
    for folder in _folders():
        with contextlib.suppress(OSError, ValueError):  # No such file, or "max": no quota.
            quota, period = map(int, (folder / "cpu.max").read_text().split())  # Version 2.
            yield quota / period
        with contextlib.suppress(OSError, ValueError):
            quota = int((folder / "cpu.cfs_quota_us").read_text())  # Version 1; -1: no quota.
            period = int((folder / "cpu.cfs_period_us").read_text())
            if quota > 0:
                yield quota / period


def _folders() -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for line in _OWN_GROUPS.read_text().splitlines():
            _, controllers, path = line.split(":", 2)  # "0::/a/b", or "4:cpu,cpuacct:/a/b".
            if not controllers or "cpu" in controllers.split(","):
                top = _GROUPS / "cpu" if controllers else _GROUPS
                own = top / path.lstrip("/")
                # A container may see the host's path, with its own group mounted at the top.
                yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(top))
