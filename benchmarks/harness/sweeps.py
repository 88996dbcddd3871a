"""A sweep: the rows of an experiment, one fresh process after the other."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.harness.backends import Backends, find_backends
from benchmarks.harness.processes import run_row
from benchmarks.harness.reference import Reference, Verdict
from benchmarks.harness.results import Experiment, Run

ALTERNATIVES = "|"  # Between names of rows, of which any will do.


@dataclass(frozen=True)
class RowSpec:
    """What one row runs.

    Args:
        framework: Groups rows: "Keras", "Gluon".
        loader: The contestant.
        workers: How many, or "auto".
        ours: Whether the loader is this package's: its failures fail the test.
        program: The module whose `measure` the row calls.
        options: Its argument, besides `loader`, `workers`, `cpus` and `seed`, which are added;
            survives JSON.
        limit_seconds: From the row's start to its result.
        cpus: How many of the usable processors the row may use; None for all.
        trains_keras: Whether it trains a network in Keras: then there is one for each of the
            session's backends.
        backend: That backend's name; None leaves it to the environment and to Keras.
    """

    framework: str
    loader: str
    workers: int | str
    ours: bool
    program: str
    options: Mapping[str, Any]
    limit_seconds: float
    cpus: int | None = None
    trains_keras: bool = False
    backend: str | None = None

    @property
    def name(self) -> str:
        """What `--rows` is looked for in."""
        return f"{self.framework} {self.loader} workers {self.workers}".rstrip()


@dataclass
class Session:
    """What was asked for on the command line, and the experiments that ran so far.

    Args:
        size: "smoke", "default" or "full".
        repeats: How many times each row runs; None leaves it to the experiment.
        rows: Only rows whose name contains this, whatever the case; if it is a row's whole name,
            that row only; several such, with ``|`` between them.
        out: The folder for JSON and figures.
        data_dir: Where to look for data sets first.
        uncaptured: Gives a context in which output reaches the terminal.
        experiments: By name; filled by the tests.
        least_repeats: How many times each row runs at least, if the command line leaves it open.
        long: Also what takes more than the default's ten minutes.
        suspects: Framework, loader and workers of those rows of an experiment that seem to have
            become slower: they run as often once more.
        after_row: Called after each row.
        reference: What was measured on the reference machines, and the bars.
    """

    size: str
    repeats: int | None
    rows: str
    out: Path
    data_dir: Path | None
    uncaptured: Callable[[], AbstractContextManager[None]]
    experiments: dict[str, Experiment] = field(default_factory=dict)
    least_repeats: int = 1
    long: bool = False
    suspects: Callable[[Experiment], set[tuple[str, str, int | str]]] = lambda experiment: set()
    after_row: Callable[[], None] = lambda: None
    reference: Reference = field(default_factory=Reference.read)

    @property
    def all_rows(self) -> bool:
        """Whether rows run that the default leaves out."""
        return self.long or bool(self.rows) or self.size != "default"

    def judge(
        self, experiment: Experiment, row: str, here: float, parity: bool = False, of: str = ""
    ) -> None:
        """Hold a figure against the reference's, if it has that row; the smoke size says nothing.

        Args:
            experiment: Whose row it is.
            row: As `reference.json` calls it.
            here: The figure.
            parity: Whether it reaches a bar of 1 all the same, as it is within the noise.
            of: Tells figures of one row apart.
        """
        verdict = self.reference.judge(row, here, parity)
        if verdict is not None and self.size != "smoke":
            name = f"{row}, {of}" if of else row
            experiment.verdicts[name] = replace(verdict, row=name)

    @property
    def ran(self) -> bool:
        """Whether any row did."""
        return any(each.runs for each in self.experiments.values())

    @property
    def verdicts(self) -> list[Verdict]:
        """All that was held against the reference."""
        return [each for one in self.experiments.values() for each in one.verdicts.values()]

    @property
    def missed(self) -> list[Verdict]:
        """Bars that were missed."""
        return [each for each in self.verdicts if each.missed]

    @cached_property
    def backends(self) -> Backends:
        """Those of Keras that rows train with; looked for when they are first asked for."""
        with self.uncaptured():
            return find_backends()

    def experiment(self, name: str, title: str, asks: str = "") -> Experiment:
        """The experiment of that name: the same one for every test that adds rows to it."""
        made = Experiment(name, title, size=self.size, asks=asks)
        return self.experiments.setdefault(name, made)

    def command(self, spec: RowSpec) -> str:
        """What to type in order to run this row again, from the repository's root."""
        # The test, as others of the same file may have a row of that name; then "(call)".
        test = os.environ.get("PYTEST_CURRENT_TEST", "benchmarks (call)").rpartition(" (")[0]
        words = ["pytest", test, "--rows", spec.name]
        if self.size != "default":
            words.append(f"--{self.size}")
        if self.repeats is not None:
            words += ["--repeats", str(self.repeats)]
        elif self.least_repeats > 1:
            words += ["--repeats", str(self.least_repeats)]
        if self.data_dir is not None:
            words += ["--data-dir", str(self.data_dir)]
        backend = os.environ.get("KERAS_BACKEND")
        setting = f"KERAS_BACKEND={shlex.quote(backend)} " if backend else ""
        return setting + shlex.join(words)

    def sweep(self, experiment: Experiment, specs: Iterable[RowSpec], repeats: int) -> list[Run]:
        """Run the rows that were asked for; the JSON is rewritten after each.

        Args:
            experiment: Where the runs go.
            specs: The rows.
            repeats: How many times each, unless the command line says otherwise. The rounds follow
                each other, so that a slow minute of the machine doesn't fall on one row alone.
                Each has a seed of its own, from 1.

        Returns:
            The runs of this sweep, failed ones too.
        """
        chosen = self._chosen([row for spec in specs for row in self._on_backends(spec)])
        if any(spec.trains_keras for spec in chosen):
            experiment.note(*self.backends.notes())
        times = max(repeats, self.least_repeats) if self.repeats is None else self.repeats
        seeds = range(1, times + 1)
        runs = self._run(experiment, chosen, seeds)
        suspects = self.suspects(experiment)
        again = [spec for spec in chosen if (spec.framework, spec.loader, spec.workers) in suspects]
        return runs + self._run(experiment, again, [times + seed for seed in seeds])

    def _run(self, experiment: Experiment, specs: list[RowSpec], seeds: Sequence[int]) -> list[Run]:
        """Each row with each seed."""
        runs = []
        planned = [(spec, seed) for seed in seeds for spec in specs]
        with (
            self.uncaptured(),
            # None: no bar if the output isn't a terminal.
            tqdm(planned, desc=experiment.name, unit="row", file=sys.stderr, disable=None) as bar,
        ):
            for spec, seed in bar:
                bar.set_postfix_str(spec.name)
                own = {"loader": spec.loader, "workers": spec.workers, "cpus": spec.cpus}
                options = {**spec.options, **own, "seed": seed}
                outcome = run_row(spec.program, options, spec.limit_seconds, spec.backend)
                who = spec.framework, spec.loader, spec.workers, spec.ours
                run = Run.of(*who, outcome, self.command(spec))
                runs.append(run)
                experiment.runs.append(run)
                experiment.write_json(self.out)
                self.after_row()
        return runs

    def _on_backends(self, spec: RowSpec) -> list[RowSpec]:
        """Of a row that trains in Keras one for each backend, which names it if there are more."""
        if not spec.trains_keras:
            return [spec]
        chosen = self.backends.chosen
        if len(chosen) == 1:
            return [replace(spec, backend=chosen[0].name)]
        return [
            replace(spec, framework=f"{spec.framework} on {each.title}", backend=each.name)
            for each in chosen
        ]

    def _chosen(self, specs: list[RowSpec]) -> list[RowSpec]:
        """The rows that were asked for: "workers 1" is part of "workers 16", too."""
        found: set[int] = set()
        for wanted in self.rows.lower().split(ALTERNATIVES):
            names = {place: spec.name.lower() for place, spec in enumerate(specs)}
            named = {place for place, name in names.items() if name == wanted.strip()}
            found |= named or {place for place, name in names.items() if wanted in name}
        return [specs[place] for place in sorted(found)]


def our_failures(runs: Iterable[Run]) -> list[str]:
    """What went wrong in rows of this package's loaders, with the end of their output."""
    return [
        f"{run.name}: {run.failure}\n{run.log}"
        for run in runs
        if run.ours and run.failure is not None
    ]
