"""`pytest benchmarks`: its options, its session and what it prints at the end."""

from __future__ import annotations

import faulthandler
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from benchmarks.figures import draw_figure
from benchmarks.sweeps import Session
from benchmarks.tables import markdown_table, text_table

RESULTS = Path(__file__).resolve().parent / "results"
SESSION = pytest.StashKey[Session]()


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
        help='only rows whose name contains this, as "threads workers 2"',
    )


def pytest_configure(config: pytest.Config) -> None:
    """Check the options and open the session."""
    repeats = config.getoption("benchmarks_repeats")
    if repeats is not None and repeats < 1:
        raise pytest.UsageError(f"--repeats must be >= 1, got {repeats}")
    capture = config.pluginmanager.getplugin("capturemanager")

    def uncaptured() -> AbstractContextManager[None]:
        return nullcontext() if capture is None else capture.global_and_fixture_disabled()

    config.stash[SESSION] = Session(
        size=config.getoption("benchmarks_size"),
        repeats=repeats,
        rows=config.getoption("benchmarks_rows"),
        out=config.getoption("benchmarks_out").resolve(),
        data_dir=config.getoption("benchmarks_data_dir"),
        uncaptured=uncaptured,
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """No time limit of the tests' for a sweep: each row has its own."""
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


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print each experiment's table, draw its figure, and say where both were written."""
    session = config.stash[SESSION]
    for experiment in session.experiments.values():
        if not experiment.runs:
            continue
        terminalreporter.section(experiment.name)
        terminalreporter.write_line(text_table(experiment))
        terminalreporter.write_line("")
        markdown = session.out / f"{experiment.name}.md"
        written = [experiment.write_json(session.out), markdown]
        markdown.write_text(markdown_table(experiment) + "\n")
        figure = draw_figure(experiment, session.out)
        for path in [*written, *([figure] if figure else [])]:
            terminalreporter.write_line(f"written: {path}")
