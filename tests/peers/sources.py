"""Where the peers' tests lie: beside what is installed, or where an environment variable says."""

from __future__ import annotations

import importlib.util
import os
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

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
