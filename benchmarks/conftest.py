"""`pytest benchmarks`: its options, its order, its session, what it prints and writes."""

from __future__ import annotations

import faulthandler
import os
import shutil
import webbrowser
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from benchmarks.data.cache import cache_folder
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
from benchmarks.harness.report import REPORT, Report, write_report
from benchmarks.harness.results import write_json
from benchmarks.harness.summary import summary_lines
from benchmarks.harness.sweeps import Session
from benchmarks.harness.tables import markdown_table, text_table

RESULTS = Path(__file__).resolve().parent / "results"
LAB = Path(__file__).resolve().parent / "lab"
PEERS = LAB / "test_peers.py"
# What a newcomer wants to see first.
ORDER = ("mnist_keras", "mnist_gluon", "batch_cost", "races", "sleeping", "caltech", "ratios")
# By size, on two cores: how long it takes, and the disk for data that are made once.
NEEDS = {
    "smoke": ("some minutes", 1.0),
    "default": ("up to 10 minutes on two cores", 0.7),
    "long": ("an hour on two cores", 1.0),
    "full": ("some hours on two cores", 1.5),
}
SESSION = pytest.StashKey[Session]()
EARLIER = pytest.StashKey[Earlier | None]()
COMPARISON = pytest.StashKey[Comparison]()
FIGURES = pytest.StashKey[dict[str, Path]]()
SHOWN = pytest.StashKey[dict[str, int]]()


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
        help="the smallest size: whether every loader runs, no numbers worth reading",
    )
    group.addoption(
        "--long",
        action="store_true",
        dest="benchmarks_long",
        help="also what the default has no time for: sweeps over cores, all ratios",
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
        "--hold",
        action="store_true",
        dest="benchmarks_hold",
        help="fail if a bar of reference.json is missed; otherwise that is information",
    )
    group.addoption(
        "--open",
        action="store_true",
        dest="benchmarks_open",
        help="open the report in a browser as soon as it has a row",
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
    """Check the options, open the session, and say what it needs."""
    config.addinivalue_line("markers", "long: what the default has no time for")
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
        long=config.getoption("benchmarks_long"),
        suspects=(lambda experiment: set()) if earlier is None else partial(suspects, earlier),
        after_row=partial(_show_page, config),
    )
    config.stash[FIGURES], config.stash[SHOWN] = {}, {}
    if not config.option.collectonly:
        _say_needs(config.stash[SESSION])


def _say_needs(session: Session) -> None:
    """Where there is something to look at, and what it takes."""
    print(f"report: {session.out / REPORT}, written after each row", flush=True)
    size = "long" if session.long and session.size == "default" else session.size
    time, gigabytes = NEEDS[size]
    folder = cache_folder()
    print(f"needs {time}, and up to {gigabytes:g} GB in {folder} for data that are made once")
    there = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(there).free / 1e9
    if free < gigabytes:
        print(f"only {free:.1f} GB are free there: set XDG_CACHE_HOME to another disk")


def _show_page(config: pytest.Config, running: bool = True) -> Path:
    """Write the report of what there is so far; a browser opens it the first time, if asked to."""
    session = config.stash[SESSION]
    reporter = config.pluginmanager.getplugin("terminalreporter")
    report = Report(
        machine=describe_machine(),
        experiments=list(session.experiments.values()),
        figures=config.stash[FIGURES],
        comparison=config.stash.get(COMPARISON, None),
        failed={each.nodeid: _reason(each) for each in _reports(reporter, "failed")},
        skipped=_skipped(reporter),
        running=running,
    )
    path = write_report(report, session.out)
    if config.option.benchmarks_open:
        config.option.benchmarks_open = False
        webbrowser.open(path.as_uri())
    return path


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


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The lab is for those who name it; with `--peers`, nothing else is."""
    if collection_path.suffix not in ("", ".py"):
        return None
    if config.option.benchmarks_peers:
        return collection_path not in (PEERS, *PEERS.parents) or None
    named = [Path(word.partition("::")[0]).resolve() for word in config.args]
    asked = any(each == LAB or LAB in each.parents for each in named)
    return True if collection_path == LAB and not asked else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The order; what is long is left out of the default, unless its file is named.

    No time limit of the tests' for a sweep, as each row has its own.
    """
    places = {f"test_{name}": place for place, name in enumerate(ORDER)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))
    session = config.stash[SESSION]
    named = {word.partition("::")[0] for word in config.args if ".py" in word}
    if not session.all_rows and not named:
        left_out = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    if config.pluginmanager.hasplugin("timeout"):
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.timeout(0))


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Session:
    """The command line's choices, and what ran so far."""
    # As above, for pytest's own `faulthandler_timeout`.
    faulthandler.cancel_dump_traceback_later()
    return request.config.stash[SESSION]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Show the tables of a test function once it has run with all of its parameters."""
    if nextitem is not None and (item.path, item.name.partition("[")[0]) == (
        nextitem.path,
        nextitem.name.partition("[")[0],
    ):
        return
    session = item.config.stash[SESSION]
    with session.uncaptured():
        for line in _new_tables(item.config):
            print(line, flush=True)
    if session.ran:
        _show_page(item.config)


def _new_tables(config: pytest.Config) -> Iterator[str]:
    """Tables of the rows that no table has shown yet; draws their figures."""
    session, shown = config.stash[SESSION], config.stash[SHOWN]
    for experiment in session.experiments.values():
        new = experiment.runs[shown.get(experiment.name, 0) :]
        shown[experiment.name] = len(experiment.runs)
        if not new:
            continue
        frameworks = {run.framework for run in new}
        runs = [run for run in experiment.runs if run.framework in frameworks]
        yield f"\n\n{text_table(replace(experiment, runs=runs))}\n"
        figure = draw_figure(experiment, session.out)
        if figure is not None:
            config.stash[FIGURES][experiment.name] = figure


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Compare, and fail if a row got slower; with `--hold`, if a bar was missed.

    Or if no row has the name asked for.
    """
    earlier, own = session.config.stash[EARLIER], session.config.stash[SESSION]
    if not own.ran:
        if _none_named(session.config, exitstatus):
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
        return
    if exitstatus == pytest.ExitCode.OK and session.config.option.benchmarks_hold and own.missed:
        session.exitstatus = exitstatus = pytest.ExitCode.TESTS_FAILED
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
    """Print all in a few lines, and where the tables, figures and the report lie."""
    session = config.stash[SESSION]
    if _none_named(config, exitstatus):
        terminalreporter.section("no row ran")
        terminalreporter.write_line(
            f"none of this size has a name that contains {session.rows!r}; run.json is as it was"
        )
        return
    if not session.ran:
        return
    experiments = list(session.experiments.values())
    terminalreporter.section("summary")
    for line in summary_lines(experiments):
        terminalreporter.write_line(line)
    if session.verdicts:
        terminalreporter.section("beside the reference machines")
        for verdict in session.verdicts:
            terminalreporter.write_line(str(verdict))
        terminalreporter.write_line(
            f"bars missed: {len(session.missed)}; that is information, unless --hold is given"
        )
    comparison = config.stash.get(COMPARISON, None)
    if comparison is not None:
        terminalreporter.section("comparison")
        for line in comparison_lines(comparison):
            terminalreporter.write_line(line)
    terminalreporter.section("results")
    written = [_show_page(config, running=False)]
    content = {
        "machine": describe_machine(),
        "experiments": [each.content() for each in experiments],
        "comparison": None if comparison is None else comparison.content(),
    }
    written.append(write_json(content, session.out / "run.json"))
    for experiment in experiments:
        if experiment.runs:
            markdown = session.out / f"{experiment.name}.md"
            markdown.write_text(markdown_table(experiment) + "\n", encoding="utf-8")
            written += [experiment.write_json(session.out), markdown]
    for path in (*written, *config.stash[FIGURES].values()):
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
