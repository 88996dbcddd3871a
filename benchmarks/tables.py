"""An experiment's rows as a table: aligned text for the terminal, Markdown for documents."""

from __future__ import annotations

from benchmarks.results import SPEED, Column, Experiment, Row

BEST_MARK = "*"
MISSING = "-"
# Loaders whose rows were measured elsewhere.
PUBLISHED = "published"


def text_table(experiment: Experiment) -> str:
    """The table with its title and head lines; the fastest row of a framework bears a `*`."""
    heads, lines = _cells(experiment)
    widths = [max(len(line[place]) for line in [heads, *lines]) for place in range(len(heads))]
    words = heads.index(experiment.axis)
    aligned = [
        "  ".join(
            cell.ljust(width) if place < words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in [heads, *lines]
    ]
    return "\n".join([experiment.title, *experiment.heads(), "", *aligned, *_footnotes(experiment)])


def markdown_table(experiment: Experiment) -> str:
    """The same as Markdown."""
    heads, lines = _cells(experiment)
    words = heads.index(experiment.axis)
    rule = [":--" if place < words else "--:" for place in range(len(heads))]
    rows = ["| " + " | ".join(line) + " |" for line in [heads, rule, *lines]]
    notes = [f"{line}  " for line in [*experiment.heads(), *_footnotes(experiment)]]
    return "\n".join([f"**{experiment.title}**  ", *notes, "", *rows])


def _cells(experiment: Experiment) -> tuple[list[str], list[list[str]]]:
    rows = experiment.rows()
    columns = [one for one in experiment.columns if any(one.key in row.medians for row in rows)]
    several = len({row.framework for row in rows}) > 1
    spread = any(row.speed_range and row.speed_range[0] < row.speed_range[1] for row in rows)
    heads = ["framework"] * several + ["loader", experiment.axis]
    for column in columns:
        heads.append(column.head)
        if column.key == SPEED and spread:
            heads.append("range")
    best = _best(rows)
    lines = []
    for row in rows:
        line = [row.framework] * several + [row.loader, str(row.workers)]
        if not row.medians:
            lines.append([*line, "failed", *[MISSING] * (len(heads) - len(line) - 1)])
            continue
        for column in columns:
            line.append(_number(row, column) + BEST_MARK * (column.key == SPEED and row in best))
            if column.key == SPEED and spread:
                line.append(_range(row, column))
        lines.append(line)
    return heads, lines


def _best(rows: list[Row]) -> list[Row]:
    """The fastest row of each framework."""
    fastest: dict[str, Row] = {}
    for row in rows:
        rival = fastest.get(row.framework)
        if row.loader.startswith(PUBLISHED):
            continue
        if SPEED in row.medians and (rival is None or row.medians[SPEED] > rival.medians[SPEED]):
            fastest[row.framework] = row
    return list(fastest.values())


def _number(row: Row, column: Column) -> str:
    if column.key in row.medians:
        return format(row.medians[column.key], column.form)
    return MISSING


def _range(row: Row, column: Column) -> str:
    if row.speed_range is None:
        return MISSING
    return " to ".join(format(speed, column.form) for speed in row.speed_range)


def _footnotes(experiment: Experiment) -> list[str]:
    """One line for each row in which something failed."""
    return [
        f"failed, {len(row.failures)} of {row.runs}: {row.framework} {row.loader}, "
        f"{experiment.axis} {row.workers}: {'; '.join(dict.fromkeys(row.failures))}"
        for row in experiment.rows()
        if row.failures
    ]
