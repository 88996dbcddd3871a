"""Mutated pictures through the kernel's own code, built with the compiler's sanitizers."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from adapters.records.formats import CODECS
from tests.images.pictures import encoded, npy, picture

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "adapters" / "images" / "native"
JPEG = (
    *("batch", "resize"),
    *(f"jpeg/{name}" for name in ("frame", "huffman", "idct", "jpeg", "ycc")),
)
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1"]
MUTANTS, MUTANTS_OF_FULL = 2_500, 60_000
every_seed = pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.full)])


@pytest.fixture(scope="module")
def mutants(request: pytest.FixtureRequest) -> int:
    """How many are made."""
    usual = MUTANTS_OF_FULL if request.config.getoption("full") else MUTANTS
    return int(os.environ.get("ADAPTERS_FUZZ_IMAGES", usual))


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles a program, where there are a compiler and sanitizers."""
    if compiler() is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("fuzz")
    if not compiles(folder, "stdio.h", SANITIZERS):
        pytest.skip("there are no sanitizers")

    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", *SANITIZERS]

    @functools.cache
    def compiled(name: str, *defines: str) -> Path:
        out = folder / f"{Path(name).name}{''.join(defines)}.o"
        command = [compiler(), *flags, *defines, "-c", NATIVE / f"{name}.c", "-o", out]
        subprocess.run(command, check=True)
        return out

    def built(
        name: str, native: Iterable[str], *libraries: str, huffman: tuple[str, ...] = ()
    ) -> Path:
        program = folder / name
        objects = [compiled(each, *(huffman if each == "jpeg/huffman" else ())) for each in native]
        source = HERE / f"{name.partition('-')[0]}.c"
        command = [compiler(), *flags, source, *objects, "-o", program, *libraries, "-lm"]
        subprocess.run(command, check=True)
        return program

    built.folder = folder  # type: ignore[attr-defined]
    return built


@pytest.fixture(scope="module")
def fuzz(build: Any) -> Callable[..., Path]:
    """Builds the program for JPEGs, where there are libjpeg-turbo's headers."""
    if not compiles(build.folder, "jpeglib.h", ["-ljpeg"]):
        pytest.skip("there are no libjpeg-turbo's headers")

    @functools.cache
    def built(own_huffman: bool) -> Path:
        if own_huffman and not compiles(build.folder, "jpeglib.h>\n#include <jpegint.h", []):
            pytest.skip("libjpeg-turbo's internal header isn't installed")
        huffman = ("-DHAVE_JPEGINT",) if own_huffman else ()
        return build(f"fuzz-{own_huffman}", (*JPEG, "crops"), "-ljpeg", huffman=huffman)

    return built


def compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("clang")


def compiles(folder: Path, include: str, more: list[str]) -> bool:
    probe = folder / "probe.c"
    probe.write_text(f"#include <stdio.h>\n#include <{include}>\nint main(void) {{}}\n")
    command = [compiler(), str(probe), "-o", str(folder / "probe"), *more]
    return subprocess.run(command, capture_output=True).returncode == 0


def jpegs(folder: Path) -> list[Path]:
    """JPEGs of 103x75, of which the mutants are made."""
    photo, grey = picture(75, 103), picture(75, 103, 1)
    contents = {
        "420": encoded(photo, "JPEG"),
        "444": encoded(photo, "JPEG", subsampling=0, quality=98),
        "422": encoded(photo, "JPEG", subsampling=1, quality=40),
        "grey": encoded(grey, "JPEG"),
        "tables of its own": encoded(photo, "JPEG", optimize=True, quality=100),
        "few coefficients": encoded(photo, "JPEG", optimize=True, quality=3),
        "progressive": encoded(photo, "JPEG", progressive=True),
        "restarts": encoded(photo, "JPEG", restart_marker_rows=1),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in contents]


def outcomes(
    program: Path, seed: int, mutants: int, files: list[Path], vectors: bool = True
) -> list[str]:
    """What became of each mutant: "left", or a number made of the pixels."""
    command = [program, str(seed), str(mutants), *files]
    environment = {**os.environ, "ADAPTERS_VECTORS": str(int(vectors))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    found = done.stdout.splitlines()
    left = found.count("left")
    # Both ways were taken often.
    assert len(found) == mutants
    assert min(left, mutants - left) > mutants // 20
    return found


@every_seed
@pytest.mark.timeout(400)
def test_jpeg_mutants_are_alike_in_every_way_or_left(fuzz, tmp_path, mutants, seed):
    """With our Huffman decoding or libjpeg's, and on every processor; within their memory."""
    files = jpegs(tmp_path)
    # Without vectors and its internal header, libjpeg does all of it.
    libjpegs = outcomes(fuzz(own_huffman=False), seed, mutants, files, vectors=False)
    own = outcomes(fuzz(own_huffman=True), seed, mutants, files)
    assert own == outcomes(fuzz(own_huffman=True), seed, mutants, files, vectors=False)
    pairs = list(zip(own, libjpegs, strict=True))
    assert all(mine in ("left", other) for mine, other in pairs)
    # Damage that libjpeg says nothing about is rare.
    decoded = sum(mine != "left" for mine in own)
    assert decoded > 0.9 * sum(other != "left" for other in libjpegs)


@every_seed
def test_raw_mutants_stay_within_memory(build, tmp_path, mutants, seed):
    photo = picture(75, 103)
    files = [tmp_path / str(number) for number in range(3)]
    for path, image in zip(files, (photo, photo[:, :, :1], photo[:, :, 0])):
        path.write_bytes(npy(image))
    program = build("fuzz_raw", ("batch", "raw", "resize"))
    outcomes(program, seed, mutants, files)


def test_resizing_is_the_same_on_every_processor(build):
    program = build("resize_variants", [])
    done = subprocess.run([program], capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stderr) == (0, "")
    at_once, partly = map(int, re.findall(r"\d+", done.stdout))
    if at_once:  # The processor has AVX-512 VBMI.
        assert at_once > 10_000
        assert partly > 100


@every_seed
def test_record_mutants_stay_within_memory(build, tmp_path, mutants, seed):
    """And CRC-32C is the same by the processor's instruction and by the table."""
    content, paths = encoded(picture(9, 9), "JPEG"), []
    for codec in CODECS.values():
        for label in (3, 2.5):
            path = tmp_path / f"{codec.name}-{label}"
            record = codec.encode(codec.envelope.pack(content, label, 7))
            path.write_bytes(record + record)
            paths.append(path)
    command = [build("records_fuzz", []), str(seed), str(10 * mutants), *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stderr) == (0, "")
    assert min(map(int, done.stdout.split())) > mutants // 10


def test_kernel_compiles_with_libjpeg_8(fuzz, tmp_path):
    command = [compiler(), "-M", "-x", "c", "-"]
    source = "#include <stdio.h>\n#include <jpeglib.h>\n#include <jpegint.h>\n"
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("libjpeg-turbo's internal header isn't installed")
    for path in map(Path, done.stdout.split()):
        if path.name.startswith("j") and path.suffix == ".h":
            shutil.copy(path, tmp_path)
    config = tmp_path / "jconfig.h"
    version, count = re.subn(r"(define JPEG_LIB_VERSION ).*", r"\1 80", config.read_text())
    assert count == 1
    config.write_text(version)
    flags = ["-DHAVE_JPEGINT", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}"]
    for name in ("jpeg/huffman", "jpeg/jpeg"):
        subprocess.run([compiler(), *flags, "-fsyntax-only", NATIVE / f"{name}.c"], check=True)
