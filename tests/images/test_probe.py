"""The kernel is tried before it is used, and one that was built and doesn't work is told."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from adapters.images import kernel, pixels, probe

ROOT = Path(__file__).parents[2]
needs_kernel = pytest.mark.skipif(
    kernel.load() is None, reason="the kernel isn't built, or switched off"
)


@pytest.fixture(autouse=True)
def anew(monkeypatch):
    """Loaded as if for the first time."""
    monkeypatch.setattr(kernel, "_trouble", None)
    monkeypatch.setattr(probe, "_fits", {})
    kernel.load.cache_clear()
    yield
    kernel.load.cache_clear()


class Fake:
    """A kernel of which one of the two decoders gives other pixels, or none."""

    VERSION = kernel._VERSION
    HUFFMAN_IS_OWN = 1

    def __init__(self, difference: str) -> None:
        self.difference, self.own = difference, True

    def use_own_huffman(self, wanted: bool) -> None:
        self.own = wanted

    def decode(self, jpegs, numbers, out, shape, channels_first, table) -> bytes:
        is_box = shape[1] < 40
        out[...] = 7
        if self.own and self.difference == "everywhere":
            out[0, 0, 0, 0] += 1
        if self.own and self.difference == "in boxes" and is_box:
            out[...] = 0
        return b"\0" if self.own and self.difference == "not decoded" else b"\1"


def in_place_of_the_kernel(monkeypatch, outcome) -> None:
    def import_module(name: str):
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(kernel.importlib, "import_module", import_module)
    monkeypatch.delenv("ADAPTERS_KERNEL", raising=False)


@needs_kernel
def test_both_decoders_agree_here():
    loaded = kernel.load()
    assert probe.own_huffman_fits(loaded)
    assert kernel.trouble() is None


@needs_kernel
def test_the_image_is_decoded_whole_and_in_boxes_as_other_decoders_do():
    whole = pixels.decode(probe._JPEG)
    assert whole.shape == (40, 56, 3)
    for by_own in (True, False):
        found = probe._decoded(kernel.load(), by_own)
        kernel.load().use_own_huffman(True)
        for box, outcome, decoded in zip(probe._BOXES, found[::2], found[1::2]):
            top, left, height, width = box
            part = whole[top : top + height, left : left + width]
            assert outcome == b"\1"
            assert decoded == np.ascontiguousarray(part).tobytes()


@pytest.mark.parametrize("difference", ["everywhere", "in boxes", "not decoded"])
def test_a_huffman_decoder_that_differs_is_switched_off_and_told_once(
    difference, monkeypatch, caplog
):
    fake = Fake(difference)
    in_place_of_the_kernel(monkeypatch, fake)
    with caplog.at_level(logging.WARNING, "adapters"):
        assert kernel.load() is kernel.load() is fake
    assert not fake.own
    assert len(caplog.records) == 1
    assert "doesn't fit the libjpeg-turbo" in kernel.trouble()


def test_one_that_agrees_stays_on(monkeypatch, caplog):
    fake = Fake("nowhere")
    in_place_of_the_kernel(monkeypatch, fake)
    assert kernel.load() is fake
    assert (fake.own, kernel.trouble(), caplog.text) == (True, None, "")


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libjpeg.so.62: cannot open shared object file", name=kernel._NAME),
        ModuleNotFoundError("No module named 'other'", name="other"),
    ],
)
def test_a_kernel_that_cannot_be_loaded_is_told_once_with_the_reason(error, monkeypatch, caplog):
    in_place_of_the_kernel(monkeypatch, error)
    with caplog.at_level(logging.WARNING, "adapters"):
        assert kernel.load() is kernel.load() is None
    assert kernel.trouble() == f"it was built, but can't be loaded: {error}"
    assert len(caplog.records) == 1


def test_a_kernel_of_another_version_is_told_and_not_used(monkeypatch):
    in_place_of_the_kernel(monkeypatch, SimpleNamespace(HUFFMAN_IS_OWN=1))
    assert kernel.load() is None
    assert "another version of the package; rebuild it" in str(kernel.trouble())


def test_a_kernel_that_was_not_built_is_nothing_to_tell(monkeypatch, caplog):
    missing = ModuleNotFoundError("No module", name=kernel._NAME)
    in_place_of_the_kernel(monkeypatch, missing)
    assert (kernel.load(), kernel.trouble(), caplog.text) == (None, None, "")


def test_a_kernel_that_is_required_and_missing_is_an_error(monkeypatch):
    in_place_of_the_kernel(monkeypatch, ModuleNotFoundError("No module", name=kernel._NAME))
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
def test_huffman_decoding_is_our_own_where_libjpegs_internal_header_is_installed():
    if not preprocesses("stdio.h", "jpeglib.h", "jpegint.h"):
        pytest.skip("jpegint.h isn't installed")
    assert kernel.load().HUFFMAN_IS_OWN == 1


@pytest.mark.full
@pytest.mark.parametrize(("asked", "status"), [("required", False), ("", True)])
def test_a_build_that_fails_to_link_fails_where_the_kernel_is_required(asked, status, tmp_path):
    """As without libjpeg: the library is looked for in vain."""
    if not preprocesses("stdio.h", "jpeglib.h"):
        pytest.skip("no compiler, or no jpeglib.h")
    pytest.importorskip("setuptools")
    shutil.copytree(ROOT / "adapters/images/native", tmp_path / "adapters/images/native")
    text = (ROOT / "setup.py").read_text()
    (tmp_path / "setup.py").write_text(text.replace('"jpeg", "m"', '"no_such_library"'))
    finished = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--build-lib", "out"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "ADAPTERS_KERNEL": asked},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert "no_such_library" in finished.stdout + finished.stderr
    assert (finished.returncode == 0) is status
