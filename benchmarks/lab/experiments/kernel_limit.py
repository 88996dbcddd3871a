"""The limit of the JPEG rows: the native kernel's C in a loop, with no Python around it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from adapters.generators import DECODE, generator
from adapters.images import ImageDecoder, kernel
from benchmarks.data.photographs import HEIGHT, WIDTH, Photographs
from benchmarks.harness.processes import ROOT
from benchmarks.harness.ratios import Contestant
from benchmarks.peers.pictures import SIDE

NATIVE = ROOT / "adapters" / "images" / "native"
JPEG = (
    *("batch", "resize"),
    *(f"jpeg/{name}" for name in ("frame", "huffman", "idct", "jpeg", "ycc")),
)
# As setup.py builds the kernel.
FLAGS = ["-std=gnu11", "-O3", "-fno-math-errno", f"-I{NATIVE}", "-DHAVE_JPEGINT"]


def missing() -> bool:
    """Whether there is no kernel, or nothing to compile the loop with."""
    return kernel.load() is None or shutil.which("cc") is None


def bare_loop(photographs: Photographs, threads: int) -> Contestant:
    """The kernel's C on so many threads, for the boxes of the first epoch under seed 0."""
    decoder = ImageDecoder(SIDE, crop="random_resized", flip=True)
    wanted = []
    for number in range(len(photographs.paths)):
        crop = decoder.crop_of(HEIGHT, WIDTH, generator(0, 0, number, DECODE))
        numbers = kernel.numbers_of(crop, (SIDE, SIDE))
        assert numbers is not None
        wanted.append((number, *numbers))
    order = np.random.default_rng(0).permutation(len(wanted))

    def contestant() -> float:
        with tempfile.TemporaryDirectory() as folder:
            program, crops = f"{folder}/limit", f"{folder}/crops"
            np.array(wanted, np.int32)[order].tofile(crops)
            own = [NATIVE / f"{name}.c" for name in JPEG]
            sources = [*own, Path(__file__).with_name("kernel_limit.c")]
            command = [
                "cc",
                *FLAGS,
                *map(str, sources),
                "-o",
                program,
                "-l:libjpeg.a",
                "-lm",
                "-lpthread",
            ]
            subprocess.run(command, check=True)
            run = [program, str(threads), crops, *map(str, photographs.paths)]
            return float(subprocess.run(run, check=True, capture_output=True, text=True).stdout)

    return contestant
