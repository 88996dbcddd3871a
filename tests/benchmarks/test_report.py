from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from benchmarks.harness.comparison import compare_results, read_earlier
from benchmarks.harness.figures import draw_figure
from benchmarks.harness.report import Report, page, write_report
from benchmarks.harness.results import Column, Experiment, write_json
from tests.benchmarks.made_up import MACHINE, made_up_run, speeds

pytest.importorskip("matplotlib", reason="the extra bench brings matplotlib, the extra test not")

HOSTILE = "<script>console.error('run')</script><img src=http://x.invalid/y.png> & \"quoted\""
# What makes a browser fetch something, or run it.
FETCHING = {"action", "background", "data", "href", "poster", "src", "srcset", "style"}


class Elements(HTMLParser):
    """Names of elements, their attributes, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def experiments() -> list[Experiment]:
    """Of speeds, with failures, and of counts, with an axis of its own; one where no row ran."""
    runs = [
        made_up_run(
            loader,
            workers,
            samples_per_second=speed * (1 + workers) * factor,
            waited_share=0.1 * factor,
            train_seconds=9,
        )
        for loader, speed in (("SafeSequence threads", 900), ("PyDataset threads", 700))
        for workers in (0, 2, 4)
        for factor in (0.95, 1, 1.1)
    ]
    runs += [
        made_up_run("tf.data", 2, failure="killed by SIGKILL", log=f"Fatal: {HOSTILE}"),
        *speeds("published, V100", 3_000),
        *speeds("ideal", 900),
    ]
    training = Experiment("mnist", "MNIST worker sweep", notes=["digits: a substitute"], runs=runs)
    counts = [made_up_run(f"loader {number}", 4, lost=number) for number in range(3)]
    columns = (Column("lost", "samples lost", ",.0f"),)
    lost = Experiment("lost", "Lost samples", columns, axis="processors", runs=counts)
    peers = Experiment("peers", "Peers", notes=["not run, as ffcv isn't installed: ffcv"])
    return [training, lost, peers]


@pytest.fixture
def report(experiments: list[Experiment], tmp_path: Path) -> Report:
    """Through the real functions: figures drawn, earlier results read from a file."""
    drawn = {each.name: draw_figure(each, tmp_path) for each in experiments}
    before = Experiment("mnist", "MNIST", runs=speeds("SafeSequence threads", 9_000, 9_001, 9_002))
    content = {**before.content(), "machine": MACHINE}
    earlier = read_earlier(write_json(content, tmp_path / "earlier.json"))
    return Report(
        machine=MACHINE,
        experiments=experiments,
        figures={name: path for name, path in drawn.items() if path is not None},
        comparison=compare_results(earlier, experiments, MACHINE),
        failed={"test_it.py::test_a": "AssertionError: too slow"},
        skipped={"grain isn't installed": ["test_it.py::test_b"]},
    )


def test_the_page_asks_for_nothing_outside(report: Report) -> None:
    text = page(report)
    elements = Elements(text)
    fetched = [value for name, value in elements.attributes if name in FETCHING]
    assert fetched
    assert [value for value in fetched if not value.startswith(("data:", "#"))] == []
    assert {"script", "iframe", "object", "embed"}.isdisjoint(elements.names)
    assert "url(" not in text
    assert "@import" not in text


def test_hostile_text_stays_text(experiments: list[Experiment]) -> None:
    """In all that others may write: names, notes, failures, logs, reasons."""
    run = made_up_run(HOSTILE, failure=HOSTILE, log=HOSTILE, samples_per_second=1)
    run = dataclasses.replace(run, command=HOSTILE, software=HOSTILE, framework=HOSTILE)
    columns = (Column("samples_per_second", HOSTILE, ",.0f"),)
    hostile = Experiment("hostile", HOSTILE, columns, axis=HOSTILE, notes=[HOSTILE], runs=[run])
    text = page(
        Report(
            machine={**MACHINE, "cpu": HOSTILE, "arguments": [HOSTILE]},
            experiments=[*experiments, hostile],
            failed={HOSTILE: HOSTILE},
            skipped={HOSTILE: [HOSTILE]},
        )
    )
    elements = Elements(text)
    assert {"script", "img"}.isdisjoint(elements.names)
    assert elements.text.count(HOSTILE) >= 15


def test_each_row_has_its_spread_and_its_command(experiments: list[Experiment]) -> None:
    elements = Elements(page(Report(MACHINE, experiments)))
    text = re.sub(r"\s+", " ", elements.text)
    assert "SafeSequence threads 4 3 9.00 4,500 4,275 to 4,950 10.0% 9.5% to 11.0%" in text
    for run in experiments[0].runs:
        assert run.command in text


def test_the_summary_is_on_top_and_says_who_is_how_much_better(
    experiments: list[Experiment],
) -> None:
    runs = [
        dataclasses.replace(run, ours=run.loader.startswith("SafeSequence"))
        for run in experiments[0].runs
    ]
    training = dataclasses.replace(experiments[0], runs=runs)
    text = page(Report(MACHINE, [training]))
    shown = re.sub(r"\s+", " ", Elements(text).text)
    row = "Keras 1.29 - 4,500 SafeSequence threads, workers 4 3,500 PyDataset threads, workers 4"
    assert row in shown
    assert shown.index("Summary") < shown.index(row) < shown.index("EPYC")
    # As bars, too, in the page itself.
    assert text.count("<svg") == 1


def test_what_failed_and_what_was_not_run_has_its_reason(report: Report) -> None:
    text = Elements(page(report)).text
    assert "failed, 1 of 1: Keras tf.data, workers 2: killed by SIGKILL" in text
    assert f"Fatal: {HOSTILE}" in text
    assert "not run, as ffcv isn't installed: ffcv" in text
    assert "failed: test_it.py::test_a: AssertionError: too slow" in text
    assert "not run, 1: grain isn't installed" in text


def test_the_comparison_is_on_the_page(report: Report) -> None:
    text = re.sub(r"\s+", " ", Elements(page(report)).text)
    row = "mnist: Keras SafeSequence threads 0 slower 0.10 samples_per_second 9,001 9,000 to 9,002"
    assert row in text
    without = Elements(page(dataclasses.replace(report, comparison=None)))
    assert "Against earlier results" not in without.text


def test_a_name_that_is_no_unicode_is_written_all_the_same(tmp_path: Path) -> None:
    """As of a folder on the command line whose name is in another encoding."""
    machine = {**MACHINE, "arguments": ["--data-dir", "caf\udce9"]}
    path = write_report(Report(machine=machine, experiments=[]), tmp_path)
    assert "caf\\udce9" in path.read_text(encoding="utf-8")


def test_an_accuracy_has_its_spread_over_seeds_on_the_page() -> None:
    runs = [made_up_run("a", accuracy=value, seed=seed) for seed, value in ((1, 0.84), (2, 0.86))]
    text = page(Report(MACHINE, [Experiment("mnist", "MNIST", runs=runs)]))
    assert "0.8500 ± 0.0141, n = 2" in text
    assert "0.8400 to 0.8600" not in text
    assert "mean ± standard deviation over n seeds" in text
