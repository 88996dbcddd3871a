"""After every test: no new thread, child process or shared memory is left.

``--full`` adds what is marked ``full``: it takes minutes, or other tests cover most of it.
``-n auto`` starts two processes for each CPU, as tests wait for a third of their time: for
processes that start, or for events. What is marked ``serial`` measures time, and runs by itself.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator

import hypothesis
import pytest

from adapters.cpus import usable_cpus
from adapters.engine import memory, pool
from adapters.engine.engine import _engines
from adapters.remote import fetch
from tests import fuzzing
from tests.engine.executors import end_idle_workers
from tests.leftovers import Leftovers

# A limit of 200 ms for each example would be one on what else the machine does.
hypothesis.settings.register_profile("without_a_clock", deadline=None)
hypothesis.settings.load_profile("without_a_clock")

# A process may come to import TensorFlow, JAX, PyTorch and MXNet: 1 GB.
_MOST_PROCESSES = 12


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--full``."""
    parser.addoption("--full", action="store_true", help="run everything, as is done once a night")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and set the size of what is fuzzed."""
    config.addinivalue_line("markers", "full: runs with --full only")
    config.addinivalue_line("markers", "serial: measures time; runs while no other test does")
    if config.getoption("full"):
        fuzzing.take_all()
    # OpenMP's threads wait for each other by spinning, and take CPUs that other tests need.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of processes of ``-n auto``."""
    return min(2 * usable_cpus(), _MOST_PROCESSES)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while test files and frameworks are imported: that takes seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip long tests before their fixtures are set up."""
    if item.get_closest_marker("full") is not None and not item.config.getoption("full"):
        pytest.skip("long: pytest --full runs it")


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


@pytest.fixture(scope="session", autouse=True)
def threads_that_fetch_end_soon() -> Iterator[None]:
    """Each test of remote files waits until the threads have gone, which stay for 0.5 s else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch, "_IDLE_SECONDS", 0.05)
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
