"""What results look like: tables, the summary, figures, the picture of the README, bars."""

from __future__ import annotations

import dataclasses
import itertools
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import picture
from benchmarks.experiments import gluon_ratios, keras_ratios, records_ratios
from benchmarks.harness import ratios
from benchmarks.harness import reference as module
from benchmarks.harness.figures import draw_figure
from benchmarks.harness.installed import Peer
from benchmarks.harness.pairs import Bar, Pair, drawn
from benchmarks.harness.processes import ROOT
from benchmarks.harness.ratios import Contestant, Pace, Ratio, measure_ratio, pace
from benchmarks.harness.reference import Reference
from benchmarks.harness.results import TRAINING_COLUMNS, Column, Experiment, Run
from benchmarks.harness.rounds import rounds_of
from benchmarks.harness.summary import Figure, summary
from benchmarks.harness.tables import markdown_table, text_table
from tests.benchmarks.made_up import made_up_run, speeds

SPEEDS = (Column("samples_per_second", "samples/s", ",.0f"),)
COUNTS = (Column("lost", "lost", ",.0f"), Column("repeated", "repeated", ",.0f"))


def lines_of(experiment: Experiment) -> list[list[str]]:
    """The cells of the Markdown table, without its rule."""
    table = markdown_table(experiment).split("\n\n")[-1]
    cells = [[cell.strip() for cell in line.split(" | ")] for line in table.splitlines()]
    assert len({len(line) for line in cells}) == 1
    return [[cell.strip("| ") for cell in line] for line in [cells[0], *cells[2:]]]


def test_table_has_medians_and_ranges() -> None:
    experiment = Experiment("x", "X", runs=speeds("a", 1_000, 1_200, 1_500))
    assert lines_of(experiment) == [
        ["loader", "workers", "samples/s", "range"],
        ["a", "0", "1,200*", "1,000 to 1,500"],
    ]


def test_table_has_the_range_of_rounds() -> None:
    run = made_up_run("a", samples_per_second=100, rounds=(80.0, 130.0))
    assert lines_of(Experiment("x", "X", runs=[run]))[1] == ["a", "0", "100*", "80 to 130"]


def test_table_stars_the_best_row_of_each_framework() -> None:
    runs = [
        *speeds("a", 10),
        *speeds("b", 20),
        *speeds("published, V100", 900),
        *speeds("ideal", 800),
        made_up_run("c", framework="Gluon", samples_per_second=5),
    ]
    starred = [line[1] for line in lines_of(Experiment("x", "X", runs=runs)) if "*" in line[3]]
    assert starred == ["b", "c"]


def test_table_says_why_rows_failed() -> None:
    runs = [*speeds("a", 10), made_up_run("b", 2, failure="killed by SIGKILL")]
    experiment = Experiment("x", "X", runs=runs)
    assert lines_of(experiment)[2] == ["b", "2", "failed"]
    assert "failed, 1 of 1: Keras b, workers 2: killed by SIGKILL" in text_table(experiment)


# --- what depends on the seed ---


LEARNT = (*SPEEDS, Column("accuracy", "accuracy", ".3f", seeded=True))


def learnt(*accuracies: float, seeds: Sequence[int | None]) -> Experiment:
    runs = [
        made_up_run("a", samples_per_second=100, accuracy=accuracy, seed=seed)
        for accuracy, seed in zip(accuracies, seeds, strict=True)
    ]
    return Experiment("x", "X", LEARNT, runs=runs)


@pytest.mark.parametrize("table", [text_table, markdown_table])
@pytest.mark.parametrize(
    ("accuracies", "seeds", "shown"),
    [
        ((0.84, 0.85, 0.87), (1, 2, 3), "0.853 ± 0.015, n = 3"),
        ((0.84,), (1,), "0.840, n = 1"),
        ((0.84, 0.86), (1, 1), "0.850, n = 1"),
        ((0.84, 0.86, 0.95), (1, 1, 2), "0.900 ± 0.071, n = 2"),
    ],
    ids=["seeds", "one run", "one seed twice", "two seeds, one twice"],
)
def test_table_has_the_spread_over_seeds(
    table: Callable[[Experiment], str],
    accuracies: tuple[float, ...],
    seeds: tuple[int, ...],
    shown: str,
) -> None:
    (line,) = (
        line for line in table(learnt(*accuracies, seeds=seeds)).splitlines() if "n =" in line
    )
    assert shown in line
    assert " to " not in line


# --- the summary ---


def ours(run: Run) -> Run:
    return dataclasses.replace(run, ours=True)


def test_summary_has_ours_and_the_best_other():
    runs = [*map(ours, speeds("SafeSequence", 80, 100, 120, workers=2)), *speeds("a", 40)]
    runs += [*speeds("b", 50, workers=8), *speeds("published, V100", 70), *speeds("ideal", 900)]
    runs += [ours(made_up_run("gluon_loader", framework="Gluon", samples_per_second=5))]
    keras, gluon = summary([Experiment("x", "X", runs=runs)])
    assert (keras.work, keras.unit) == ("Keras", "samples/s")
    assert keras.ours == Figure("SafeSequence, workers 2", 100)
    assert keras.peer == Figure("b, workers 8", 50)
    assert keras.published == Figure("published, V100, workers 0", 70)
    assert keras.ratio == 2
    assert (gluon.work, gluon.peer, gluon.ratio) == ("Gluon", None, None)


def test_summary_of_ratios():
    found = {"ours": 30.0, "peer": 10.0, "ratio": 3.0}
    run = made_up_run("JPEG against tf.data", "", **found)
    words = "SafeSequence, auto against tf.data, 2 calls, samples/s (tensorflow 2.21.0)"
    run = dataclasses.replace(run, software=words, ours=True)
    (line,) = summary([Experiment("ratios", "R", (Column("ratio", "ratio", ".2f"),), runs=[run])])
    assert line.ours == Figure("SafeSequence, auto", 30)
    assert line.peer == Figure("tf.data, 2 calls", 10)
    assert (line.unit, line.ratio, line.work) == ("samples/s", 3, "Keras: JPEG against tf.data")


def test_picture_of_pairs_is_an_svg():
    pair = Pair("<work> & more", "2 times", Bar("ours", 10, "10/s"), Bar("theirs", 5, "5/s"))
    text = drawn("Speed", [pair], "a note")
    root = ElementTree.fromstring(text)
    bars = [each for each in root if each.get("class") in ("ours", "peer")]
    widths = [float(each.get("width")) for each in bars]
    assert widths[0] == pytest.approx(2 * widths[1])
    assert "prefers-color-scheme: dark" in text
    assert "<work> & more" in "".join(root.itertext())
    assert root.get("aria-label") == "Speed. <work> & more: 2 times"


# --- figures ---


LOSSES = (Column("lost", "samples lost", ",.0f"), Column("repeated", "repeated", ",.0f"))


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were saved."""
    pytest.importorskip(
        "matplotlib", reason="the extra bench brings matplotlib, the extra test not"
    )
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


def test_figure_has_spreads(tmp_path: Path, saved: list[Any]) -> None:
    runs = speeds("a", 80, 100, 150) + speeds("a", 200, 210, 230, workers=2) + OTHERS
    path = draw_figure(Experiment("x", "X", runs=runs), tmp_path)
    assert path == tmp_path / "x.png"
    assert path.stat().st_size > 10_000
    (panel,) = panels(saved[0])
    bars = panel.containers[0]
    ends = [segment[:, 1].tolist() for segment in bars.lines[2][0].get_segments()]
    assert ends == [[80, 150], [200, 230]]
    assert list(bars.lines[0].get_ydata()) == [100, 210]


def test_figure_is_none_of_nothing(tmp_path: Path, saved: list[Any]) -> None:
    failed = Experiment("x", "X", TRAINING_COLUMNS, runs=[made_up_run("a", failure="hung")])
    ratios = Experiment("y", "Y", LOSSES, runs=[made_up_run("a", "", lost=1)])
    assert [draw_figure(each, tmp_path) for each in (failed, ratios)] == [None, None]


# --- rounds ---


def test_rounds_show_a_slow_stretch() -> None:
    moments = [0.0, 1, 2, 3, 4, 5, 6, 10, 14, 15, 16]
    waits = [0.0, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0]
    rounds = rounds_of(moments, 32, waits)
    assert rounds["samples_per_second"] == pytest.approx([32, 32, 32, 8, 32])
    assert rounds["waited_share"] == pytest.approx([0, 0, 0, 0.75, 0])
    assert rounds["wait_p50_ms"] == pytest.approx([0, 0, 0, 3000, 0])


# --- ratios ---


PEER = Peer("Keras", "sys", "numpy")


@pytest.fixture(autouse=True)
def whole_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ratios, "_short", False)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")


def measured(ratio: Ratio, rounds: int | None, short: bool = False) -> dict[str, float]:
    return measure_ratio(ratio, {"rounds": rounds, "short": short})["metrics"]


def test_ratio_says_how_correct_it_is() -> None:
    def contestants() -> dict[str, Contestant]:
        return {"ours": lambda: Pace(40, 20), "peer": lambda: Pace(10, 5)}

    metrics = measured(Ratio(PEER, "samples/s", contestants, correct=lambda: {"lost": 3.0}), 2)
    assert (metrics["ratio"], metrics["lost"]) == (4, 3)
    assert (metrics["ours_per_cpu_second"], metrics["peer_per_cpu_second"]) == (20, 5)


def test_ratio_of_a_short_round() -> None:
    taken: list[int] = []

    def amount(number: int) -> float:
        taken.append(number)
        return 1.0

    def contestant() -> float:
        return pace(itertools.count(), 14, 100, amount)

    contestants = {"ours": contestant, "peer": lambda: 1.0}
    measured(Ratio(PEER, "samples/s", lambda: contestants, rounds=9), None, short=True)
    assert taken == [1, 2]


# --- bars ---


MACHINE = {"cpu": "Xeon", "cpus": 2, "features": ["native kernel", "AVX-512 VBMI"], "gpus": []}


@pytest.fixture
def reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reference:
    """On a machine that has the native kernel and no VBMI."""
    features = module.found_features().__class__(2, True, False, ())
    monkeypatch.setattr(module, "found_features", lambda: features)
    rows = {
        "JPEG": {"reference": 3.2, "least": 1.6, "needs": ["native kernel"], "machine": "xeon"},
        "vectors": {"least": 2, "needs": ["AVX-512 VBMI"]},
        "parity": {"least": 1},
        "seconds": {"most": 0.2},
    }
    path = tmp_path / "reference.json"
    path.write_text(json.dumps({"machines": {"xeon": MACHINE}, "rows": rows}))
    return Reference.read(path)


def test_bar_stands_beside_the_reference(reference: Reference) -> None:
    verdict = reference.judge("JPEG", 2.1)
    assert verdict is not None
    assert str(verdict) == (
        "JPEG: 2.1 here; 3.2 on the reference machine (2 CPUs, native kernel, AVX-512 VBMI); "
        "bar: at least 1.6"
    )
    assert not verdict.missed
    assert reference.judge("another", 1) is None


@pytest.mark.parametrize(
    ("row", "here", "parity", "missed", "said"),
    [
        ("JPEG", 1.5, True, True, "bar: at least 1.6, missed"),
        ("vectors", 1.5, False, False, "missed; not held, as it needs the AVX-512 VBMI"),
        ("parity", 0.9, False, True, "0.9 here; bar: at least 1, missed"),
        ("parity", 0.9, True, False, "0.9 here; bar: at least 1"),
        ("seconds", 0.3, False, True, "bar: at most 0.2, missed"),
        ("seconds", 0.1, False, False, "bar: at most 0.2"),
    ],
)
def test_bar_may_be_missed(reference: Reference, row, here, parity, missed, said) -> None:
    verdict = reference.judge(row, here, parity)
    assert verdict is not None
    assert verdict.missed is missed
    assert str(verdict).endswith(said)


def test_bars_are_of_every_ratio() -> None:
    reference = Reference.read()
    names = {
        f"{ratio.peer.framework} {name}"
        for table in (records_ratios.TABLE, keras_ratios.TABLE, gluon_ratios.TABLE)
        for name, ratio in table.items()
    }
    assert names <= set(reference.rows)
    for row in reference.rows.values():
        assert row.get("machine") in (None, *reference.machines)


# --- README ---


README = (ROOT / "README.md").read_text()


def test_readmes_picture_is_of_the_results():
    assert picture.PICTURE.read_text() == picture.picture(picture.KEPT), picture.__doc__
    assert picture.PICTURE.relative_to(ROOT).as_posix() in README


def test_readmes_table_is_of_the_results():
    lines = picture.table(picture.KEPT)
    assert len(lines) == 2 + len(picture.lines(picture.KEPT))
    assert "\n".join(lines) in README, "python -m benchmarks.picture prints it"
    assert picture.machine(picture.KEPT) in README.replace("\n", " ")


def test_readmes_rows_are_taken_from_later_results(tmp_path, monkeypatch):
    content = json.loads(picture.KEPT.read_text())
    (framework, name), work = next(iter(picture.WORKS.items()))
    for run in content["runs"]:
        if (run["framework"], run["loader"]) == (framework, name):
            run["metrics"] |= {"ours": 20.0, "peer": 10.0}
    later = tmp_path / "run.json"
    later.write_text(json.dumps({"machine": content["machine"], "experiments": [content]}))
    kept = tmp_path / "kept.json"
    monkeypatch.setattr(picture, "KEPT", kept)
    kept.write_text(json.dumps(picture.taken([later])))
    assert picture.table(kept)[2].startswith(
        f"| {work}, samples/s | native kernel | 20 | tf.data 10 | 2.0 |"
    )
