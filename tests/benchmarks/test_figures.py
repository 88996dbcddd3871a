from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.figures import draw_figure, panels_of
from benchmarks.harness.results import SPEED, TRAINING_COLUMNS, Column, Experiment
from tests.benchmarks.made_up import made_up_run, speeds

pytest.importorskip("matplotlib", reason="the extra bench brings matplotlib, the extra test not")

COUNTS = (Column("lost", "samples lost", ",.0f"), Column("repeated", "repeated", ",.0f"))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were saved."""
    from matplotlib.figure import Figure

    figures, save = [], Figure.savefig

    def keep(figure: Figure, *arguments: Any, **options: Any) -> None:
        figures.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


def panels(figure: Any) -> list[Any]:
    return [axes for part in figure.subfigs for axes in part.axes]


# Of another loader, so that the axis has enough values for lines.
OTHERS = [run for workers in (1, 2, 4, 8) for run in speeds("other", 1, workers=workers)]


@pytest.mark.parametrize(("runs", "line"), [(OTHERS[:3], "None"), (OTHERS, "-")])
def test_no_line_joins_three_values(tmp_path: Path, drawn: list[Any], runs, line) -> None:
    draw_figure(Experiment("x", "X", runs=runs), tmp_path)
    (panel,) = panels(drawn[0])
    assert panel.containers[0].lines[0].get_linestyle() == line


def test_the_title_is_one_line(tmp_path: Path, drawn: list[Any]) -> None:
    draw_figure(Experiment("x", "X", notes=["a note"], runs=OTHERS), tmp_path)
    assert drawn[0].get_suptitle() == "X"


def test_every_point_has_its_spread(tmp_path: Path, drawn: list[Any]) -> None:
    runs = speeds("a", 80, 100, 150) + speeds("a", 200, 210, 230, workers=2) + OTHERS
    path = draw_figure(Experiment("x", "X", runs=runs), tmp_path)
    assert path == tmp_path / "x.png"
    assert path.stat().st_size > 10_000
    (panel,) = panels(drawn[0])
    bars = panel.containers[0]
    ends = [segment[:, 1].tolist() for segment in bars.lines[2][0].get_segments()]
    assert ends == [[80, 150], [200, 230]]
    assert list(bars.lines[0].get_ydata()) == [100, 210]


def test_shares_are_percents_with_their_spread(tmp_path: Path, drawn: list[Any]) -> None:
    runs = [
        made_up_run("a", samples_per_second=10, waited_share=share) for share in (0.1, 0.2, 0.5)
    ] + OTHERS
    draw_figure(Experiment("x", "X", runs=runs), tmp_path)
    bars = panels(drawn[0])[1].containers[0]
    assert bars.lines[2][0].get_segments()[0][:, 1].tolist() == pytest.approx([10, 50])


def test_auto_stands_apart(tmp_path: Path, drawn: list[Any]) -> None:
    runs = speeds("a", 10, workers="auto") + speeds("a", 10, workers=0) + speeds("a", 9, workers=8)
    runs += speeds("a", 9, workers=4)
    draw_figure(Experiment("x", "X", runs=runs, axis="processors"), tmp_path)
    (panel,) = panels(drawn[0])
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["0", "4", "8", "auto"]
    assert panel.get_xlabel() == "processors"
    assert [len(bars.lines[0].get_xdata()) for bars in panel.containers] == [3, 1]


def test_ideal_is_a_dashed_line_without_markers(tmp_path: Path, drawn: list[Any]) -> None:
    runs = [run for loader in ("ideal", "a") for run in speeds(loader, 10) + speeds(loader, 20)]
    runs += OTHERS
    draw_figure(Experiment("x", "X", runs=runs), tmp_path)
    (panel,) = panels(drawn[0])
    looks = {line.get_label(): line for line in panel.lines if line.get_label() in ("ideal", "a")}
    assert (looks["ideal"].get_linestyle(), looks["ideal"].get_marker()) == ("--", "")
    assert looks["ideal"].get_color() == "#888888"
    assert (looks["a"].get_linestyle(), looks["a"].get_marker()) == ("-", "o")


def test_twelve_loaders_look_different(tmp_path: Path, drawn: list[Any]) -> None:
    names = [f"loader {number}" for number in range(12)]
    runs = [run for name in names for run in speeds(name, 10)] + OTHERS
    draw_figure(Experiment("x", "X", runs=runs), tmp_path)
    (panel,) = panels(drawn[0])
    lines = [line for line in panel.lines if line.get_label() in names]
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 12


def test_a_panel_line_for_each_framework(tmp_path: Path, drawn: list[Any]) -> None:
    runs = speeds("a", 10) + [made_up_run("b", framework="Gluon", samples_per_second=5)]
    draw_figure(Experiment("x", "X", runs=runs), tmp_path)
    titles = [panel.get_title() for panel in panels(drawn[0])]
    assert titles == ["Keras: samples per second", "Gluon: samples per second"]


def test_counts_are_drawn_where_no_speed_was_measured(tmp_path: Path, drawn: list[Any]) -> None:
    runs = [made_up_run("a", 2, lost=0, repeated=0), made_up_run("b", 2, lost=4, repeated=9)]
    experiment = Experiment("x", "X", COUNTS, runs=runs)
    assert panels_of(experiment) == [("lost", "samples lost"), ("repeated", "repeated")]
    assert draw_figure(experiment, tmp_path) is not None
    assert len(panels(drawn[0])) == 2


def test_an_experiment_may_choose_its_panels() -> None:
    runs = [made_up_run("a", samples_per_second=1, lost=0)]
    chosen = (("lost", "lost"), ("never_measured", "?"))
    assert panels_of(Experiment("x", "X", runs=runs, panels=chosen)) == [("lost", "lost")]
    assert panels_of(Experiment("x", "X", runs=runs)) == [(SPEED, "samples per second")]


def test_nothing_measured_and_rows_without_an_axis_have_no_figure(tmp_path: Path) -> None:
    failed = Experiment("x", "X", TRAINING_COLUMNS, runs=[made_up_run("a", failure="hung")])
    ratios = Experiment("y", "Y", COUNTS, runs=[made_up_run("a", "", lost=1)])
    assert [draw_figure(each, tmp_path) for each in (failed, ratios)] == [None, None]
