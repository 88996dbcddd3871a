"""Doubts about a diagnosis: contradictory figures, and a machine that is too busy.

Each rule holds on an idle machine, so figures that break it were disturbed by other work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from adapters.diagnosis.figures import NAMES, values_of
from adapters.diagnosis.verdict import Verdict

# On two idle cores, figures that must be equal differed by up to a third; for short batches, the
# cost of handing one over is added.
_TOLERANCE, _TOLERATED_SECONDS = 1.6, 0.0005
# Loader and step that contend for the interpreter lock take up to this multiple of their sum.
_TURNS = 2.0
# Accepted range from the fastest round to the slowest, as a share of the median.
_STEADY = 0.5
# A spread of the step below this share of the total doesn't matter.
_STEP_MATTERS = 0.25
# Figures that the advice depends on.
_DECIDING = ("whole", "loader", "same", "alone")


@dataclass(frozen=True)
class Doubts:
    """Doubts about a verdict.

    Args:
        contradictions: Descriptions of figures that contradict each other.
        noise: Reasons why the figures are uncertain.
        certain: True if the bottleneck is clear nevertheless.
    """

    contradictions: tuple[str, ...]
    noise: tuple[str, ...]
    certain: bool


def doubts_of(v: Verdict) -> Doubts:
    """Find all doubts about a verdict."""
    contradictions, noise = tuple(_contradictions_of(v)), tuple(_noise_of(v))
    same = not noise or all(each == v.bottleneck for each in _bottlenecks_of_rounds(v))
    return Doubts(contradictions, noise, not contradictions and same)


def _bottlenecks_of_rounds(v: Verdict) -> Iterator[str]:
    """The bottleneck according to each single round."""
    for figures in v.rounds:
        found = dataclasses.asdict(figures)
        yield dataclasses.replace(v, rounds=(), **found).bottleneck


def _contradictions_of(v: Verdict) -> Iterator[str]:
    """Describe figures that contradict each other."""
    yield from _of_workers(v)
    yield from _of_the_whole(v)
    # A gather into new memory may take longer than one into reused memory.
    parts = ("memory", "collation") if v.gathers else ("storage", "memory", "collation")
    for name in parts:
        if _longer(getattr(v, name), v.loader):
            yield f"{_shown(v, name)}, and {_shown(v, 'loader')}, of which that is a part"
    if _longer(v.copy, v.same):
        yield f"{_shown(v, 'copy')}, and {_shown(v, 'same')}, of which that is a part"


def _of_workers(v: Verdict) -> Iterator[str]:
    if v.alone is None or v.workers.kind == "unknown":
        return
    hands = max(1, v.workers.count)
    if _longer(v.alone / hands, v.loader):
        by = f"{hands} {v.workers.kind}" if v.workers.count else "no workers"
        yield f"{_shown(v, 'loader')}, with {by}, and {_shown(v, 'alone')}"
    if not v.workers.count and _longer(v.loader, v.alone):
        yield f"{_shown(v, 'loader')}, with no workers, and {_shown(v, 'alone')}"


def _of_the_whole(v: Verdict) -> Iterator[str]:
    if v.whole is None:
        return
    if _longer(v.same, v.whole):
        yield f"{_shown(v, 'same')}, and {_shown(v, 'whole')}, of which that is a part"
    # A replacement may be faster or slower than the original loader.
    if v.replaced:
        return
    if _longer(v.loader, v.whole):
        yield f"{_shown(v, 'loader')}, and {_shown(v, 'whole')}, of which that is a part"
    if v.same is not None and v.whole > _TURNS * (v.loader + v.same) + _TOLERATED_SECONDS:
        yield f"{_shown(v, 'whole')}, {_shown(v, 'loader')}, and {_shown(v, 'same')}"


def _noise_of(v: Verdict) -> Iterator[str]:
    """Describe why the figures are uncertain."""
    if v.contention.disturbs:
        yield (
            f"other programs took {v.contention.others:.0%} of the CPU time meanwhile, and "
            f"{v.contention.idle:.0%} was left"
        )
    for name in _DECIDING:
        values = values_of(v.rounds, name)
        if not values:
            continue
        spread = max(values) - min(values)
        if name == "same" and v.whole is not None and spread < _STEP_MATTERS * v.whole:
            continue
        if spread > _TOLERATED_SECONDS and spread > _STEADY * sorted(values)[len(values) // 2]:
            least, most = 1000 * min(values), 1000 * max(values)
            yield f"{NAMES[name]} took {least:.3g} to {most:.3g} ms, from round to round"


def _longer(part: float | None, whole: float | None) -> bool:
    if part is None or whole is None:
        return False
    return part > _TOLERANCE * whole + _TOLERATED_SECONDS


def _shown(v: Verdict, name: str) -> str:
    return f"{NAMES[name]} takes {1000 * getattr(v, name):.3g} ms"
