"""`pytest benchmarks`: its options, its session, what it prints and writes at the end."""

from __future__ import annotations

import faulthandler
import os
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import pytest

from benchmarks.harness.comparison import (
    USUAL_RUNS,
    Comparison,
    Earlier,
    check_size,
    compare_results,
    comparison_lines,
    read_earlier,
    suspects,
)
from benchmarks.harness.figures import draw_figure
from benchmarks.harness.machine import describe_machine
from benchmarks.harness.report import Report, write_report
from benchmarks.harness.results import write_json
from benchmarks.harness.sweeps import Session
from benchmarks.harness.tables import markdown_table, text_table

RESULTS = Path(__file__).resolve().parent / "results"
SESSION = pytest.StashKey[Session]()
EARLIER = pytest.StashKey[Earlier | None]()
COMPARISON = pytest.StashKey[Comparison]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The size of the run, its data, and where its results go."""
    group = parser.getgroup("benchmarks", "benchmarks of the loaders")
    size = "benchmarks_size"
    group.addoption(
        "--full",
        action="store_const",
        const="full",
        default="default",
        dest=size,
        help="the published size: every number of workers, whole data sets",
    )
    group.addoption(
        "--smoke",
        action="store_const",
        const="smoke",
        dest=size,
        help="the smallest size: whether every row runs, no numbers worth reading",
    )
    group.addoption(
        "--data-dir",
        type=Path,
        dest="benchmarks_data_dir",
        help="a folder with the data sets; default: where Keras and MXNet keep theirs",
    )
    group.addoption(
        "--out",
        type=Path,
        default=RESULTS,
        dest="benchmarks_out",
        help="the folder for JSON, Markdown and figures (default: %(default)s)",
    )
    group.addoption(
        "--repeats",
        type=int,
        dest="benchmarks_repeats",
        help="run each row so many times and give medians (default: the experiment's)",
    )
    group.addoption(
        "--rows",
        default="",
        dest="benchmarks_rows",
        help='only rows whose name contains this, as "threads workers 2"; where it is the whole '
        'name of a row, only that; "this|that" takes both',
    )
    group.addoption(
        "--peers",
        action="store_true",
        dest="benchmarks_peers",
        help="only the pictures behind every loader that is installed, ours and others",
    )
    group.addoption(
        "--compare",
        type=Path,
        metavar="OLD.json",
        dest="benchmarks_compare",
        help="the run.json, or an experiment's JSON, of an earlier session: say what got slower "
        f"and fail if anything did; without --repeats, each row runs at least {USUAL_RUNS} times",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Check the options and open the session."""
    config.addinivalue_line("markers", "peers: what --peers selects")
    repeats = config.getoption("benchmarks_repeats")
    if repeats is not None and repeats < 1:
        raise pytest.UsageError(f"--repeats must be >= 1, got {repeats}")
    size, out = config.getoption("benchmarks_size"), config.getoption("benchmarks_out").resolve()
    config.stash[EARLIER] = earlier = _earlier(config.getoption("benchmarks_compare"), size, out)
    _check_out(out)
    data_dir = config.getoption("benchmarks_data_dir")
    if data_dir is not None and not data_dir.is_dir():
        raise pytest.UsageError(f"--data-dir must be a folder, got {data_dir}")
    capture = config.pluginmanager.getplugin("capturemanager")

    def uncaptured() -> AbstractContextManager[None]:
        return nullcontext() if capture is None else capture.global_and_fixture_disabled()

    config.stash[SESSION] = Session(
        size=size,
        repeats=repeats,
        rows=config.getoption("benchmarks_rows"),
        out=out,
        # Rows don't run in the folder that the command line means.
        data_dir=None if data_dir is None else data_dir.resolve(),
        uncaptured=uncaptured,
        least_repeats=1 if earlier is None else USUAL_RUNS,
        peers=config.getoption("benchmarks_peers"),
        suspects=(lambda experiment: set()) if earlier is None else partial(suspects, earlier),
    )


def _earlier(path: Path | None, size: str, out: Path) -> Earlier | None:
    """What `--compare` names, before hours are spent."""
    if path is None:
        return None
    try:
        earlier = read_earlier(path)
        check_size(earlier, size)
    except ValueError as error:
        raise pytest.UsageError(f"--compare: {error}") from error
    written = {"run.json", *(f"{name}.json" for name in earlier.runs)}
    if path.resolve().parent == out and path.name in written:
        raise pytest.UsageError(
            f"--compare: this session would write over {path}, and the next one compare with what "
            "may be slower: move the file, or choose another --out"
        )
    return earlier


def _check_out(out: Path) -> None:
    """See that something can be written there; nothing is made yet."""
    there = next(each for each in (out, *out.parents) if each.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise pytest.UsageError(f"--out must be a folder that can be written to, got {out}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the peers; no time limit of the tests' for a sweep, as each row has its own.

    Nor does a sweep run again when it failed: its runs would count twice.
    """
    if config.getoption("benchmarks_peers"):
        others = [item for item in items if item.get_closest_marker("peers") is None]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]
    if config.pluginmanager.hasplugin("timeout"):
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.timeout(0))
    if config.pluginmanager.hasplugin("rerunfailures"):
        for item in items:
            if "session" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.flaky(reruns=0))


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Session:
    """The command line's choices, and what ran so far."""
    # As above, for pytest's own `faulthandler_timeout`.
    faulthandler.cancel_dump_traceback_later()
    return request.config.stash[SESSION]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Compare, and fail where a row got slower; or where no row has the name asked for.

    Or where a process that rows shared didn't end well.
    """
    earlier, own = session.config.stash[EARLIER], session.config.stash[SESSION]
    if own.close() and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if not own.ran:
        if _none_named(session.config, exitstatus):
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
        return
    if earlier is None:
        return
    comparison = compare_results(earlier, own.experiments.values(), describe_machine())
    session.config.stash[COMPARISON] = comparison
    if comparison.slower and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _none_named(config: pytest.Config, exitstatus: int) -> bool:
    """Whether `--rows` found nothing to run, and nothing else went wrong."""
    own = config.stash[SESSION]
    well = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    return bool(own.rows) and well and not own.ran and not config.option.collectonly


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Print each experiment's table, draw its figure; write the report, and say where all lies."""
    session = config.stash[SESSION]
    figures: dict[str, Path] = {}
    for experiment in session.experiments.values():
        if not experiment.runs:
            continue
        terminalreporter.section(experiment.name)
        terminalreporter.write_line(text_table(experiment))
        terminalreporter.write_line("")
        terminalreporter.write_line("with the range of every figure, in Markdown and as a page:")
        markdown = session.out / f"{experiment.name}.md"
        written = [experiment.write_json(session.out), markdown]
        markdown.write_text(markdown_table(experiment) + "\n", encoding="utf-8")
        figure = draw_figure(experiment, session.out)
        if figure is not None:
            figures[experiment.name] = figure
            written.append(figure)
        for path in written:
            terminalreporter.write_line(f"written: {path}")
    if session.unended:
        terminalreporter.section("processes that didn't end well")
        for line in session.unended:
            terminalreporter.write_line(line)
    if _none_named(config, exitstatus):
        terminalreporter.section("no row ran")
        terminalreporter.write_line(
            f"none of this size has a name that contains {session.rows!r}; run.json is as it was"
        )
    elif session.experiments:
        _write_session(terminalreporter, config, figures)


def _write_session(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config, figures: dict[str, Path]
) -> None:
    """What concerns all experiments: the comparison, `run.json`, `report.html`."""
    session, comparison = config.stash[SESSION], config.stash.get(COMPARISON, None)
    if comparison is not None:
        terminalreporter.section("comparison")
        for line in comparison_lines(comparison):
            terminalreporter.write_line(line)
        terminalreporter.write_line("")
    machine = describe_machine()
    experiments = list(session.experiments.values())
    content = {
        "machine": machine,
        "experiments": [each.content() for each in experiments],
        "comparison": None if comparison is None else comparison.content(),
    }
    report = Report(
        machine=machine,
        experiments=experiments,
        figures=figures,
        comparison=comparison,
        failed={each.nodeid: _reason(each) for each in _reports(terminalreporter, "failed")},
        skipped=_skipped(terminalreporter),
    )
    for path in (
        write_json(content, session.out / "run.json"),
        write_report(report, session.out),
    ):
        terminalreporter.write_line(f"written: {path}")


def _reports(terminalreporter: pytest.TerminalReporter, outcome: str) -> list[pytest.TestReport]:
    """Of tests and of files that couldn't be collected."""
    kinds = (outcome, "error") if outcome == "failed" else (outcome,)
    return [each for kind in kinds for each in terminalreporter.stats.get(kind, [])]


def _reason(report: pytest.TestReport) -> str:
    """The exception's first line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(report.longrepr) if crash is None else str(crash.message)
    return next(iter(text.strip().splitlines()), "")


def _skipped(terminalreporter: pytest.TerminalReporter) -> dict[str, list[str]]:
    """Tests by the reason why they were skipped."""
    reasons: dict[str, list[str]] = {}
    for report in _reports(terminalreporter, "skipped"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        reasons.setdefault(reason.removeprefix("Skipped: "), []).append(report.nodeid)
    return reasons
