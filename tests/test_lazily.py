"""Names that are bound when they are first used, and what the collector does meanwhile."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

from adapters.lazily import bound


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a package with a module that notes whether the collector is on."""
    folder = tmp_path / "lazy_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "noting.py").write_text("import gc\nenabled = gc.isenabled()\n")
    (folder / "failing.py").write_text("raise ValueError('spoilt')\n")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("lazy_package")
    yield "lazy_package"
    for name in [name for name in sys.modules if name.startswith("lazy_package")]:
        del sys.modules[name]


@pytest.mark.parametrize("collects", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_the_collector_is_left_as_it_was_and_out_of_the_import(collects, fails, package):
    look_up = bound(package, {"enabled": f"{package}.noting", "failing": f"{package}.failing"})
    if not collects:
        gc.disable()
    try:
        if fails:
            with pytest.raises(ValueError, match="spoilt"):
                look_up("failing")
        else:
            assert look_up("enabled") is False
        assert gc.isenabled() is collects
    finally:
        gc.enable()


def test_a_name_is_looked_up_once(package):
    look_up = bound(package, {"enabled": f"{package}.noting"})
    assert look_up("enabled") is sys.modules[package].enabled


def test_an_unknown_name_is_no_attribute(package):
    with pytest.raises(AttributeError, match="no attribute 'spoilt'"):
        bound(package, {})("spoilt")
