"""What results look like: tables, the summary, bars, the picture of the README."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks import picture
from benchmarks.experiments import gluon_ratios, keras_ratios, records_ratios
from benchmarks.harness import reference as module
from benchmarks.harness.processes import ROOT
from benchmarks.harness.reference import Reference
from benchmarks.harness.results import Experiment, Run
from benchmarks.harness.summary import Figure, summary
from benchmarks.harness.tables import markdown_table
from tests.benchmarks.made_up import made_up_run, speeds


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
    tables = (records_ratios.TABLE, keras_ratios.TABLE, gluon_ratios.TABLE)
    ratios = [each for table in tables for each in table.items()]
    names = {f"{ratio.peer.framework} {name}" for name, ratio in ratios}
    assert names <= set(reference.rows)
    for row in reference.rows.values():
        assert row.get("machine") in (None, *reference.machines)


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
    row = f"| {work}, samples/s | native kernel | 20 | tf.data 10 | 2.0 |"
    assert picture.table(kept)[2].startswith(row)
