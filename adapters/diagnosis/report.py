"""A diagnosis for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from adapters.diagnosis import verdict

if TYPE_CHECKING:
    from adapters.diagnosis.verdict import Diagnosis

_NAMES = {
    verdict.STORAGE: "storage: fetching the samples",
    verdict.TRANSFORMS: "decoding and transforms",
    verdict.COLLATION: "collation: making batches of samples",
    verdict.COPY: "the copy to the device",
    verdict.STEP: "the step itself",
    "loader": "the loader",
}


def lines_of(diagnosis: Diagnosis) -> Iterator[str]:
    """The bottleneck, the numbers behind it, what to change."""
    d = diagnosis
    yield f"bottleneck: {_NAMES[d.bottleneck]}"
    if d.busy_share is not None:
        yield f"the accelerator has work for {d.busy_share:.0%} of the time"
    if d.gain is not None and d.gain > 1.05:
        gain = f"{d.gain:.2g}" if d.gain < 10 else f"{d.gain:,.0f}"
        yield f"without the bottleneck, training would be up to {gain} times as fast"
    yield ""
    yield f"{f'a batch of {d.samples}':<52}{'ms':>9}{'samples/s':>13}"
    for name, seconds in _measured(d):
        if seconds is not None:
            speed = d.samples / seconds if seconds > 1e-9 else float("inf")
            yield f"{name:<52}{1000 * seconds:>9.3g}{speed:>13,.0f}"
    workers = d.workers
    if workers.kind != "unknown":
        yield f"workers: {workers.count} {workers.kind}, on {workers.cpus} CPUs"
    if d.ready_share is not None and d.step_seconds is not None:
        enough = "enough" if d.ready_share >= verdict.REQUIRED_SHARE else "too few"
        yield (
            f"ready within t = {1000 * d.step_seconds:.3g} ms: {d.ready_share:.1%} of the batches, "
            f"{enough} (wanted: {verdict.REQUIRED_SHARE:.0%})"
        )
    yield ""
    yield "what to change:"
    for each in d.advice:
        yield f"- {each}"


def _measured(d: Diagnosis) -> Iterator[tuple[str, float | None]]:
    fetch = "  fetching alone"
    if d.storage is not None and d.parts.get(verdict.STORAGE) == 0.0 and d.storage:
        fetch += f" (computing {d.fetch_computes:.0%} of it)"
    yield "the whole, loader and step", d.whole
    yield "the loader alone", d.loader
    yield fetch, d.storage
    yield "  without fetching: samples in memory", d.memory
    yield "  collation alone", d.collation
    yield "one batch, made by one thread", d.alone
    yield "the step, with the same batch again and again", d.same
    yield "  its copy to the device", d.copy
