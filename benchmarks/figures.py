"""An experiment as a figure: speed and share waited over the workers, a line for each loader."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.results import SPEED, Experiment, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WAITED = "waited_share"
PANELS = ((SPEED, "samples per second"), (WAITED, "share of time waited, %"))
# Okabe and Ito's, which most colour-blind readers tell apart; by loader, in the table's order,
# within a framework, whose panels have a legend of their own.
COLOURS = ("#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#009E73", "#CC79A7", "#000000")
MARKERS = "osD^vPX"


def draw_figure(experiment: Experiment, folder: Path) -> Path | None:
    """Draw `<folder>/<name>.png`: one line of panels for each framework.

    Args:
        experiment: With at least one result, else there is nothing to draw.
        folder: Made where it isn't there.

    Returns:
        The figure's path, or None where nothing was measured.
    """
    rows = [row for row in experiment.rows() if SPEED in row.medians]
    if not rows:
        return None
    # Not pyplot: no global state, and no display is asked for.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [panel for panel in PANELS if any(panel[0] in row.medians for row in rows)]
    frameworks = list(dict.fromkeys(row.framework for row in rows))
    figure = Figure(figsize=(11, 4.2 * len(frameworks) + 1.2), layout="constrained")
    FigureCanvasAgg(figure)
    parts = figure.subfigures(len(frameworks), 1, squeeze=False)[:, 0]
    for part, framework in zip(parts, frameworks):
        line = part.subplots(1, len(panels), squeeze=False)[0]
        group = [row for row in rows if row.framework == framework]
        for panel, (key, name) in zip(line, panels):
            _draw_panel(panel, group, key)
            panel.set(title=f"{framework}: {name}", xlabel=experiment.axis)
            panel.set_ylim(0, 1.05 * panel.get_ylim()[1])
        line[0].yaxis.set_major_formatter("{x:,.0f}")
        named = line[0].get_legend_handles_labels()
        part.legend(*named, loc="outside lower center", ncols=4, frameon=False)
    heads = [textwrap.fill(head, 110) for head in experiment.heads()]
    figure.suptitle("\n".join([experiment.title, *heads]), fontsize=9)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{experiment.name}.png"
    figure.savefig(path, dpi=150)
    return path


def _draw_panel(panel: Axes, rows: list[Row], key: str) -> None:
    """One metric; numbers of workers at equal distances, "auto" apart at the right."""
    numbers = sorted({row.workers for row in rows if isinstance(row.workers, int)})
    words = sorted({row.workers for row in rows if isinstance(row.workers, str)})
    ticks = [*numbers, *words]
    for style, loader in enumerate(dict.fromkeys(row.loader for row in rows)):
        own = [row for row in rows if row.loader == loader and key in row.medians]
        look: dict[str, Any] = {
            "color": COLOURS[style % len(COLOURS)],
            "marker": MARKERS[style % len(MARKERS)],
        }
        # A line would say that "auto" is more than the largest number.
        for line, chosen in (
            ("-", [row for row in own if isinstance(row.workers, int)]),
            ("", [row for row in own if isinstance(row.workers, str)]),
        ):
            _draw_line(panel, chosen, [ticks.index(row.workers) for row in chosen], key, line, look)
        panel.plot([], [], label=loader, **look)
    panel.set_xticks(range(len(ticks)), [str(tick) for tick in ticks])
    panel.margins(x=0.08)
    panel.grid(axis="y", alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)


def _draw_line(
    panel: Axes, rows: list[Row], places: list[int], key: str, line: str, look: dict[str, Any]
) -> None:
    """Medians; of the speed, also how far its slowest and its fastest run lie from them."""
    if not rows:
        return
    medians = [(100 if key == WAITED else 1) * row.medians[key] for row in rows]
    spread = None
    if key == SPEED:
        ranges = [row.speed_range or (middle, middle) for row, middle in zip(rows, medians)]
        spread = (
            [middle - least for (least, _), middle in zip(ranges, medians)],
            [most - middle for (_, most), middle in zip(ranges, medians)],
        )
    panel.errorbar(places, medians, yerr=spread, linestyle=line, capsize=2, **look)
