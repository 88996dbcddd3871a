"""CPU time taken by this process with its workers, by other programs, and left idle.

Linux has the busy time of each CPU in ``/proc/stat``, and the CPU time of each process in
``/proc/<pid>/stat``. On other systems no contention is reported.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
# Fields of a cpu line: user, nice, system, idle, iowait, irq, softirq, steal.
_IDLE_FIELDS, _KNOWN_FIELDS = (3, 4), 8
# Thresholds for ``Contention.others`` and ``Contention.idle``.
_MUCH, _LITTLE_IDLE = 0.15, 0.25


class Contention(NamedTuple):
    """Shares of the time of the CPUs that this process may use, 0 to 1."""

    others: float = 0.0
    """Share taken by other programs, or by the host of a virtual machine."""
    idle: float = 1.0
    """Idle share."""

    @property
    def disturbs(self) -> bool:
        """True if this process had to wait for CPUs used by others."""
        return self.others > _MUCH and self.idle < _LITTLE_IDLE


class Account(NamedTuple):
    """Busy and idle seconds of the CPUs that this process may use, and its own with descendants."""

    busy: float
    idle: float
    own: float

    @classmethod
    def now(cls) -> Account | None:
        """Read the current times; None if the system doesn't report them."""
        try:
            ticks = os.sysconf("SC_CLK_TCK")
            busy, idle = _ticks_of_cpus(os.sched_getaffinity(0))
            own = _ticks_of_tree(os.getpid())
        except (AttributeError, OSError, ValueError, IndexError):
            return None
        return cls(busy / ticks, idle / ticks, own / ticks) if busy + idle else None


def contention_since(before: Account | None) -> Contention:
    """The use of the CPUs since a reading; no contention if the system doesn't report it."""
    now = Account.now()
    if before is None or now is None:
        return Contention()
    busy, idle, own = (later - earlier for earlier, later in zip(before, now))
    whole = max(busy + idle, 1e-9)
    return Contention(max(0.0, busy - own) / whole, max(0.0, idle) / whole)


def _ticks_of_cpus(cpus: set[int]) -> tuple[int, int]:
    """Busy and idle ticks of these CPUs."""
    busy = idle = 0
    for line in _PROC.joinpath("stat").read_text().splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cpus:
            ticks = [int(field) for field in fields[:_KNOWN_FIELDS]]
            waited = sum(ticks[place] for place in _IDLE_FIELDS)
            busy, idle = busy + sum(ticks) - waited, idle + waited
    return busy, idle


def _ticks_of_tree(root: int) -> int:
    """The ticks of a process and its descendants, with those of children that were reaped."""
    parents, ticks = {}, {}
    for entry in filter(str.isdigit, os.listdir(_PROC)):
        try:
            text = _PROC.joinpath(entry, "stat").read_text()
        except OSError:
            continue  # It has ended; its parent has its time.
        # The name in parentheses may contain any character.
        fields = text.rpartition(")")[2].split()
        parents[int(entry)], ticks[int(entry)] = int(fields[1]), sum(map(int, fields[11:15]))
    tree = {root}
    while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return sum(ticks.get(pid, 0) for pid in tree)
