"""Which of the peers' tests are run, where these lie, and a run in a process of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.peers import outcomes
from tests.peers.outcomes import Outcomes

WRITER_OR_READER = "ADAPTERS_PEERS_RECORDIO"
"""The environment variable that tells ``in_recordio`` which of the two is ours."""


@dataclass(frozen=True)
class Suite:
    """Some files of a peer's."""

    name: str
    package: str
    files: tuple[str, ...]
    """Below the root of the source."""
    replacement: str
    """The plugin that puts ours in place."""
    variants: Mapping[str, Mapping[str, str]]
    """What is run, and with which environment."""
    selection: str = ""
    """A regular expression in ``file.py::Class::test`` of what has to do with what is replaced."""
    long: str = ""
    """Another one, of what takes long, and is run only where all is asked for."""
    surroundings: tuple[str, ...] = ()
    """Plugins that theirs need, too."""


SUITES = (
    Suite(
        "keras",
        "keras",
        (
            "keras/src/trainers/data_adapters/py_dataset_adapter_test.py",
            "keras/src/trainers/trainer_test.py",
            "keras/src/trainers/epoch_iterator_test.py",
            "keras/src/layers/preprocessing/normalization_test.py",
        ),
        "tests.peers.in_keras",
        {
            "tensorflow": {"KERAS_BACKEND": "tensorflow"},
            "jax": {"KERAS_BACKEND": "jax"},
            # Without compiling models, which takes minutes, and reads no data.
            "torch": {"KERAS_BACKEND": "torch", "TORCHDYNAMO_DISABLE": "1"},
        },
        "py_dataset|pydataset|test_epoch_callbacks",
        # Every worker process imports Keras and its backend.
        long="multiprocessing",
    ),
    Suite(
        "gluon data",
        "mxnet",
        ("tests/python/unittest/test_gluon_data.py",),
        "tests.peers.in_gluon",
        {"": {}},
        # test_datasets downloads nine data sets, and loads nothing from them.
        "::(?!test_datasets$)",
        surroundings=("tests.peers.mxnet_surroundings",),
    ),
    Suite(
        "recordio",
        "mxnet",
        ("tests/python/unittest/test_recordio.py",),
        "tests.peers.in_recordio",
        {name: {WRITER_OR_READER: name} for name in ("writer", "reader")},
        # Packs 65,000 labels.
        long="test_recordio_pack_label",
        surroundings=("tests.peers.mxnet_surroundings",),
    ),
)


# What every tree with the tests has.
_LANDMARKS = {
    "keras": "keras/src/version.py",
    "mxnet": "tests/python/unittest/test_gluon_data.py",
}


@dataclass(frozen=True)
class Source:
    """A tree with tests in it."""

    root: Path
    version: tuple[int, ...]
    """Of Keras; MXNet's last one was 1.9.1."""
    installed: bool
    """Whether its modules are on Python's path already."""


class Absent(Exception):
    """There are no tests; says where they are looked for, and what to set."""


def find(package: str, folder: Path) -> Source:
    """The tests of an installed package.

    Args:
        package: ``"keras"`` or ``"mxnet"``.
        folder: Where an archive may be unpacked to.

    Raises:
        Absent: There are none, or the package isn't installed.
    """
    if importlib.util.find_spec(package) is None:
        raise Absent(f"{package} isn't installed")
    variable = f"ADAPTERS_{package.upper()}_SOURCE"
    given = os.environ.get(variable)
    if given:
        root = _root(Path(given), package, folder)
        if root is None:
            raise FileNotFoundError(
                f"{variable} must name a source tree or a tar archive of {package}, with "
                f"{_LANDMARKS[package]} in it, got {given}"
            )
        return Source(root, _version(root, package), installed=False)
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parents[1]
    if package != "keras" or not (root / "keras/src/trainers/trainer_test.py").exists():
        raise Absent(
            f"the installed {package} has no tests with it: set {variable} to its source tree, or "
            "to a tar archive of that"
        )
    return Source(root, _version(root, package), installed=True)


def _root(given: Path, package: str, folder: Path) -> Path | None:
    """The folder that the paths of tests begin at, in what was given or one below it."""
    if given.is_file() and tarfile.is_tarfile(given):
        with tarfile.open(given) as archive:
            # Which Python has since 3.10.12 and 3.11.4.
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            archive.extractall(folder)
        given = folder
    below = sorted(given.iterdir()) if given.is_dir() else []
    return next((root for root in [given, *below] if (root / _LANDMARKS[package]).exists()), None)


def _version(root: Path, package: str) -> tuple[int, ...]:
    if package != "keras":
        return 1, 9, 1
    found = re.search(r'__version__ = "([^"]+)"', (root / _LANDMARKS[package]).read_text())
    assert found is not None
    return tuple(int(part) for part in re.findall(r"\d+", found[1]))


_REPOSITORY = Path(__file__).parents[2]
_TEST_SECONDS = 120
_LIMIT_SECONDS = 900


class Run:
    """Begins at once; ``outcomes`` waits for its end.

    Args:
        suite: What is run.
        variant: The name of one of the suite's.
        source: Where its files are.
        folder: An empty one to run in, as an absolute path.
        ours: Put ours in the place of theirs.
        all_of_it: With what takes long.
    """

    def __init__(
        self,
        suite: Suite,
        variant: str,
        source: Source,
        folder: Path,
        *,
        ours: bool,
        all_of_it: bool,
    ) -> None:
        self._outcomes = folder / "outcomes"
        self._output = folder / "output"
        replacement = [suite.replacement, "tests.peers.by_value"] if ours else []
        plugins = ["tests.peers.outcomes", *suite.surroundings, *replacement]
        path = [str(_REPOSITORY), *[str(source.root)] * (not source.installed)]
        work = folder / "work"
        work.mkdir()
        command = [
            *(sys.executable, "-m", "pytest"),
            *("-c", os.devnull, f"--rootdir={work}", "--noconftest", "-p", "no:cacheprovider"),
            *(f"--timeout={_TEST_SECONDS}", "-W", "ignore", "--tb=short"),
            *(argument for plugin in plugins for argument in ("-p", plugin)),
            *(str(source.root / file) for file in suite.files),
        ]
        # What this run of pytest was told is not for that one.
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        environment = {
            **own,
            **suite.variants[variant],
            outcomes.FILE: str(self._outcomes),
            outcomes.SELECTED: suite.selection,
            outcomes.LEFT_OUT: "" if all_of_it else suite.long,
            "PYTHONPATH": os.pathsep.join(path),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                command,
                cwd=work,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def outcomes(self) -> Outcomes:
        """What became of each test, once all have ended or the time is up.

        Raises:
            AssertionError: There is none.
        """
        # A test that hangs in C++ hears no signal.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LIMIT_SECONDS)
        self.kill()
        found = outcomes.read(self._outcomes)
        assert found, f"no test was run:\n{self._output.read_text()[-4000:]}"
        return found

    def kill(self) -> None:
        """End the process and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
