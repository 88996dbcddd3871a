"""An experiment as a figure: metrics over the workers (or another axis), a line for each loader.

If the axis has three values or fewer, there are points alone, as a line would say something of what
lies between them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.results import IDEAL, SPEED, Experiment, Row
from benchmarks.harness.tables import measured_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WAITED = "waited_share"
SPEED_PANELS = ((SPEED, "samples per second"), (WAITED, "share of time waited, %"))
MOST_PANELS = 3  # of columns, where nobody said which
MOST_APART = 3  # values of the axis whose points no line joins
# Okabe and Ito's, which most colour-blind readers tell apart; by loader, in the table's order,
# within a framework, whose panels have a legend of their own. One marker more than there are
# colours, so that the two differ together only after 56 loaders.
COLOURS = ("#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#009E73", "#CC79A7", "#000000")
MARKERS = "osD^vPX*"
IDEAL_LOOK = {"color": "#888888", "linestyle": "--", "marker": ""}


def draw_figure(experiment: Experiment, folder: Path) -> Path | None:
    """Draw `<folder>/<name>.png`: one line of panels for each framework.

    Args:
        experiment: With at least one result, else there is nothing to draw.
        folder: Made where it isn't there.

    Returns:
        The figure's path; None if there is nothing to draw, or no matplotlib.
    """
    panels = panels_of(experiment)
    rows = [row for row in experiment.rows() if any(key in row.medians for key, _ in panels)]
    if not rows:
        return None
    try:
        # Not pyplot: no global state, and no display is asked for.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:  # As on a machine that has what rows need and no more.
        return None

    frameworks = list(dict.fromkeys(row.framework for row in rows))
    figure = Figure(figsize=(11, 4.2 * len(frameworks) + 1.2), layout="constrained")
    FigureCanvasAgg(figure)
    parts = figure.subfigures(len(frameworks), 1, squeeze=False)[:, 0]
    percents = {WAITED, *(each.key for each in experiment.columns if each.form.endswith("%"))}
    for part, framework in zip(parts, frameworks):
        line = part.subplots(1, len(panels), squeeze=False)[0]
        group = [row for row in rows if row.framework == framework]
        for panel, (key, name) in zip(line, panels):
            _draw_panel(panel, group, key, 100 if key in percents else 1)
            panel.set(title=f"{framework}: {name}", xlabel=experiment.axis)
            panel.set_ylim(0, 1.05 * panel.get_ylim()[1])
        if panels[0][0] == SPEED:
            line[0].yaxis.set_major_formatter("{x:,.0f}")
        named = line[0].get_legend_handles_labels()
        part.legend(*named, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(experiment.title, fontsize=10)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{experiment.name}.png"
    figure.savefig(path, dpi=150)
    return path


def panels_of(experiment: Experiment) -> list[tuple[str, str]]:
    """Keys and names of what is drawn: as the experiment says, or the speed, or first columns."""
    rows = experiment.rows()
    measured = {key for row in rows for key in row.medians}
    if experiment.panels is not None:
        return [panel for panel in experiment.panels if panel[0] in measured]
    if SPEED in measured:
        return [panel for panel in SPEED_PANELS if panel[0] in measured]
    if all(row.workers == "" for row in rows):
        return []  # Rows with no axis in common, as those of the ratios, whose units differ, too.
    columns = measured_columns(experiment)[:MOST_PANELS]
    return [(column.key, column.head) for column in columns]


def _draw_panel(panel: Axes, rows: list[Row], key: str, scale: int) -> None:
    """One metric; numbers of workers at equal distances, "auto" behind them."""
    ticks = ticks_of(rows)
    _draw_lines(panel, rows, ticks, key, scale)
    panel.set_xticks(range(len(ticks)), [str(tick) for tick in ticks])
    panel.margins(x=0.08)
    panel.grid(axis="y", alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)


def ticks_of(rows: list[Row]) -> list[int | str]:
    """The values of the axis, numbers first."""
    numbers = sorted({row.workers for row in rows if isinstance(row.workers, int)})
    words = sorted({row.workers for row in rows if isinstance(row.workers, str)})
    return [*numbers, *words]


def _beyond(rows: list[Row], key: str, scale: int) -> tuple[list[float], list[float]]:
    """How far the least and the most lie from the medians."""
    return (
        [scale * (row.medians[key] - row.ranges[key][0]) for row in rows],
        [scale * (row.ranges[key][1] - row.medians[key]) for row in rows],
    )


def _draw_lines(panel: Axes, rows: list[Row], ticks: list[int | str], key: str, scale: int) -> None:
    """A line for each loader, or points beside each other's."""
    loaders = list(dict.fromkeys(row.loader for row in rows))
    for style, loader in enumerate(each for each in loaders if each != IDEAL):
        look: dict[str, Any] = {
            "color": COLOURS[style % len(COLOURS)],
            "marker": MARKERS[style % len(MARKERS)],
            "linestyle": "-" if len(ticks) > MOST_APART else "",
        }
        _draw_loader(panel, [row for row in rows if row.loader == loader], ticks, key, scale, look)
    ideal = [row for row in rows if row.loader == IDEAL]
    if ideal:
        _draw_loader(panel, ideal, ticks, key, scale, dict(IDEAL_LOOK))


def _draw_loader(
    panel: Axes, rows: list[Row], ticks: list[int | str], key: str, scale: int, look: dict[str, Any]
) -> None:
    """Medians, and how far the least and the most lie from them."""
    own = [row for row in rows if key in row.medians]
    numbered = [row for row in own if isinstance(row.workers, int)]
    # A line would say that "auto" is more than the largest number.
    apart = [row for row in own if isinstance(row.workers, str)]
    for chosen, line in ((numbered, look["linestyle"]), (apart, "")):
        if not chosen:
            continue
        places = [ticks.index(row.workers) for row in chosen]
        medians = [scale * row.medians[key] for row in chosen]
        beyond = _beyond(chosen, key, scale)
        panel.errorbar(places, medians, yerr=beyond, capsize=2, **{**look, "linestyle": line})
    panel.plot([], [], label=rows[0].loader, **look)
