"""Which backend of Keras the tests in this folder run on.

Keras fixes its backend when it is imported, so one process tests one backend: the one that
``KERAS_BACKEND`` names, TensorFlow if it doesn't. With ``--backends``, ``test_backends.py`` runs
the folder again on each further backend that is installed, in a process of its own, without what is
marked ``full``, but for what is ``full_on_each_backend``.

``ADAPTERS_KERAS_PYTHONS=/path/to/python:/path/to/another`` names further interpreters, with other
versions of Keras in them (and pytest, pytest-rerunfailures, pytest-timeout, psutil, scipy and this
package); the first backend that is installed beside each of them is run, too, and with ``--full``
every one. What is marked
``one_backend`` is repeated by neither, and what is marked ``one_keras`` by no further interpreter:
nothing that is different there changes it.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import cloudpickle
import pytest

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# TensorFlow's news about the processor.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

BACKENDS = ("tensorflow", "jax", "torch")
# Set for the other processes, which must not start further ones: what is other there.
CHILD = "ADAPTERS_KERAS_CHILD"
_LEFT_OUT = {"backend": ("one_backend",), "keras": ("one_backend", "one_keras")}

full_on_each_backend = pytest.mark.one_keras if CHILD in os.environ else pytest.mark.full

collect_ignore = ["test_backends.py"] if os.environ.get(CHILD) else []


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known."""
    config.addinivalue_line("markers", "one_backend: isn't repeated for other backends")
    config.addinivalue_line("markers", "one_keras: isn't repeated for other versions of Keras")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what this backend and this Keras can't change."""
    markers = _LEFT_OUT.get(os.environ.get(CHILD, ""), ())
    left_out = [item for item in items if any(map(item.get_closest_marker, markers))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def sent_by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the test's file defines reaches processes as what a script defines, without its imports.

    Importing Keras takes each process 2 to 4 seconds.
    """
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


@functools.cache
def _backends_beside(python: str) -> tuple[str, ...]:
    """List the backends that are installed for an interpreter."""
    look = f"import importlib.util as u; print(*filter(u.find_spec, {BACKENDS!r}))"
    found = subprocess.run([python, "-c", look], check=True, capture_output=True, text=True)
    return tuple(found.stdout.split())


@dataclass(frozen=True)
class OtherRun:
    """This folder's tests, elsewhere."""

    python: str
    backend: str

    @property
    def name(self) -> str:
        """For people and files."""
        place = Path(self.python).parents[1].name
        return self.backend if self.python == sys.executable else f"{place}-{self.backend}"

    @cached_property
    def installed(self) -> bool:
        """Whether it can be."""
        if self.python == sys.executable:
            return importlib.util.find_spec(self.backend) is not None
        return self.backend in _backends_beside(self.python)

    @property
    def first(self) -> bool:
        """True for this interpreter, and for the first backend beside another one."""
        others = () if self.python == sys.executable else _backends_beside(self.python)
        return not others or others[0] == self.backend

    @property
    def absence(self) -> str:
        """Why it may be absent."""
        return "it is in no extra" if self.backend == "torch" else "it is in the extra test"

    def outcome(self, path: Path, *arguments: str) -> tuple[int, str]:
        """Exit code and output, which goes by way of this file.

        Args:
            path: Of the file.
            arguments: For pytest, in place of this folder.
        """
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        other = os.environ.get(CHILD, "backend" if self.python == sys.executable else "keras")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
        with open(path, "w") as file:
            ended = subprocess.run(
                [
                    self.python,
                    "-m",
                    "pytest",
                    *options,
                    *(arguments or [str(Path(__file__).parent)]),
                ],
                cwd=Path(__file__).parents[2],
                env={
                    **environment,
                    "KERAS_BACKEND": self.backend,
                    CHILD: other,
                },
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
            )
        return ended.returncode, path.read_text()


def other_runs() -> list[OtherRun]:
    """The other backends of this interpreter, and all of further ones."""
    pythons = filter(None, os.environ.get("ADAPTERS_KERAS_PYTHONS", "").split(":"))
    own = [OtherRun(sys.executable, b) for b in BACKENDS if b != os.environ["KERAS_BACKEND"]]
    return own + [OtherRun(python, backend) for python in pythons for backend in BACKENDS]
