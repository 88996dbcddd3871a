"""Ratios: ours against a peer, in turn, in one process.

A round measures every contestant once. The ratio is that of our median to the peer's best round, so
that noise speaks for the peer. If parity is all there is to be had, that would be asking for more:
a bar of 1 is also reached if our median isn't below the middle half of the peer's rounds.

In the smoke size, a round is two batches.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.cpu_seconds import tree_cpu_seconds
from benchmarks.harness.installed import Peer
from benchmarks.harness.machine import usable_cpus
from benchmarks.harness.results import Column
from benchmarks.harness.row import Measurement
from benchmarks.harness.sweeps import RowSpec, Session, our_failures

COLUMNS = (
    Column("ours", "ours", ",.4g"),
    Column("ours_least", "least", ",.4g"),
    Column("ours_most", "most", ",.4g"),
    Column("peer", "peer's best", ",.4g"),
    Column("peer_median", "median", ",.4g"),
    Column("peer_low", "lower quartile", ",.4g"),
    Column("ratio", "ratio", ".2f"),
    Column("reference", "reference", ".2f"),
    Column("ours_per_core", "ours per core", ",.4g"),
    Column("ours_per_cpu_second", "per CPU s", ",.4g"),
    Column("peer_per_cpu_second", "peer's", ",.4g"),
    Column("pixels_off", "pixels off", ".2f"),
    Column("worst_off", "worst", ".2f"),
    Column("lost", "lost", ",.0f"),
    Column("repeated", "repeated", ",.0f"),
)
BATCH = 64
DIGITS = 60_000
LIMIT_SECONDS = 240

SMOKE_BATCHES = 2
MOST_SKIPPED = 2000  # Batches, until what they start is there.

Contestant = Callable[[], float]


class Pace(float):
    """Amount per second, which also knows what a second of processor time was worth.

    Args:
        per_second: Of wall time.
        per_cpu_second: Of processor time, that of worker processes included.
    """

    per_cpu_second: float

    def __new__(cls, per_second: float, per_cpu_second: float) -> Pace:
        """A number with another one beside it."""
        made = super().__new__(cls, per_second)
        made.per_cpu_second = per_cpu_second
        return made


@dataclass(frozen=True)
class Ratio:
    """One row of the table.

    Args:
        peer: Whom ours is compared with.
        unit: Of the numbers.
        contestants: Gives the contestants, ours first; each call of one is a round.
        rounds: How many.
        backend: For Keras; None where no network is trained.
        default: Whether it is one of those that README shows, which the default runs.
        data: Find what it reads, which is made now if it isn't in the cache.
        smoke: Whether it runs in the smoke size.
        correct: Says how far our pixels are off, and how many samples of an epoch of ours are lost
            and repeated, under the keys of `COLUMNS`.
    """

    peer: Peer
    unit: str
    contestants: Callable[[], Mapping[str, Contestant]]
    rounds: int = 5
    backend: str | None = None
    default: bool = False
    data: tuple[Callable[[], object], ...] = ()
    smoke: bool = False
    correct: Callable[[], Mapping[str, float]] | None = None


_short = False


def measure_ratio(ratio: Ratio, options: Mapping[str, Any]) -> Measurement:
    """Measure all contestants in turn.

    Args:
        ratio: Whom to measure.
        options: `rounds`: how many, None for the ratio's own number; `short`: one round of as few
            batches as there can be.
    """
    global _short
    _short = options["short"]
    os.environ["KERAS_BACKEND"] = ratio.backend or "jax"  # Which starts fastest.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    began = time.monotonic()
    contestants = ratio.contestants()
    measured: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(1 if _short else options["rounds"] or ratio.rounds):
        for name, contestant in contestants.items():
            gc.collect()  # Workers of the one before, who may still be at work.
            measured[name].append(contestant())
    own, *peers = measured
    best = max(peers, key=lambda name: max(measured[name]))
    ours, peer = statistics.median(measured[own]), max(measured[best])
    about: dict[str, float] = {}
    paces = [[each for each in measured[name] if isinstance(each, Pace)] for name in (own, best)]
    if all(paces):
        about["ours_per_core"] = ours / usable_cpus()
        for who, found in zip(("ours", "peer"), paces):
            about[f"{who}_per_cpu_second"] = statistics.median(
                each.per_cpu_second for each in found
            )
    if ratio.correct is not None:
        about |= ratio.correct()
    return Measurement(
        software=f"{own} against {best}, {ratio.unit} ({ratio.peer.version})",
        device="the CPU",
        metrics={
            "ours": ours,
            "ours_least": min(measured[own]),
            "ours_most": max(measured[own]),
            "peer": peer,
            "peer_median": statistics.median(measured[best]),
            "peer_low": float(np.quantile(measured[best], 0.25)),
            "ratio": ours / peer,
            **about,
        },
        window=(began, time.monotonic()),
    )


def pace(
    batches: Iterator[Any],
    skipped: int,
    counted: int,
    amount: Callable[[Any], float],
    is_there: Callable[[], bool] = lambda: True,
) -> Pace:
    """Amount per second, once the first batches have started what they start, and it is there."""
    if _short:
        skipped, counted = min(skipped, 1), min(counted, SMOKE_BATCHES)
    for _ in range(skipped):
        next(batches)
    for _ in range(MOST_SKIPPED):
        if _short or is_there():
            break
        next(batches)
    cpu_started, total, started = tree_cpu_seconds(), 0.0, time.perf_counter()
    for _ in range(counted):
        total += amount(next(batches))
    per_second = total / (time.perf_counter() - started)
    # A tick of that clock is the least that it tells.
    return Pace(per_second, total / max(tree_cpu_seconds() - cpu_started, 0.01))


def endless(batches: Any) -> Iterator[Any]:
    """Pass after pass."""
    while True:
        yield from batches


def run_ratio(session: Session, program: str, name: str, ratio: Ratio) -> None:
    """Run a ratio as a row of the table.

    Args:
        session: The command line's choices.
        program: That runs it.
        name: Of the row.
        ratio: To be measured.
    """
    short = session.size == "smoke"
    if short and not ratio.smoke:
        pytest.skip("a ratio of a single short round says nothing")
    experiment = session.experiment(
        "ratios",
        "Ratios: ours against the peer's best round",
        "How many times as fast as the peer at its best?",
    )
    experiment.columns = COLUMNS
    if ratio.peer.missing:
        why = f"{ratio.peer.distribution} isn't installed"
        experiment.note(f"not run, as {why}: {name}")
        pytest.skip(why)
    with session.uncaptured():
        for find in ratio.data:
            find()
    spec = RowSpec(
        framework=ratio.peer.framework,
        loader=name,
        workers="",
        ours=True,
        program=program,
        options={"rounds": session.repeats, "short": short},
        limit_seconds=LIMIT_SECONDS,
    )
    runs = session.sweep(experiment, [spec], repeats=1)
    assert our_failures(runs) == []
    for run in runs:
        found, row = run.metrics, f"{ratio.peer.framework} {name}"
        session.judge(experiment, row, found["ratio"], found["ours"] >= found["peer_low"])
        reference = experiment.verdicts[row].reference if row in experiment.verdicts else None
        if reference is not None:
            found["reference"] = reference
        wrong = {key: found[key] for key in ("lost", "repeated") if found.get(key)}
        assert wrong == {}, f"{run.name}: samples of an epoch"
