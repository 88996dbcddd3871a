"""``adapters doctor``: of a training script, or of this machine and environment."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adapters.diagnosis.script import diagnose_script
from adapters.engine import usable_cpus
from adapters.images.kernel import load, trouble
from adapters.records import rows

# What is worth to have, and for what.
_LIBRARIES = {
    "simplejpeg": "decodes JPEGs: pip install 'loader-adapters[images]'",
    "cv2": "decodes and resizes images: pip install 'loader-adapters[images]'",
    "google_crc32c": "checks the CRCs of TFRecords: pip install 'loader-adapters[records]'",
}
_FRAMEWORKS = ("keras", "tensorflow", "tensorflow-cpu", "jax", "torch", "mxnet", "numpy")


def add_parser(subparsers: Any) -> None:
    """Add ``doctor`` to the command line."""
    doctor = subparsers.add_parser(
        "doctor", help="where does the time of a training script go; without one, of this machine"
    )
    doctor.add_argument("--skip", type=int, default=0, metavar="N", help="loops to leave alone")
    doctor.add_argument(
        "--t",
        type=float,
        metavar="SECONDS",
        help="the step time to keep up with; else the script's",
    )
    doctor.add_argument(
        "--seconds", type=float, default=2.0, help="of each measurement (default: %(default)s)"
    )
    doctor.add_argument("script", nargs="?", help="a training script, run to its first loop")
    doctor.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    doctor.set_defaults(run=run_doctor)


def run_doctor(options: argparse.Namespace) -> int:
    """``adapters doctor``; 1 if the script has no training loop.

    Raises:
        ScriptError: From what the script raises.
    """
    for name in ("t", "seconds"):
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise argparse.ArgumentError(None, f"--{name} must be > 0 seconds, got {value}")
    if options.script is None:
        for line in described_machine():
            print(line)
        return 0
    found = diagnose_script(
        options.script,
        options.arguments,
        skip=max(0, options.skip),
        t=options.t,
        seconds=options.seconds,
    )
    if found is None:
        print(
            f"adapters doctor: {options.script} came to its end without a call of Keras's fit or a "
            "loop over a Gluon loader that was long enough",
            file=sys.stderr,
        )
        return 1
    print(found)
    return 0


def described_machine() -> Iterator[str]:
    """What this environment has, and what would make it faster."""
    count = os.cpu_count() or 1
    yield f"CPUs: {usable_cpus()} of {count} may be used"
    yield f"versions: {', '.join(_versions())}"
    kernel = load()
    if (reason := trouble()) is not None:
        yield f"image kernel: {reason}"
    elif kernel is not None and kernel.HUFFMAN_IS_OWN:
        yield "image kernel: there"
    elif kernel is not None:
        yield (
            "image kernel: there, built without libjpeg's internal header; where jpegint.h lies "
            "beside jpeglib.h, as on Debian and Ubuntu, JPEGs are decoded 1.3 to 1.4 times as fast"
        )
    elif os.environ.get("ADAPTERS_KERNEL") == "0":
        yield "image kernel: switched off by ADAPTERS_KERNEL=0 in the environment"
    else:
        yield (
            "image kernel: missing; JPEGs would be decoded 1.4 to 2.2 times as fast with it, raw "
            f"pictures cropped 2 times, and YUV ones 25 times. {_kernel_remedy()}"
        )
    if rows.load() is not None:
        yield "kernel of records: there"
    elif os.environ.get("ADAPTERS_KERNEL") != "0":
        yield "kernel of records: missing; it is built where there is a C compiler"
    for module, use in _LIBRARIES.items():
        there = importlib.util.find_spec(module) is not None
        yield f"{module}: {'there' if there else f'missing; {use}'}"


def _kernel_remedy() -> str:
    """How to get it, by what is missing."""
    headers = any(
        Path(folder, "jpeglib.h").is_file()
        for folder in ("/usr/include", "/usr/local/include", f"{sys.prefix}/include")
    )
    packages = "gcc libjpeg62-turbo-dev (Debian) or gcc libjpeg-turbo8-dev (Ubuntu)"
    first = "" if headers else f"apt-get install {packages}, then "
    return f"To build it: {first}pip install this package again, with a C compiler there"


def _versions() -> Iterator[str]:
    for name in ("loader-adapters", *_FRAMEWORKS):
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
