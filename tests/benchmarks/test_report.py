"""A report on one page, hostile text and all; and the comparison with earlier results."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import comparison as module
from benchmarks.harness.comparison import compare_results, read_earlier
from benchmarks.harness.figures import draw_figure
from benchmarks.harness.report import Report, page
from benchmarks.harness.results import Column, Experiment, Run, write_json
from tests.benchmarks.made_up import MACHINE, made_up_run, speeds

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


@pytest.fixture(scope="module")
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


@pytest.fixture(scope="module")
def report(experiments: list[Experiment], tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Through the real functions: figures drawn, earlier results read from a file."""
    pytest.importorskip("matplotlib", reason="the extra bench brings it, the extra test not")
    folder = tmp_path_factory.mktemp("report")
    drawn = {each.name: draw_figure(each, folder) for each in experiments}
    before = Experiment("mnist", "MNIST", runs=speeds("SafeSequence threads", 9_000, 9_001, 9_002))
    content = {**before.content(), "machine": MACHINE}
    earlier = read_earlier(write_json(content, folder / "earlier.json"))
    return Report(
        machine=MACHINE,
        experiments=experiments,
        figures={name: path for name, path in drawn.items() if path is not None},
        comparison=compare_results(earlier, experiments, MACHINE),
        failed={"test_it.py::test_a": "AssertionError: too slow"},
        skipped={"grain isn't installed": ["test_it.py::test_b"]},
    )


def test_page_asks_for_nothing_outside(report: Report) -> None:
    text = page(report)
    elements = Elements(text)
    fetched = [value for name, value in elements.attributes if name in FETCHING]
    assert fetched
    assert [value for value in fetched if not value.startswith(("data:", "#"))] == []
    assert {"script", "iframe", "object", "embed"}.isdisjoint(elements.names)
    assert "url(" not in text
    assert "@import" not in text


def test_page_keeps_hostile_text(experiments: list[Experiment]) -> None:
    """In all that others may write: names, notes, failures, logs, reasons."""
    run = made_up_run(HOSTILE, failure=HOSTILE, log=HOSTILE, samples_per_second=1)
    run = dataclasses.replace(run, command=HOSTILE, software=HOSTILE, framework=HOSTILE)
    columns = (Column("samples_per_second", HOSTILE, ",.0f"),)
    hostile = Experiment("hostile", HOSTILE, columns, axis=HOSTILE, notes=[HOSTILE], runs=[run])
    machine = {**MACHINE, "cpu": HOSTILE, "arguments": [HOSTILE]}
    unfinished = {"failed": {HOSTILE: HOSTILE}, "skipped": {HOSTILE: [HOSTILE]}}
    text = page(Report(machine=machine, experiments=[*experiments, hostile], **unfinished))
    elements = Elements(text)
    assert {"script", "img"}.isdisjoint(elements.names)
    assert elements.text.count(HOSTILE) >= 15


def test_page_says_why_rows_failed(report: Report) -> None:
    text = Elements(page(report)).text
    assert "failed, 1 of 1: Keras tf.data, workers 2: killed by SIGKILL" in text
    assert f"Fatal: {HOSTILE}" in text
    assert "not run, as ffcv isn't installed: ffcv" in text
    assert "failed: test_it.py::test_a: AssertionError: too slow" in text
    assert "not run, 1: grain isn't installed" in text


def compared(
    folder: Path,
    before: list[Run],
    now: list[Run],
    machine: dict[str, Any] | None = None,
    **settings: Any,
) -> module.Comparison:
    """Through the file, as between two sessions."""
    earlier = Experiment("made_up", "Made up", runs=before, **settings)
    path = write_json({**earlier.content(), "machine": MACHINE}, folder / "earlier.json")
    experiment = Experiment("made_up", "Made up", runs=now, **settings)
    return compare_results(read_earlier(path), [experiment], machine or MACHINE)


def verdicts(comparison: module.Comparison) -> dict[str, str]:
    return {change.row.split()[-2]: change.verdict for change in comparison.changes}


def verdict(folder: Path, before: list[float], now: list[float]) -> str:
    comparison = compared(folder, speeds("loader", *before), speeds("loader", *now))
    return verdicts(comparison)["loader"]


def test_noise(tmp_path: Path) -> None:
    assert verdict(tmp_path, [100, 110, 120], [60, 70, 100]) == module.SAME
    assert verdict(tmp_path, [100, 110, 120], [60, 70, 99]) == module.SLOWER
    assert verdict(tmp_path, [60, 70, 99], [100, 110, 120]) == module.FASTER
    # Five percent are noise, too.
    assert verdict(tmp_path, [100, 100, 100], [95, 95, 95]) == module.SAME
    assert verdict(tmp_path, [100, 100, 100], [94, 94, 94]) == module.SLOWER
    assert verdict(tmp_path, [100, 100, 100], [106, 106, 106]) == module.FASTER
