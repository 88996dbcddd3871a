"""Mutated pictures through the kernel's own code, built with the compiler's sanitizers."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from adapters.records.formats import CODECS
from tests.images.pictures import encoded, npy, picture

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "adapters" / "images" / "native"
JPEG = (
    *("batch", "resize", "vectors"),
    *(f"jpeg/{name}" for name in ("codes", "frame", "huffman", "idct", "jpeg", "ycc")),
)
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1"]
MUTANTS, MUTANTS_OF_FULL = 12_000, 60_000
every_seed = pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.full)])


@pytest.fixture
def mutants(request: pytest.FixtureRequest) -> int:
    """How many are made."""
    usual = MUTANTS_OF_FULL if request.config.getoption("full") else MUTANTS
    return int(os.environ.get("ADAPTERS_FUZZ_IMAGES", usual))


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Builds the program, where there are a compiler, sanitizers and libjpeg-turbo's headers."""
    if compiler() is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("fuzz")
    for name, include, more in (
        ("sanitizers", "stdio.h", SANITIZERS),
        ("libjpeg-turbo's headers", "jpeglib.h", ["-ljpeg"]),
    ):
        if not compiles(folder, include, more):
            pytest.skip(f"there are no {name}")

    @functools.cache
    def built(own_huffman: bool) -> Path:
        if own_huffman and not compiles(folder, "jpeglib.h>\n#include <jpegint.h", []):
            pytest.skip("libjpeg-turbo's internal header isn't installed")
        program = folder / f"fuzz-{own_huffman}"
        own = [NATIVE / f"{name}.c" for name in (*JPEG, "crops")]
        flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", *SANITIZERS]
        flags += ["-DHAVE_JPEGINT"] if own_huffman else ["-DLIBJPEG_ALONE"]
        sources = [str(path) for path in (*own, HERE / "fuzz.c")]
        command = [compiler(), *flags, *sources, "-o", str(program), "-ljpeg", "-lm"]
        subprocess.run(command, check=True)
        return program

    return built


def compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("clang")


def compiles(folder: Path, include: str, more: list[str]) -> bool:
    probe = folder / "probe.c"
    probe.write_text(f"#include <stdio.h>\n#include <{include}>\nint main(void) {{}}\n")
    command = [compiler(), str(probe), "-o", str(folder / "probe"), *more]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
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
        (tmp_path / name).write_bytes(content)
    return [tmp_path / name for name in contents]


def outcomes(
    program: Path, seed: int, mutants: int, files: list[Path], vectors: bool = True
) -> list[str]:
    """What became of each mutant: "left", or a number made of the pixels."""
    command = [program, str(seed), str(mutants), *files]
    environment = {**os.environ, "ADAPTERS_VECTORS": str(int(vectors))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@every_seed
def test_no_mutant_reads_or_writes_where_it_should_not(fuzz, files, mutants, seed):
    found = outcomes(fuzz(own_huffman=False), seed, mutants, files)
    left = found.count("left")
    # Both ways were taken often.
    assert len(found) == mutants
    assert min(left, mutants - left) > mutants // 20


@every_seed
def test_huffman_decoding_is_libjpegs_to_the_bit_or_leaves_the_image(fuzz, files, mutants, seed):
    own = outcomes(fuzz(own_huffman=True), seed, mutants, files)
    libjpegs = outcomes(fuzz(own_huffman=False), seed, mutants, files)
    pairs = list(zip(own, libjpegs, strict=True))
    assert all(mine in ("left", other) for mine, other in pairs)
    # Damage that libjpeg says nothing about is rare.
    decoded = sum(mine != "left" for mine in own)
    assert decoded > 0.9 * sum(other != "left" for other in libjpegs) > mutants // 20


@every_seed
def test_a_mutant_is_taken_or_left_alike_with_and_without_the_processors_vectors(
    fuzz, files, mutants, seed
):
    program = fuzz(own_huffman=True)
    plain = outcomes(program, seed, mutants, files, vectors=False)
    assert plain == outcomes(program, seed, mutants, files)


@every_seed
def test_no_mutant_of_a_raw_picture_reads_or_writes_where_it_should_not(
    fuzz, tmp_path, mutants, seed
):
    photo = picture(75, 103)
    contents = [npy(photo), npy(photo[:, :, :1]), npy(photo[:, :, 0])]
    files = [tmp_path / str(number) for number in range(len(contents))]
    for path, content in zip(files, contents):
        path.write_bytes(content)
    program = tmp_path / "fuzz_raw"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", *SANITIZERS]
    own = [NATIVE / f"{name}.c" for name in ("batch", "raw", "resize", "vectors")]
    command = [compiler(), *flags, *own, HERE / "fuzz_raw.c", "-o", program, "-lm"]
    subprocess.run(command, check=True)
    found = outcomes(program, seed, mutants, files)
    left = found.count("left")
    assert len(found) == mutants
    assert min(left, mutants - left) > mutants // 20


def test_every_processors_own_resizing_is_the_plain_one_to_the_bit(fuzz, tmp_path):
    program = tmp_path / "variants"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", *SANITIZERS]
    command = [compiler(), *flags, HERE / "resize_variants.c", NATIVE / "vectors.c"]
    subprocess.run([*command, "-o", program, "-lm"], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stderr) == (0, "")
    at_once, partly = map(int, re.findall(r"\d+", done.stdout))
    if at_once:  # The processor has AVX-512 VBMI.
        assert at_once > 10_000
        assert partly > 100


@every_seed
def test_no_mutant_of_a_record_is_read_where_it_should_not(fuzz, tmp_path, mutants, seed):
    """And CRC-32C is the same by the processor's instruction and by the table."""
    content, paths = encoded(picture(9, 9), "JPEG"), []
    for codec in CODECS.values():
        for label in (3, 2.5):
            path = tmp_path / f"{codec.name}-{label}"
            record = codec.encode(codec.envelope.pack(content, label, 7))
            path.write_bytes(record + record)
            paths.append(path)
    program = tmp_path / "records"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", *SANITIZERS]
    command = [compiler(), *flags, HERE / "records_fuzz.c", NATIVE / "vectors.c"]
    subprocess.run([*command, "-o", program], check=True)
    command = [program, str(seed), str(10 * mutants), *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stderr) == (0, "")
    assert min(map(int, done.stdout.split())) > mutants // 10


def test_it_compiles_with_the_interface_of_libjpeg_8_as_ubuntu_has_it(fuzz, tmp_path):
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
    for name in ("jpeg/huffman", "jpeg/jpeg"):
        flags = [
            "-DHAVE_JPEGINT",
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            f"-I{tmp_path}",
            "-fsyntax-only",
        ]
        subprocess.run([compiler(), *flags, NATIVE / f"{name}.c"], check=True)
