"""What speaks against a diagnosis: figures that can't all be true, and a machine that is too busy.

Every rule holds on any machine that does one thing at a time, so what breaks it was measured while
something else went on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from adapters.diagnosis.figures import NAMES, values_of

if TYPE_CHECKING:
    from adapters.diagnosis.verdict import Diagnosis

# On two idle cores, figures that must be equal differed by up to a third; of short batches, what
# handing one over takes comes on top.
_TOLERANCE, _TOLERATED_SECONDS = 1.6, 0.0005
# Loader and step that take turns with the interpreter lock: up to so many times their sum.
_TURNS = 2.0
# From the quickest round to the slowest, as a share of the median.
_STEADY = 0.5
# Whose spread makes the figures behind the advice uncertain.
_DECIDING = ("whole", "loader", "same", "alone")


def contradictions_of(d: Diagnosis) -> Iterator[str]:
    """Pairs of figures that exclude each other, in words."""
    yield from _of_workers(d)
    yield from _of_the_whole(d)
    # A gather into new memory may take longer than one into memory that is used again.
    parts = ("memory", "collation") if d.gathers else ("storage", "memory", "collation")
    for name in parts:
        if _longer(getattr(d, name), d.loader):
            yield f"{_shown(d, name)}, and {_shown(d, 'loader')}, of which that is a part"
    if _longer(d.copy, d.same):
        yield f"{_shown(d, 'copy')}, and {_shown(d, 'same')}, of which that is a part"


def _of_workers(d: Diagnosis) -> Iterator[str]:
    if d.alone is None or d.workers.kind == "unknown":
        return
    hands = max(1, d.workers.count)
    if _longer(d.alone / hands, d.loader):
        by = f"{hands} {d.workers.kind}" if d.workers.count else "no workers"
        yield f"{_shown(d, 'loader')}, with {by}, and {_shown(d, 'alone')}"
    if not d.workers.count and _longer(d.loader, d.alone):
        yield f"{_shown(d, 'loader')}, with no workers, and {_shown(d, 'alone')}"


def _of_the_whole(d: Diagnosis) -> Iterator[str]:
    if d.whole is None:
        return
    if _longer(d.same, d.whole):
        yield f"{_shown(d, 'same')}, and {_shown(d, 'whole')}, of which that is a part"
    # What was examined in the place of a loader may be faster, or slower.
    if d.replaced:
        return
    if _longer(d.loader, d.whole):
        yield f"{_shown(d, 'loader')}, and {_shown(d, 'whole')}, of which that is a part"
    if d.same is not None and d.whole > _TURNS * (d.loader + d.same) + _TOLERATED_SECONDS:
        yield f"{_shown(d, 'whole')}, {_shown(d, 'loader')}, and {_shown(d, 'same')}"


def noise_of(d: Diagnosis) -> Iterator[str]:
    """What made the figures uncertain, in words."""
    if d.contention.disturbs:
        yield (
            f"other programs took {d.contention.others:.0%} of the CPU time meanwhile, and "
            f"{d.contention.idle:.0%} was left"
        )
    for name in _DECIDING:
        values = values_of(d.rounds, name)
        if not values:
            continue
        spread = max(values) - min(values)
        if spread > _TOLERATED_SECONDS and spread > _STEADY * sorted(values)[len(values) // 2]:
            least, most = 1000 * min(values), 1000 * max(values)
            yield f"{NAMES[name]} took {least:.3g} to {most:.3g} ms, from round to round"


def _longer(part: float | None, whole: float | None) -> bool:
    if part is None or whole is None:
        return False
    return part > _TOLERANCE * whole + _TOLERATED_SECONDS


def _shown(d: Diagnosis, name: str) -> str:
    return f"{NAMES[name]} takes {1000 * getattr(d, name):.3g} ms"
