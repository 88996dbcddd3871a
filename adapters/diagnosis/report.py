"""A diagnosis as text: the verdict, doubts about it, and advice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from adapters.diagnosis.advice import advice_of
from adapters.diagnosis.doubts import doubts_of
from adapters.diagnosis.figures import (
    COLLATION,
    COPY,
    NAMES,
    STEP,
    STORAGE,
    TRANSFORMS,
    values_of,
)
from adapters.diagnosis.prediction import Prediction, predictions_of
from adapters.diagnosis.verdict import REQUIRED_SHARE, Verdict

_BOTTLENECKS = {
    STORAGE: "storage: fetching the samples",
    TRANSFORMS: "decoding and transforms",
    COLLATION: "collation: making batches of samples",
    COPY: "the copy to the device",
    STEP: "the step itself",
    "loader": "the loader",
}

PARTS = ("storage", "memory", "collation", "copy")


@dataclass(frozen=True)
class Diagnosis(Verdict):
    """The result of ``diagnose``: where the time goes and what to change.

    ``print`` shows a report. The figures are those of ``Verdict``, in seconds per batch.
    """

    def __str__(self) -> str:
        return "\n".join(_lines_of(self))

    @property
    def contradictions(self) -> tuple[str, ...]:
        """Descriptions of figures that contradict each other."""
        return doubts_of(self).contradictions

    @property
    def noise(self) -> tuple[str, ...]:
        """Reasons why the figures are uncertain: other programs, rounds that differ."""
        return doubts_of(self).noise

    @property
    def certain(self) -> bool:
        """True if the figures identify the bottleneck.

        No figures contradict each other and, on a noisy machine, each round taken by itself gives
        the same bottleneck.
        """
        return doubts_of(self).certain

    @property
    def advice(self) -> tuple[str, ...]:
        """Advice, most useful first; if not ``certain``, only to measure again."""
        return tuple(advice_of(self, doubts_of(self)))

    @property
    def predictions(self) -> tuple[Prediction, ...]:
        """Predicted times after a single change each, fastest first.

        Available even if the bottleneck isn't ``certain``.
        """
        return predictions_of(self)


def headline(d: Diagnosis) -> Iterator[str]:
    """The bottleneck and what follows from it, as lines of text."""
    if d.certain:
        network = " over the network" if d.store and d.bottleneck == STORAGE else ""
        yield f"bottleneck: {_BOTTLENECKS[d.bottleneck]}{network}"
    else:
        reason = "figures contradict each other" if d.contradictions else "the machine is too noisy"
        yield f"bottleneck: can't be told, {reason}"
    if d.busy_share is not None and d.certain:
        yield f"the device has work for {d.busy_share:.0%} of the time"
    if d.gain is not None and d.gain > 1.05 and d.certain and not d.noise:
        gain = f"{d.gain:.2g}" if d.gain < 10 else f"{d.gain:,.0f}"
        yield f"without the bottleneck, training would be up to {gain} times as fast"


def _lines_of(d: Diagnosis) -> Iterator[str]:
    """The report as lines of text: the bottleneck, the figures, the advice."""
    yield from headline(d)
    yield ""
    rounds = f"   in {len(d.rounds)} rounds" if d.rounds else ""
    yield f"{f'a batch of {d.samples}':<52}{'ms':>9}{'samples/s':>13}{rounds}"
    for name, label in _labels(d):
        seconds = getattr(d, name)
        if seconds is not None:
            speed = d.samples / seconds if seconds > 1e-9 else float("inf")
            yield f"{label:<52}{1000 * seconds:>9.3g}{speed:>13,.0f}{_range(d, name)}"
    workers = d.workers
    if workers.kind != "unknown":
        found = f"; {workers.finding}" if workers.finding else ""
        yield f"workers: {workers.count} {workers.kind}, on {workers.cpus} CPUs{found}"
    if d.ready_share is not None and d.step_seconds is not None:
        enough = "enough" if d.ready_share >= REQUIRED_SHARE else "too few"
        yield (
            f"ready within t = {1000 * d.step_seconds:.3g} ms: {d.ready_share:.1%} of the batches, "
            f"{enough} (wanted: {REQUIRED_SHARE:.0%})"
        )
    elif d.t is not None:
        enough = "enough" if d.loader <= d.t else "too slow"
        yield f"t = {1000 * d.t:.3g} ms: a batch comes every {1000 * d.loader:.3g} ms, {enough}"
    for each in d.contradictions:
        yield f"contradiction: {each}"
    for each in d.noise:
        yield f"noise: {each}"
    yield ""
    yield "what to change:"
    for each in d.advice:
        yield f"- {each}"


def _labels(d: Diagnosis) -> Iterator[tuple[str, str]]:
    """Names and labels of the figures in the order of the table; labels of parts are indented."""
    for name, label in NAMES.items():
        if name == "storage" and d.storage and d.parts.get(STORAGE) == 0.0:
            label += f" (computing {d.fetch_computes:.0%} of it)"
        yield name, f"  {label}" if name in PARTS else label


def _range(d: Diagnosis, name: str) -> str:
    """The range of a figure, from the fastest round to the slowest."""
    values = values_of(d.rounds, name)
    if not values:
        return ""
    return f"   {1000 * min(values):.3g} to {1000 * max(values):.3g} ms"
