"""Features of this machine and environment, and ways to make loading faster."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from adapters.engine import usable_cpus
from adapters.images.kernel import load, trouble

# Optional libraries, and their uses.
_LIBRARIES = {
    "simplejpeg": "decodes JPEGs: pip install 'loader-adapters[images]'",
    "cv2": "decodes and resizes images: pip install 'loader-adapters[images]'",
    "google_crc32c": "checks the CRCs of TFRecords: pip install 'loader-adapters[records]'",
}
_FRAMEWORKS = ("keras", "tensorflow", "tensorflow-cpu", "jax", "torch", "mxnet", "numpy")


# Features that speed depends on, as results and `adapters doctor` name them.
KERNEL = "native kernel"
VBMI = "AVX-512 VBMI"
_VBMI_FLAGS = {"avx512bw", "avx512vl", "avx512vbmi"}


@dataclass(frozen=True)
class Features:
    """Features that the speed of loading depends on."""

    cpus: int
    kernel: bool
    """True if the native kernel is installed and not switched off."""
    vbmi: bool
    """True if it can use AVX-512 VBMI, which decodes JPEGs faster."""
    gpus: tuple[str, ...]

    @property
    def names(self) -> frozenset[str]:
        """Names of the features that are present, without the GPUs."""
        there = {KERNEL: self.kernel, VBMI: self.kernel and self.vbmi}
        return frozenset(name for name, has in there.items() if has)

    def __str__(self) -> str:
        parts = [f"{self.cpus} CPU{'s' * (self.cpus != 1)}"]
        parts.append(KERNEL if self.kernel else f"no {KERNEL}")
        if self.kernel:
            parts.append(VBMI if self.vbmi else f"no {VBMI}")
        return ", ".join([*parts, " and ".join(self.gpus) or "no GPU"])


def found_features() -> Features:
    """Detect the features of this machine and environment."""
    vectors = os.environ.get("ADAPTERS_VECTORS") != "0"
    vbmi = vectors and _flags() >= _VBMI_FLAGS
    return Features(usable_cpus(), load() is not None, vbmi, gpu_names())


def _flags() -> set[str]:
    """CPU flags of the first processor, as Linux names them; empty on other than x86."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return set(flags.partition(":")[2].split())


@cache
def gpu_names() -> tuple[str, ...]:
    """Names of the machine's GPUs, from NVIDIA's driver, whether or not a framework uses them."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in listed.stdout.splitlines() if line.strip())


def show_versions() -> None:
    """Print the facts for a bug report: system, Python, versions, CPUs, native kernel.

    Example:
        >>> import adapters
        >>> adapters.show_versions()  # doctest: +SKIP
    """
    print(f"system: {platform.platform()}")
    print(f"Python: {sys.version.split()[0]} ({platform.python_implementation()})")
    print(f"KERAS_BACKEND: {os.environ.get('KERAS_BACKEND', 'not set')}")
    for line in described_machine():
        print(line)


def described_machine() -> Iterator[str]:
    """Describe this environment, and what would make it faster."""
    yield f"features: {found_features()}"
    yield f"CPUs: {usable_cpus()} of {os.cpu_count()} may be used"
    yield f"versions: {', '.join(_versions())}"
    kernel = load()
    if (reason := trouble()) is not None:
        yield f"native kernel: {reason}"
    elif kernel is not None and kernel.HUFFMAN_IS_OWN:
        yield "native kernel: there"
    elif kernel is not None:
        yield (
            "native kernel: there, linked with a shared libjpeg; with libjpeg.a and jpegint.h, as "
            "Debian and Ubuntu have them, JPEGs are decoded 1.3 to 1.8 times as fast"
        )
    elif os.environ.get("ADAPTERS_KERNEL") == "0":
        yield "native kernel: switched off by ADAPTERS_KERNEL=0 in the environment"
    else:
        yield (
            "native kernel: missing; JPEGs are decoded faster with it, and raw images are cropped "
            "faster. Wheels for Linux have it. To build it, install a C compiler and "
            "libjpeg-turbo's headers, as by apt-get install gcc libjpeg62-turbo-dev (Debian) or "
            "gcc libjpeg-turbo8-dev (Ubuntu); then pip install this package again. pip keeps what "
            "it built without them: pip cache remove loader_adapters; pip install "
            "--force-reinstall --no-deps loader-adapters, or the path of a clone"
        )
    for module, use in _LIBRARIES.items():
        there = importlib.util.find_spec(module) is not None
        yield f"{module}: {'there' if there else f'missing; {use}'}"


def _versions() -> Iterator[str]:
    for name in ("loader-adapters", *_FRAMEWORKS):
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
