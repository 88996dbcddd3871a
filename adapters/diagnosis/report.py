"""A diagnosis for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from adapters.diagnosis import verdict
from adapters.diagnosis.figures import (
    COLLATION,
    COPY,
    NAMES,
    STEP,
    STORAGE,
    TRANSFORMS,
    values_of,
)

if TYPE_CHECKING:
    from adapters.diagnosis.verdict import Diagnosis

_BOTTLENECKS = {
    STORAGE: "storage: fetching the samples",
    TRANSFORMS: "decoding and transforms",
    COLLATION: "collation: making batches of samples",
    COPY: "the copy to the device",
    STEP: "the step itself",
    "loader": "the loader",
}

_PARTS = ("storage", "memory", "collation", "copy")


def lines_of(diagnosis: Diagnosis) -> Iterator[str]:
    """The bottleneck, the numbers behind it, what to change."""
    d = diagnosis
    if d.certain:
        yield f"bottleneck: {_BOTTLENECKS[d.bottleneck]}"
    else:
        reason = "figures contradict each other" if d.contradictions else "the machine is too noisy"
        yield f"bottleneck: can't be told, {reason}"
    if d.busy_share is not None and d.certain:
        yield f"the accelerator has work for {d.busy_share:.0%} of the time"
    if d.gain is not None and d.gain > 1.05 and d.certain and not d.noise:
        gain = f"{d.gain:.2g}" if d.gain < 10 else f"{d.gain:,.0f}"
        yield f"without the bottleneck, training would be up to {gain} times as fast"
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
        yield f"workers: {workers.count} {workers.kind}, on {workers.cpus} CPUs"
    if d.ready_share is not None and d.step_seconds is not None:
        enough = "enough" if d.ready_share >= verdict.REQUIRED_SHARE else "too few"
        yield (
            f"ready within t = {1000 * d.step_seconds:.3g} ms: {d.ready_share:.1%} of the batches, "
            f"{enough} (wanted: {verdict.REQUIRED_SHARE:.0%})"
        )
    for each in d.contradictions:
        yield f"contradiction: {each}"
    for each in d.noise:
        yield f"noise: {each}"
    yield ""
    yield "what to change:"
    for each in d.advice:
        yield f"- {each}"


def _labels(d: Diagnosis) -> Iterator[tuple[str, str]]:
    """The figures in the order of the table; parts stand below what they are a part of."""
    for name, label in NAMES.items():
        if name == "storage" and d.storage and d.parts.get(STORAGE) == 0.0:
            label += f" (computing {d.fetch_computes:.0%} of it)"
        yield name, f"  {label}" if name in _PARTS else label


def _range(d: Diagnosis, name: str) -> str:
    """From the quickest round to the slowest."""
    values = values_of(d.rounds, name)
    if not values:
        return ""
    return f"   {1000 * min(values):.3g} to {1000 * max(values):.3g} ms"
