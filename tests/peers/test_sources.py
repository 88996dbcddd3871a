"""The peers' tests are found beside what is installed, in a tree, and in an archive of one."""

from __future__ import annotations

import importlib.util
import tarfile
from pathlib import Path

import pytest

from tests.peers.sources import Absent, find

needs_keras = pytest.mark.skipif(
    importlib.util.find_spec("keras") is None, reason="Keras is in the extra keras"
)
needs_mxnet = pytest.mark.skipif(
    importlib.util.find_spec("mxnet") is None, reason="MXNet has no wheels for newer Pythons"
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree of Keras, as far as anybody looks at it."""
    version = tmp_path / "keras-9.8.7" / "keras" / "src" / "version.py"
    version.parent.mkdir(parents=True)
    version.write_text('__version__ = "9.8.7"\n')
    return version.parents[2]


@needs_keras
def test_a_tree_that_is_named_is_taken(tree, tmp_path, monkeypatch):
    monkeypatch.setenv("ADAPTERS_KERAS_SOURCE", str(tree))
    source = find("keras", tmp_path / "unused")
    assert (source.root, source.version, source.installed) == (tree, (9, 8, 7), False)


@needs_keras
def test_an_archive_of_a_tree_is_unpacked(tree, tmp_path, monkeypatch):
    archive = tmp_path / "keras.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(tree, tree.name)
    monkeypatch.setenv("ADAPTERS_KERAS_SOURCE", str(archive))
    folder = tmp_path / "unpacked"
    assert find("keras", folder).root == folder / tree.name


@needs_keras
def test_a_path_without_the_tests_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAPTERS_KERAS_SOURCE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="ADAPTERS_KERAS_SOURCE must name a source tree"):
        find("keras", tmp_path / "unused")


@needs_mxnet
def test_without_a_source_the_variable_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("ADAPTERS_MXNET_SOURCE", raising=False)
    with pytest.raises(Absent, match="set ADAPTERS_MXNET_SOURCE to its source tree"):
        find("mxnet", tmp_path)


def test_a_package_that_is_not_installed_has_no_tests(tmp_path):
    with pytest.raises(Absent, match="isn't installed"):
        find("surely_no_package", tmp_path)
