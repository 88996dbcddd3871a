"""A diagnosis as text: the verdict, doubts about it, and what to change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from adapters.arguments import counted
from adapters.diagnosis.advice import Prediction, changes_for
from adapters.diagnosis.verdict import (
    COLLATION,
    COPY,
    NAMES,
    STEP,
    STORAGE,
    TRANSFORMS,
    Verdict,
    values_of,
)

# Share of the batches that must be ready within the time of a step.
REQUIRED_SHARE = 0.99
_BOTTLENECKS = {
    STORAGE: "storage: fetching the samples",
    TRANSFORMS: "decoding and transforms",
    COLLATION: "collation: making batches of samples",
    COPY: "the copy to the device",
    STEP: "the step itself",
    "loader": "the loader",
}
# Indented in the table.
_PARTS = ("storage", "memory", "collation", "copy")


@dataclass(frozen=True, kw_only=True)
class Diagnosis(Verdict):
    """The result of ``diagnose``: where the time goes and what to change; ``print`` shows a report.

    The arguments are those of ``Verdict``.
    """

    def __str__(self) -> str:
        return "\n".join(_lines_of(self))

    @property
    def advice(self) -> tuple[str, ...]:
        """Advice, most useful first; without numbers on a noisy machine.

        If the bottleneck isn't ``certain``, the only advice is to measure again.
        """
        again = "measure again on an idle machine"
        if not self.certain:
            return (
                f"nothing yet: these figures are too uncertain; {again}, and for longer "
                "(--seconds, or seconds=)",
            )
        if self.noise:
            doubt = f"for what each brings, {again}: these figures are too uncertain"
            return (*(change.text for change in changes_for(self)), doubt)
        return tuple(change.in_words(self.workers.keyword) for change in changes_for(self))

    @property
    def predictions(self) -> tuple[Prediction, ...]:
        """Predicted times after a single change each, fastest first.

        Available even if the bottleneck isn't ``certain``.
        """
        found = (change.prediction for change in changes_for(self))
        return tuple(sorted(filter(None, found), key=lambda each: each.seconds))


def _lines_of(d: Diagnosis) -> Iterator[str]:
    """The report as lines of text: the bottleneck, the figures, the advice."""
    if d.certain:
        network = " over the network" if d.store and d.bottleneck == STORAGE else ""
        yield f"bottleneck: {_BOTTLENECKS[d.bottleneck]}{network}"
        if d.busy_share is not None:
            yield f"the device has work for {d.busy_share:.0%} of the time"
    else:
        reason = "figures contradict each other" if d.contradictions else "the machine is too noisy"
        yield f"bottleneck: can't be told, {reason}"
    yield ""
    rounds = f"   in {counted(len(d.rounds), 'round')}" if d.rounds else ""
    yield f"{f'a batch of {d.samples}':<52}{'ms':>9}{'samples/s':>13}{rounds}"
    for name, label in NAMES.items():
        seconds, spread = getattr(d, name), values_of(d.rounds, name)
        if seconds is None:
            continue
        if name == "storage" and seconds and d.parts.get(STORAGE) == 0.0:
            label += f" (computing {d.fetch_computes:.0%} of it)"
        speed = d.samples / seconds if seconds > 1e-9 else float("inf")
        line = f"{'  ' * (name in _PARTS) + label:<52}{1000 * seconds:>9.3g}{speed:>13,.0f}"
        if spread:
            line += f"   {1000 * min(spread):.3g} to {1000 * max(spread):.3g} ms"
        yield line
    workers = d.workers
    if workers.kind != "unknown":
        yield f"workers: {workers}, on {workers.cpus} CPUs"
    if d.ready_share is not None and d.step_seconds is not None:
        enough = "enough" if d.ready_share >= REQUIRED_SHARE else "too few"
        yield (
            f"ready within t = {1000 * d.step_seconds:.3g} ms: {d.ready_share:.1%} of the batches, "
            f"{enough} (wanted: {REQUIRED_SHARE:.0%})"
        )
    elif d.t is not None:
        enough = "enough" if d.loader <= d.t else "too slow"
        yield f"t = {1000 * d.t:.3g} ms: a batch comes every {1000 * d.loader:.3g} ms, {enough}"
    yield from (f"contradiction: {each}" for each in d.contradictions)
    yield from (f"noise: {each}" for each in d.noise)
    yield ""
    yield "what to change:"
    yield from (f"- {each}" for each in d.advice)
