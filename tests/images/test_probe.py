"""How the kernel is built and loaded; one that was built and can't be loaded is told."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest

from adapters.images import kernel

ROOT = Path(__file__).parents[2]
needs_kernel = pytest.mark.skipif(
    kernel.load() is None, reason="the kernel isn't built, or switched off"
)


@pytest.fixture(autouse=True)
def anew(monkeypatch):
    """Loaded as if for the first time."""
    monkeypatch.setattr(kernel, "_trouble", None)
    kernel.load.cache_clear()
    yield
    kernel.load.cache_clear()


def in_place_of_the_kernel(monkeypatch, outcome) -> None:
    def import_module(name: str):
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(kernel.importlib, "import_module", import_module)
    monkeypatch.delenv("ADAPTERS_KERNEL", raising=False)


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libjpeg.so.62: cannot open shared object file", name=kernel._NAME),
        ModuleNotFoundError("No module named 'other'", name="other"),
    ],
)
def test_kernel_that_cannot_be_loaded_is_told_once(error, monkeypatch, caplog):
    in_place_of_the_kernel(monkeypatch, error)
    with caplog.at_level(logging.WARNING, "adapters"):
        assert kernel.load() is kernel.load() is None
    assert kernel.trouble() == f"it was built, but can't be loaded: {error}"
    assert len(caplog.records) == 1


def test_environment_switches_it_off(monkeypatch):
    in_place_of_the_kernel(monkeypatch, AssertionError("it is imported"))
    monkeypatch.setenv("ADAPTERS_KERNEL", "0")
    assert (kernel.load(), kernel.trouble()) == (None, None)


def test_kernel_of_another_version_is_not_used(monkeypatch):
    in_place_of_the_kernel(monkeypatch, SimpleNamespace(HUFFMAN_IS_OWN=1))
    assert kernel.load() is None
    assert "another version of the package; rebuild it" in str(kernel.trouble())


def test_kernel_that_was_not_built_is_nothing_to_tell(monkeypatch, caplog):
    """Unless it is required."""
    missing = ModuleNotFoundError("No module", name=kernel._NAME)
    in_place_of_the_kernel(monkeypatch, missing)
    assert (kernel.load(), kernel.trouble(), caplog.text) == (None, None, "")
    kernel.load.cache_clear()
    monkeypatch.setenv("ADAPTERS_KERNEL", "required")
    with pytest.raises(ModuleNotFoundError):
        kernel.load()


def preprocesses(*headers: str) -> bool:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return False
    text = "".join(f"#include <{header}>\n" for header in headers)
    command = [compiler, "-E", "-"]
    finished = subprocess.run(command, input=text, text=True, capture_output=True, timeout=60)
    return finished.returncode == 0


@needs_kernel
def test_huffman_is_own_only_in_a_static_libjpeg():
    linked = subprocess.run(["ldd", kernel.load().__file__], capture_output=True, text=True).stdout
    assert ("libjpeg" not in linked) == kernel.load().HUFFMAN_IS_OWN


def build(folder: Path, setup: str, wanted: str) -> subprocess.CompletedProcess[str]:
    """Build the kernel in a folder by this text of setup.py."""
    pytest.importorskip("setuptools")
    shutil.copytree(ROOT / "adapters/images/native", folder / "adapters/images/native")
    (folder / "setup.py").write_text(setup)
    command = [sys.executable, "setup.py", "build_ext", "--build-lib", "out"]
    environment = {"PATH": "/usr/bin:/bin", "ADAPTERS_KERNEL": wanted}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=110
    )


@needs_kernel
@pytest.mark.full
@pytest.mark.parametrize("is_static", [True, False])
def test_libjpeg_is_linked_statically_if_it_can_be(is_static, tmp_path):
    """Debian's libjpeg.a can; without it, the kernel is as whole with the shared library."""
    if not preprocesses("stdio.h", "jpeglib.h", "jpegint.h"):
        pytest.skip("jpegint.h isn't installed")
    text = (ROOT / "setup.py").read_text()
    assert ":libjpeg.a" in text
    text = text if is_static else text.replace(":libjpeg.a", ":no_such_library.a")
    assert build(tmp_path, text, "required").returncode == 0
    (built,) = (tmp_path / "out/adapters/images").glob("*.so")
    linked = subprocess.run(["ldd", built], capture_output=True, text=True, check=True).stdout
    assert ("libjpeg" not in linked) is is_static
    code = (
        "import importlib.util as u, sys; s = u.spec_from_file_location('_kernel', sys.argv[1]);"
        "m = u.module_from_spec(s); s.loader.exec_module(m); print(m.HUFFMAN_IS_OWN)"
    )
    loaded = subprocess.run([sys.executable, "-c", code, built], capture_output=True, text=True)
    assert loaded.stdout == f"{int(is_static)}\n", loaded.stderr


@pytest.mark.full
@pytest.mark.parametrize(("asked", "status"), [("required", False), ("", True)])
def test_build_that_fails_where_the_kernel_is_required(asked, status, tmp_path):
    """As without libjpeg: the library is looked for in vain."""
    if not preprocesses("stdio.h", "jpeglib.h"):
        pytest.skip("no compiler, or no jpeglib.h")
    text = (ROOT / "setup.py").read_text()
    text = text.replace(":libjpeg.a", "no_such_library").replace('"jpeg", "m"', '"no_such_library"')
    finished = build(tmp_path, text, asked)
    assert "no_such_library" in finished.stdout + finished.stderr
    assert (finished.returncode == 0) is status
