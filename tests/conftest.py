"""After every test: no new thread, child process or shared memory is left.

``--backends`` adds the tests of Keras on the other backends and versions that are installed.
``--full`` adds these and what is marked ``full``, which takes minutes, or which other tests mostly
cover. ``report`` is for what a test finds out without judging it: its lines are printed when all is
done.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import hypothesis
import pytest

from adapters.engine import memory, pool
from adapters.engine.engine import _engines
from tests import fuzzing
from tests.engine.executors import end_idle_workers
from tests.leftovers import Leftovers

# A limit of 200 ms for each example would be one on what else the machine does.
hypothesis.settings.register_profile("without_a_clock", deadline=None)
hypothesis.settings.load_profile("without_a_clock")

pytest_plugins = ["tests.limits", "tests.side_by_side"]

REPORT_MARK = "keras-report: "
_PROPERTY = "report"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--backends`` and ``--full``."""
    parser.addoption(
        "--backends", action="store_true", help="test the other backends of Keras, too, as CI does"
    )
    parser.addoption("--full", action="store_true", help="run everything, as is done once a night")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and set the size of what is fuzzed."""
    config.addinivalue_line("markers", "full: runs with --full only")
    config.addinivalue_line("markers", "backends: runs with --backends or --full only")
    if config.getoption("full"):
        fuzzing.take_all()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip long tests before their fixtures are set up."""
    full, backends = map(item.config.getoption, ("full", "backends"))
    if item.get_closest_marker("full") is not None and not full:
        pytest.skip("long: pytest --full runs it")
    if item.get_closest_marker("backends") is not None and not (full or backends):
        pytest.skip("long: pytest --backends runs it")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was reported, by any process."""
    reports = [each for kind in terminalreporter.stats.values() for each in kind]
    calls = [each for each in reports if getattr(each, "when", None) == "call"]
    lines = [line for each in calls for name, line in each.user_properties if name == _PROPERTY]
    if lines:
        terminalreporter.section("Keras")
    for line in lines:
        terminalreporter.write_line(f"{REPORT_MARK}{line}")


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Print a line when all tests are done."""
    return lambda line: record_property(_PROPERTY, line)


@pytest.fixture(scope="module", autouse=True)
def little_to_collect() -> None:
    """Hide the frameworks' and pytest's own objects from who collects garbage.

    Worth it: to look at all of them takes 0.3 s, and a thousand tests would, a sixth of the whole.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Write nothing into the user's cache folder; processes that tests start don't, either."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Fail a test that leaves something behind, but for worker processes that are kept."""
    before = Leftovers.now()
    yield
    if left := before.lasting():
        # The traceback of a failed test keeps what the test had open; the next tests go without it.
        for engine in list(_engines):
            engine.close()
        pytest.fail("left behind:\n" + "\n".join(left))


@pytest.fixture(autouse=True)
def processes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are kept for the next test. How they end is tested in tests/engine/test_pool.py."""
    monkeypatch.setattr(pool, "_LINGER_SECONDS", 30)


@pytest.fixture
def new_processes(processes_are_kept: None) -> None:
    """The processes of a test are started for it."""
    end_idle_workers()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches on threads use memory again, however small they are."""
    monkeypatch.setattr(memory, "_LEAST_BYTES", 1)
