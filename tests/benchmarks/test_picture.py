"""README's picture and table are those of the results that are kept."""

from __future__ import annotations

import json

import pytest

from benchmarks import picture
from benchmarks.harness.processes import ROOT
from benchmarks.harness.results import Experiment
from tests.benchmarks.made_up import speeds

README = (ROOT / "README.md").read_text()


def test_the_picture_is_that_of_the_results():
    assert picture.PICTURE.read_text() == picture.picture(picture.KEPT), picture.__doc__
    assert picture.PICTURE.relative_to(ROOT).as_posix() in README


def test_readmes_table_is_that_of_the_results():
    lines = picture.table(picture.KEPT)
    assert len(lines) == 2 + len(picture.lines(picture.KEPT))
    assert "\n".join(lines) in README, "python -m benchmarks.picture prints it"
    assert picture.machine(picture.KEPT) in README.replace("\n", " ")


def test_rows_are_taken_out_of_later_results(tmp_path, monkeypatch):
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


def test_a_sweep_is_a_table_by_workers(tmp_path):
    runs = [run for n in (2, "auto", 0) for run in speeds("SafeSequence threads", 10, workers=n)]
    path = Experiment("mnist", "MNIST", runs=[*runs, *speeds("tf.data", 9)]).write_json(tmp_path)
    assert picture.sweep_table(path)[:4] == [
        "| loader | 0 | 2 | auto |",
        "| :-- | --: | --: | --: |",
        "| Keras: SafeSequence threads | 10 | 10 | 10 |",
        "| Keras: tf.data | 9 |  |  |",
    ]


def test_the_rows_are_named_as_the_option_wants_them(capsys: pytest.CaptureFixture[str]):
    assert picture.main(["--rows"]) == 0
    named = capsys.readouterr().out.strip().split("|")
    assert len(named) == len(picture.WORKS)
    assert "Gluon ToTensor workers" in named
