"""An experiment's rows as a table: aligned text for the terminal, Markdown for documents."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.harness.results import Column, Experiment, Row

BEST_MARK = "*"
MISSING = "-"


def text_table(experiment: Experiment) -> str:
    """The table with its title and head lines; the best row of a framework bears a `*`.

    So that it fits into a terminal, the figure that rows are compared by alone has its range.
    """
    heads, lines, words = _cells(experiment, every_range=False)
    table = align(heads, lines, words)
    return "\n".join([experiment.title, *experiment.heads(), "", *table, *footnotes(experiment)])


def markdown_table(experiment: Experiment) -> str:
    """The same as Markdown, every figure with its range."""
    heads, lines, words = _cells(experiment, every_range=True)
    rule = [":--" if place < words else "--:" for place in range(len(heads))]
    rows = [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |"
        for line in [heads, rule, *lines]
    ]
    notes = [f"{line}  " for line in [*experiment.heads(), *footnotes(experiment)]]
    return "\n".join([f"**{experiment.title}**  ", *notes, "", *rows])


def align(heads: Sequence[str], lines: Sequence[Sequence[str]], words: int) -> list[str]:
    """The lines of a table of text: so many columns of words to the left, numbers to the right."""
    widths = [max(len(line[place]) for line in [heads, *lines]) for place in range(len(heads))]
    return [
        "  ".join(
            cell.ljust(width) if place < words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in [heads, *lines]
    ]


def measured_columns(experiment: Experiment) -> list[Column]:
    """Those of which any row has a number."""
    rows = experiment.rows()
    return [one for one in experiment.columns if any(one.key in row.medians for row in rows)]


def number(row: Row, column: Column) -> str:
    """The median, the mean ± the standard deviation over the seeds, or a `-`."""
    found = row.over_seeds.get(column.key)
    if found is not None:
        mean = format(found.mean, column.form)
        if found.deviation is None:
            return f"{mean}, n = 1"
        return f"{mean} ± {format(found.deviation, column.form)}, n = {found.seeds}"
    if column.key in row.medians:
        return format(row.medians[column.key], column.form)
    return MISSING


def spread(row: Row, column: Column) -> str:
    """From the least to the most, or a `-`; of what depends on the seed, the number tells."""
    if column.key not in row.ranges or column.key in row.over_seeds:
        return MISSING
    return " to ".join(format(end, column.form) for end in row.ranges[column.key])


def _with_spread(row: Row, column: Column) -> str:
    least, most = row.ranges.get(column.key, (0.0, 0.0))
    same = format(least, column.form) == format(most, column.form)
    if same or column.key in row.over_seeds:
        return number(row, column)
    return f"{number(row, column)} ({spread(row, column)})"


def footnotes(experiment: Experiment) -> list[str]:
    """One line for each row in which something failed, and for each that the reference has."""
    return [*failed_rows(experiment), *map(str, experiment.verdicts.values())]


def failed_rows(experiment: Experiment) -> list[str]:
    """One line for each row in which something failed."""
    return [
        f"failed, {len(row.failures)} of {row.runs}: {row.framework} {row.loader}, "
        f"{experiment.axis} {row.workers}: {'; '.join(dict.fromkeys(row.failures))}"
        for row in experiment.rows()
        if row.failures
    ]


def _cells(experiment: Experiment, every_range: bool) -> tuple[list[str], list[list[str]], int]:
    """Heads, lines, and how many columns are words."""
    rows = experiment.rows()
    columns = measured_columns(experiment)
    names = ["framework"] if len({row.framework for row in rows}) > 1 else []
    lead = experiment.better
    spreads = any(least < most for row in rows for least, most in [row.ranges.get(lead, (0, 0))])
    heads = [*names, "loader", experiment.axis]
    for column in columns:
        heads.append(column.head)
        if column.key == lead and spreads:
            heads.append("range")
    best = experiment.best()
    lines = []
    for row in rows:
        line = [row.framework] * len(names) + [row.loader, str(row.workers)]
        if not row.medians:
            lines.append([*line, "failed", *[MISSING] * (len(heads) - len(line) - 1)][: len(heads)])
            continue
        for column in columns:
            if column.key != lead:
                line.append(_with_spread(row, column) if every_range else number(row, column))
                continue
            line.append(number(row, column) + BEST_MARK * (row in best))
            if spreads:
                line.append(spread(row, column))
        lines.append(line)
    return heads, lines, len(names) + 1
