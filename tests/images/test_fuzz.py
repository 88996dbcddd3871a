"""Mutated JPEGs through the kernel's own code, built with the compiler's sanitizers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.images.pictures import encoded, picture

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "adapters" / "images" / "native"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1"]
IMAGES = int(os.environ.get("ADAPTERS_FUZZ_IMAGES", "60000"))


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, where there are a compiler, sanitizers and libjpeg-turbo's headers."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("fuzz")
    for name, include, more in (
        ("sanitizers", "stdio.h", SANITIZERS),
        ("libjpeg-turbo's headers", "jpeglib.h", ["-ljpeg"]),
    ):
        probe = folder / "probe.c"
        probe.write_text(f"#include <stdio.h>\n#include <{include}>\nint main(void) {{}}\n")
        command = [compiler, str(probe), "-o", str(folder / "probe"), *more]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip(f"there are no {name}")
    program = folder / "fuzz"
    sources = [str(path) for path in (NATIVE / "jpeg.c", NATIVE / "resize.c", HERE / "fuzz.c")]
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", *SANITIZERS]
    subprocess.run([compiler, *flags, *sources, "-o", str(program), "-ljpeg", "-lm"], check=True)
    return program


@pytest.mark.parametrize("seed", [1, 2])
def test_no_mutant_reads_or_writes_where_it_should_not(fuzz, tmp_path, seed):
    photo = picture(75, 103)
    files = {
        "420": encoded(photo, "JPEG"),
        "444": encoded(photo, "JPEG", subsampling=0, quality=98),
        "422": encoded(photo, "JPEG", subsampling=1, quality=40),
        "grey": encoded(picture(75, 103, 1), "JPEG"),
        "progressive": encoded(photo, "JPEG", progressive=True),
        "restarts": encoded(photo, "JPEG", restart_marker_rows=1),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    command = [fuzz, str(seed), str(IMAGES), *(tmp_path / name for name in files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stderr) == (0, "")
    decoded, left = map(int, re.findall(r"\d+", done.stdout))
    # Both ways were taken often.
    assert min(decoded, left) > IMAGES // 20
