"""How a wheel with the kernel is made: what must not be built isn't."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGING = ROOT / "packaging"
pytestmark = pytest.mark.skipif(
    not (PACKAGING.is_dir() and shutil.which("bash")), reason="of a checkout, with bash"
)


def ended(*command: Any, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)),
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_source_archive_of_another_hash_is_refused(tmp_path):
    archive = tmp_path / "libjpeg-turbo.tar.gz"
    archive.write_bytes(b"something else")
    process = ended("bash", PACKAGING / "libjpeg.sh", tmp_path / "prefix", archive)
    assert process.returncode == 1
    assert "with SHA-256 254f3642b04e309fee77" in process.stderr
    assert f"got {archive}" in process.stderr


def test_the_library_script_says_how_it_is_called():
    process = ended("bash", PACKAGING / "libjpeg.sh")
    assert process.returncode == 2
    assert "packaging/libjpeg.sh PREFIX [ARCHIVE]" in process.stderr


@pytest.mark.parametrize("script", ["build_wheel.sh", "libjpeg.sh", "test_wheel.sh"])
def test_scripts_are_sound(script):
    process = ended("bash", "-n", PACKAGING / script)
    assert (process.returncode, process.stderr) == (0, "")
    assert os.access(PACKAGING / script, os.X_OK)


def test_a_library_that_is_not_there_fails_the_build(tmp_path):
    pytest.importorskip("setuptools", reason="what builds")
    process = ended(sys.executable, "setup.py", "--version", ADAPTERS_JPEG=str(tmp_path))
    assert process.returncode != 0
    assert "ADAPTERS_JPEG must be a folder that packaging/libjpeg.sh made" in process.stderr


def test_no_host_is_named():
    for path in PACKAGING.iterdir():
        if path.is_file():
            assert "://" not in path.read_text().replace("*://*", "")
