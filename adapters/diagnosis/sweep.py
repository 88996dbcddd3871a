"""A sweep over kinds and numbers of workers, for the same source.

Each round measures every setting once, so that a slow moment of the machine doesn't affect only one
of them. Medians are compared; among those within 5% of the best, the setting with the fewest
workers is recommended.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from adapters.arguments import counted
from adapters.batch.plan import Plan
from adapters.diagnosis.front_end import front_end_for
from adapters.diagnosis.report import gain_in_words
from adapters.diagnosis.timing import SKIPPED, Clock, samples_in, undisturbed
from adapters.engine import Engine, Settings, obstacle_to_processes, usable_cpus

ROUNDS = 3
# Share of the best speed from which a setting counts as equally good.
_TIE = 0.95
_MOST_THREADS = 64
_LEAST_BATCHES = 3
_AUTO = "auto"


class Setting(NamedTuple):
    """``"auto"``, ``"inline"``, ``"threads"`` or ``"processes"``, and their number."""

    kind: str
    workers: int

    @property
    def argument(self) -> str:
        """Number of workers as an argument, or ``"auto"`` in quotes."""
        return f'"{_AUTO}"' if self.kind == _AUTO else str(self.workers)


@dataclass(frozen=True)
class Sweep:
    """The result of a sweep.

    Args:
        speeds: Samples/s of each setting in each round, in the order of the table.
        left_out: Reasons why some kinds were not tried.
        samples: Number of samples in a batch.
        call: Makes the arguments to paste into the loader's call, of a kind and workers.
        own: The loader's own setting; None if it can't be swept over.
    """

    speeds: dict[Setting, list[float]]
    left_out: tuple[str, ...]
    samples: int
    call: Callable[[str, str], str]
    own: Setting | None = None

    @property
    def medians(self) -> dict[Setting, float]:
        """Median speed of each setting in samples/s."""
        return {setting: statistics.median(each) for setting, each in self.speeds.items()}

    @property
    def recommended(self) -> Setting:
        """The cheapest of the best settings: ``"auto"`` if it is one, else the fewest workers."""
        medians = self.medians
        least = _TIE * max(medians.values())

        return min(
            (each for each, speed in medians.items() if speed >= least),
            key=lambda each: (each.kind != _AUTO, each.workers, each.kind == "processes"),
        )

    def __str__(self) -> str:
        """The table of settings, those not tried, and the recommended one as a line to paste."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        best, medians = self.recommended, self.medians
        yield f"batches of {self.samples}; medians of {counted(len(self.speeds[best]), 'round')}"
        yield f"{'kind':<12}{'workers':>8}{'samples/s':>13}   range"
        for each, speeds in self.speeds.items():
            count = each.argument.strip('"')
            yield (
                f"{each.kind:<12}{count:>8}{medians[each]:>13,.0f}   "
                f"{min(speeds):,.0f} to {max(speeds):,.0f}"
            )
        yield from (f"not tried: {each}" for each in self.left_out)
        gain = ""
        if self.own is not None:
            gain = f", {gain_in_words(medians[best] / medians[self.own])} over its present setting"
        yield f"recommended, at {medians[best]:,.0f} samples/s of the loader alone{gain}:"
        yield f"  {self.call(best.kind, best.argument)}"


def sweep(
    loader: Any,
    *,
    seconds: float = 1.0,
    rounds: int = ROUNDS,
    progress: Callable[[int, int], Any] = lambda done, total: None,
) -> Sweep:
    """Measure a loader's source and transforms with other workers; ``TypeError`` if it isn't ours.

    Each of ``rounds`` measurements of a setting takes ``seconds``, once its workers have started.
    """
    if (front_end := front_end_for(loader)) is None:
        raise TypeError(
            "loader must be a SafeSequence or what gluon_loader returns, got "
            f"{type(loader).__name__}"
        )
    with undisturbed():
        plan, base = front_end.ablations(loader).whole, front_end.engine(loader).chosen
        settings, left_out = _settings_for(plan)
        own = _setting_of(base)
        if own is not None and own not in settings:
            settings.append(own)
        speeds: dict[Setting, list[float]] = {}
        total = rounds * len(settings)
        for done, setting in enumerate(settings * rounds, 1):
            samples, speed = _measured(plan, base, setting, seconds)
            speeds.setdefault(setting, []).append(speed)
            progress(done, total)
    return Sweep(speeds, left_out, samples, front_end.call, own)


def _setting_of(settings: Settings) -> Setting | None:
    """The loader's own setting; None for other kinds of workers."""
    if settings.kind is not None:
        return None
    if settings.workers == "auto":
        return Setting(_AUTO, 0)
    kind = "processes" if settings.use_multiprocessing else "threads"
    return Setting(kind if settings.workers else "inline", settings.workers)


def _settings_for(plan: Plan) -> tuple[list[Setting], tuple[str, ...]]:
    """The settings to try, and reasons why others aren't tried."""
    cpus = usable_cpus()
    # More threads than CPUs pay if the work waits.
    counts = sorted({1, cpus, 2 * cpus, min(8 * cpus, _MOST_THREADS), _MOST_THREADS})
    settings, left_out = [Setting(_AUTO, 0), Setting("inline", 0)], []
    if plan.one_thread_at_a_time:
        settings.append(Setting("threads", 1))
        unsafe = " and ".join(plan.not_thread_safe)
        left_out.append(f"several threads: {unsafe} is not declared thread_safe")
    elif plan.threads:
        settings += [Setting("threads", count) for count in counts]
    else:
        left_out.append("threads: they would share the random generators that transforms draw from")
    if obstacle := obstacle_to_processes(plan):
        left_out.append(f"processes: {obstacle}")
    else:
        settings += [Setting("processes", count) for count in counts if count <= cpus]
    return settings, tuple(left_out)


def _measured(plan: Plan, base: Settings, setting: Setting, seconds: float) -> tuple[int, float]:
    """Measure a setting; returns the samples in a batch and samples/s."""
    settings = dataclasses.replace(
        base,
        workers="auto" if setting.kind == _AUTO else setting.workers,
        use_multiprocessing=setting.kind == "processes",
        kind=None,
        cluster=None,
    )
    with contextlib.closing(Engine(plan, settings)) as engine:
        stream = engine.stream(0, 0, False)
        first = stream.next()
        clock = Clock(seconds, SKIPPED, lambda: engine.at_full_speed, _LEAST_BATCHES)
        timing = clock.timed(stream.next() for _ in itertools.count())
    samples = samples_in(first)
    return samples, samples / timing.batch_seconds
