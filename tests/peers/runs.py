"""Which of the peers' tests are run, where these lie, and a run in a process of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.peers import outcomes
from tests.peers.outcomes import Outcomes

# The environment variable that names MXNet's source, as a tree or as an archive.
MXNET_SOURCE = "ADAPTERS_MXNET_SOURCE"


@dataclass(frozen=True)
class Suite:
    """Some files of a peer's."""

    name: str
    package: str
    files: tuple[str, ...]  # Below the root of the source.
    replacement: str  # The plugin that puts ours in place.
    variants: Mapping[str, Mapping[str, str]]  # What is run, and with which environment.
    selection: str = ""  # A regular expression in ``file.py::Class::test``: what concerns it.
    surroundings: tuple[str, ...] = ()  # Plugins that theirs need, too.


# Every worker process imports Keras and its backend.
_SHORT = "" if os.environ.get("ADAPTERS_PEERS_ALL") else "(?!.*multiprocessing)"
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
        f"^{_SHORT}.*(py_dataset|pydataset|test_epoch_callbacks)",
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
)


def find(suite: Suite, folder: Path) -> Path:
    """The root of the source, unpacked to the folder if need be; skips the test without one."""
    spec = importlib.util.find_spec(suite.package)
    if spec is None:
        pytest.skip(f"{suite.package} isn't installed")
    assert spec.origin is not None
    given = os.environ.get(MXNET_SOURCE)
    if suite.package == "keras":  # Its wheel has its tests with it.
        root = Path(spec.origin).parents[1]
    elif given is None:
        pytest.skip(f"{MXNET_SOURCE} must name MXNet's source tree, or an archive of it")
    else:
        root = Path(given)
        if root.is_file():
            shutil.unpack_archive(root, folder)
            (root,) = folder.iterdir()
    missing = [file for file in suite.files if not (root / file).exists()]
    assert missing == [], f"{root} must have the tests of {suite.package}"
    return root


_REPOSITORY = Path(__file__).parents[2]
_TEST_SECONDS = 120
_LIMIT_SECONDS = 900


@contextlib.contextmanager
def started(
    suite: Suite, variant: str, root: Path, folder: Path, *, ours: bool
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the tests of a suite, which lie in ``root``; ``ended`` waits for them.

    They run in an empty folder, and are killed at the end.
    """
    replacement = [suite.replacement, "tests.peers.by_value"] if ours else []
    plugins = ["tests.peers.outcomes", *suite.surroundings, *replacement]
    work = folder / "work"
    work.mkdir(parents=True)
    command = [
        *(sys.executable, "-m", "pytest"),
        *("-c", os.devnull, f"--rootdir={work}", "--noconftest", "-p", "no:cacheprovider"),
        *(f"--timeout={_TEST_SECONDS}", "-W", "ignore", "--tb=short"),
        *(argument for plugin in plugins for argument in ("-p", plugin)),
        *(str(root / file) for file in suite.files),
    ]
    # What this run of pytest was told is not for that one.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment = {
        **own,
        **suite.variants[variant],
        outcomes.FILE: str(folder / "outcomes"),
        outcomes.SELECTED: suite.selection,
        "PYTHONPATH": os.pathsep.join(map(str, (_REPOSITORY, root))),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    options = {"cwd": work, "env": environment, "start_new_session": True}
    with (
        (folder / "output").open("wb") as output,
        subprocess.Popen(
            command, **options, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            yield process
        finally:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def ended(process: subprocess.Popen[bytes], folder: Path) -> Outcomes:
    """What became of each test that runs in a folder, once all have ended or the time is up."""
    # A test that hangs in C++ hears no signal.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_LIMIT_SECONDS)
    _kill(process)
    found = outcomes.read(folder / "outcomes")
    assert found, f"no test was run:\n{(folder / 'output').read_text()[-4000:]}"
    return found
