"""Ratios with a bar: ours against a peer, in turn, in one process.

A round measures every contestant once. The ratio is that of our median to the peer's best round, so
that noise speaks for the peer. Where nothing more than parity is to be shown, that would be asking
for more: there, our median must not lie below the middle half of the peer's rounds.

In the smoke size, a round is two batches, and no bar is held.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.cpu_seconds import tree_cpu_seconds
from benchmarks.harness.machine import usable_cpus
from benchmarks.harness.results import Column, Experiment
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
    Column("bar", "bar", ".2f"),
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
        unit: Of the numbers.
        bar: The least ratio; 1 for parity.
        contestants: Gives the contestants, ours first; each call of one is a round.
        rounds: How many.
        backend: For Keras; None where no network is trained.
        extra: Not part of the default size: against ourselves with other workers, or long.
        smoke: Whether it runs in the smoke size.
        correct: Says how far our pixels are off, and how many samples of an epoch of ours are lost
            and repeated, under the keys of `COLUMNS`.
    """

    unit: str
    bar: float
    contestants: Callable[[], Mapping[str, Contestant]]
    rounds: int = 5
    backend: str | None = None
    extra: bool = False
    smoke: bool = False
    correct: Callable[[], Mapping[str, float]] | None = None


_short = False


def measure_ratio(
    ratio: Ratio, rounds: int | None, framework: str, short: bool = False
) -> Measurement:
    """Measure all contestants in turn.

    Args:
        ratio: Whom to measure.
        rounds: How many; None for the ratio's own number.
        framework: With version, for the table's head; "" where none is trained with.
        short: One round of as few batches as there can be.
    """
    global _short
    _short = short
    began = time.monotonic()
    contestants = ratio.contestants()
    measured: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(1 if short else rounds or ratio.rounds):
        for name, contestant in contestants.items():
            gc.collect()  # Workers of the one before, who may still be at work.
            measured[name].append(contestant())
    own, *peers = measured
    summary = statistics.median if ratio.bar == 1 else max
    best = max(peers, key=lambda name: summary(measured[name]))
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
        software=f"{own} against {best}, {ratio.unit}" + (f" ({framework})" if framework else ""),
        device="the CPU",
        metrics={
            "ours": ours,
            "ours_least": min(measured[own]),
            "ours_most": max(measured[own]),
            "peer": peer,
            "peer_median": statistics.median(measured[best]),
            "peer_low": float(np.quantile(measured[best], 0.25)),
            "ratio": ours / peer,
            "bar": ratio.bar,
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


def skip_without(session: Session, peer: Any, name: str) -> None:
    """Skip a row whose peer isn't installed, and have the table say so.

    Args:
        session: The command line's choices.
        peer: What it is and whether it is ``missing``.
        name: Of the row.
    """
    if peer.missing:
        why = f"{peer.distribution} isn't installed"
        _experiment(session).notes.append(f"not run, as {why}: {name}")
        pytest.skip(why)


def _experiment(session: Session) -> Experiment:
    return session.experiment(
        "ratios",
        "Ratios: ours against the peer's best round",
        "How many times as fast as the peer at its best?",
    )


def hold(
    session: Session,
    framework: str,
    program: str,
    name: str,
    ratio: Ratio,
    shares: str | None = None,
) -> None:
    """Run a ratio as a row of the table, and fail where its bar is not reached.

    Args:
        session: The command line's choices.
        framework: For the table.
        program: That runs it.
        name: Of the row.
        ratio: To be reached.
        shares: As in `RowSpec`.
    """
    short = session.size == "smoke"
    if short and not ratio.smoke:
        pytest.skip("a ratio of a single short round says nothing")
    if ratio.extra and session.size == "default" and not session.rows:
        pytest.skip("not of the default size: with --full, or named by --rows")
    experiment = _experiment(session)
    experiment.columns = COLUMNS
    spec = RowSpec(
        framework=framework,
        loader=name,
        workers="",
        ours=True,
        program=program,
        options={"rounds": session.repeats, "short": short},
        limit_seconds=LIMIT_SECONDS,
        shares=shares,
    )
    runs = session.sweep(experiment, [spec], repeats=1)
    assert our_failures(runs) == []
    for run in runs if not short else ():
        found = run.metrics
        parity = found["bar"] == 1 and found["ours"] >= found["peer_low"]
        assert parity or found["ratio"] >= found["bar"], run.software
