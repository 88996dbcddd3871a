"""A session as one HTML page that asks for nothing outside of itself.

Everything that isn't written here, names, notes, logs, goes through `html.escape`, as `elements.py`
does that to text. The summary comes first; each experiment has a caption of one line, its table and
its figure, and beneath them what one must know to read them.
"""

from __future__ import annotations

import base64
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.harness.comparison import HEADS, SLOWER, Comparison, cells
from benchmarks.harness.figures import panels_of
from benchmarks.harness.markup import Html, details, document, element, listed, table
from benchmarks.harness.overview import anchor, overview
from benchmarks.harness.results import Column, Experiment, Row, is_reference
from benchmarks.harness.tables import MISSING, failed_rows, measured_columns, number, spread

REPORT = "report.html"
RUNNING = "Rows are still running: this page has those that have ended, and loads itself again."
REFRESH_SECONDS = 5  # While rows are still to come.
STYLE = Path(__file__).with_name("report.css")


@dataclass(frozen=True)
class Report:
    """What the page shows.

    Args:
        machine: As `describe_machine` says it.
        experiments: In the page's order.
        figures: Their figures, by name; those without one are missing.
        comparison: With earlier results, where one was asked for.
        failed: Tests that failed, and why.
        skipped: Why tests were skipped, and which.
        running: Whether rows are still to come.
    """

    machine: Mapping[str, Any]
    experiments: Sequence[Experiment]
    figures: Mapping[str, Path] = field(default_factory=dict)
    comparison: Comparison | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, Sequence[str]] = field(default_factory=dict)
    running: bool = False


def write_report(report: Report, folder: Path) -> Path:
    """Write `<folder>/report.html`, which appears whole; returns the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / REPORT
    unfinished = folder / f"{REPORT}.unfinished"
    # Names of files may hold what isn't Unicode.
    unfinished.write_text(page(report), encoding="utf-8", errors="backslashreplace")
    os.replace(unfinished, path)
    return path


def page(report: Report) -> str:
    """The page's text."""
    body = [
        element("h1", "Benchmarks of the loaders"),
        *([element("p", RUNNING, class_="caption")] if report.running else []),
        overview(report.experiments),
        _machine(report.machine),
        _contents(report),
        *([_comparison(report.comparison)] if report.comparison else []),
        *(_experiment(each, report.figures.get(each.name)) for each in report.experiments),
        *([_tests(report)] if report.failed or report.skipped else []),
    ]
    title = f"Benchmarks of the loaders, {report.machine.get('date', '')[:10]}"
    refresh = REFRESH_SECONDS if report.running else None
    return document(title, STYLE.read_text(), *body, refresh_seconds=refresh)


def _machine(machine: Mapping[str, Any]) -> Html:
    versions = ", ".join(f"{name} {one}" for name, one in machine.get("libraries", {}).items())
    backend = machine.get("keras_backend")
    command = shlex.join(["pytest", *machine.get("arguments", ())])
    facts = {
        "date": machine.get("date"),
        "processor": f"{machine.get('cpu')}, {machine.get('usable_cpus')} usable",
        "memory": f"{machine.get('memory_gib')} GiB",
        "features": ", ".join(machine.get("features", ())),
        "GPU": ", ".join(machine.get("gpus", ())),
        "system": machine.get("system"),
        "Python": machine.get("python"),
        "libraries": versions,
        "commit": machine.get("commit") or "none",
        "command": f"KERAS_BACKEND={backend} {command}" if backend else command,
    }
    pairs = [element("dt", name) + element("dd", str(fact)) for name, fact in facts.items() if fact]
    return element("dl", *(Html(pair) for pair in pairs))


def _contents(report: Report) -> Html:
    """Links to the sections."""
    links = [element("a", each.title, href=f"#{anchor(each)}") for each in report.experiments]
    if report.comparison is not None:
        links.insert(0, element("a", "Against earlier results", href="#comparison"))
    return element("nav", listed(links)) if links else element("p", "No experiment ran.")


def _experiment(experiment: Experiment, figure: Path | None) -> Html:
    rows = experiment.rows()
    parts = [
        element("h2", experiment.title, id=anchor(experiment)),
        element("p", experiment.caption(), class_="caption"),
        _results(experiment) if rows else element("p", "No row ran."),
        *(element("p", line, class_="bad") for line in failed_rows(experiment)),
        *([_verdicts(experiment)] if experiment.verdicts else []),
        *([_figure(experiment, figure)] if figure is not None else []),
        element("div", _reading(experiment), listed(experiment.heads()), class_="note"),
        _logs(experiment),
        _commands(rows),
    ]
    return element("section", *parts)


def _results(experiment: Experiment) -> Html:
    """Medians, the range beneath where there is one; the best row of a framework in bold."""
    columns = measured_columns(experiment)
    heads = ["framework", "loader", experiment.axis, "runs", *(each.head for each in columns)]
    best = experiment.best()
    lines = []
    for row in experiment.rows():
        words = [row.framework, row.loader, str(row.workers)]
        runs = f"{row.runs - len(row.failures)} of {row.runs}" if row.failures else str(row.runs)
        if is_reference(row.loader):
            runs = MISSING
        line = [element("td", word, class_="word") for word in words]
        line.append(element("td", runs, class_="bad" if row.failures else "number"))
        for column in columns:
            leads = row in best and column.key == experiment.better
            line.append(element("td", *_median(row, column), class_="best" if leads else "number"))
        lines.append(line)
    return table(heads, lines, words=3)


def _verdicts(experiment: Experiment) -> Html:
    """Figures beside those of the reference machines."""
    lines = [
        element("span", str(each), class_="" if each.met else "behind")
        for each in experiment.verdicts.values()
    ]
    return details("Beside the reference machines, and the bars", listed(lines))


def _reading(experiment: Experiment) -> Html:
    """What the numbers are."""
    lead = experiment.lead()
    told = "Medians, beneath them the least and the most of all runs"
    told += f"; the best {lead.head} of each framework in bold." if lead else "."
    if any(row.over_seeds for row in experiment.rows()):
        told += " What depends on the seed: mean ± standard deviation over n seeds."
    return element("p", told)


def _median(row: Row, column: Column) -> list[str]:
    if column.key not in row.medians:
        return [MISSING]
    least, most = row.ranges[column.key]
    ranged = least < most and column.key not in row.over_seeds
    shown = [element("span", spread(row, column), class_="spread")] if ranged else []
    return [number(row, column), " ", *shown]


def _figure(experiment: Experiment, figure: Path) -> Html:
    names = " and ".join(name for _, name in panels_of(experiment))
    best = "; ".join(
        f"best of {row.framework}: {row.loader}, {experiment.axis} {row.workers}"
        for row in experiment.best()
    )
    alt = f"{experiment.title}: {names} over {experiment.axis}, as in the table" + (
        f"; {best}" if best else ""
    )
    data = base64.b64encode(figure.read_bytes()).decode("ascii")
    return Html(f'<img alt="{escape(alt)}" src="data:image/png;base64,{data}">\n')


def _logs(experiment: Experiment) -> Html:
    """What failed runs said last."""
    parts = [
        details(f"{run.name}: {run.failure}", element("pre", run.log))
        for run in experiment.runs
        if run.failure is not None and run.log
    ]
    return Html("".join(parts))


def _commands(rows: Sequence[Row]) -> Html:
    lines = [
        [
            element("td", f"{row.framework} {row.loader} {row.workers}", class_="word"),
            element("td", element("code", row.command), class_="word"),
        ]
        for row in rows
        if row.command
    ]
    if not lines:
        return Html("")
    return details("Commands that repeat each row", table(("row", "command"), lines, words=2))


def _comparison(comparison: Comparison) -> Html:
    lines = []
    for change in comparison.changes:
        row, verdict, *numbers = cells(change)
        lines.append(
            [
                element("td", row, class_="word"),
                element("td", verdict, class_="bad word" if change.verdict == SLOWER else "word"),
                *(element("td", number, class_="number") for number in numbers),
            ]
        )
    parts = [
        element("h2", "Against earlier results", id="comparison"),
        listed([f"earlier: {comparison.path}", *comparison.heads]),
        table(HEADS, lines, words=2) if lines else element("p", "No row is in both."),
        element(
            "p",
            "Medians of runs, each a fresh process, their range, and how many. Slower or faster: "
            "the ranges don't meet, and the medians differ by more than 5 percent.",
        ),
    ]
    for word, names in (("before", comparison.only_before), ("now", comparison.only_now)):
        if names:
            parts.append(details(f"Only {word}: {len(names)} rows", listed(names)))
    return element("section", *parts)


def _tests(report: Report) -> Html:
    """What failed as a test, and what was not run, with the reasons."""
    parts = [element("h2", "Tests that failed or were not run")]
    for name, reason in report.failed.items():
        parts.append(element("p", f"failed: {name}: {reason}", class_="bad"))
    for reason, names in report.skipped.items():
        parts.append(details(f"not run, {len(names)}: {reason}", listed(names)))
    return element("section", *parts)
