"""What this machine and environment have, and what would make them faster."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from adapters.engine import usable_cpus
from adapters.images.kernel import load, trouble
from adapters.images.worth import kernel_worth

# What is worth to have, and for what.
_LIBRARIES = {
    "simplejpeg": "decodes JPEGs: pip install 'loader-adapters[images]'",
    "cv2": "decodes and resizes images: pip install 'loader-adapters[images]'",
    "google_crc32c": "checks the CRCs of TFRecords: pip install 'loader-adapters[records]'",
}
_FRAMEWORKS = ("keras", "tensorflow", "tensorflow-cpu", "jax", "torch", "mxnet", "numpy")


def show_versions() -> None:
    """Print what a bug report needs: system, Python, versions, CPUs, image kernel.

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
            "beside jpeglib.h, as on Debian and Ubuntu, JPEGs are decoded 1.3 to 1.8 times as fast"
        )
    elif os.environ.get("ADAPTERS_KERNEL") == "0":
        yield "image kernel: switched off by ADAPTERS_KERNEL=0 in the environment"
    else:
        yield (
            "image kernel: missing; JPEGs are decoded faster with it, and so are raw and YUV "
            f"pictures cropped. {_kernel_remedy()}"
        )
    for module, use in _LIBRARIES.items():
        there = importlib.util.find_spec(module) is not None
        yield f"{module}: {'there' if there else f'missing; {use}'}"


def measured_kernel(seconds: float = 2.0) -> Iterator[str]:
    """What the image kernel brings on this machine; nothing where no JPEG is decoded without it.

    Args:
        seconds: To measure for.
    """
    worth = kernel_worth(seconds)
    if worth is None:
        return
    speed = f"{worth.without:,.0f} pictures/s of 500x375 to random boxes of 224x224 in one thread"
    if worth.estimated:
        yield (
            f"JPEGs: {speed}, measured now without the kernel; decoding nothing but the boxes "
            f"would be {worth.times:.2g} times as fast, which is an estimate of what it brings here"
        )
    else:
        yield (
            f"JPEGs: {worth.kernel:,.0f} with the kernel and {speed} without it, measured now: "
            f"{worth.times:.2g} times as many"
        )


def _kernel_remedy() -> str:
    """How to get it, by what is missing."""
    headers = any(
        Path(folder, "jpeglib.h").is_file()
        for folder in ("/usr/include", "/usr/local/include", f"{sys.prefix}/include")
    )
    packages = "gcc libjpeg62-turbo-dev (Debian) or gcc libjpeg-turbo8-dev (Ubuntu)"
    first = "" if headers else f"apt-get install {packages}, then "
    again = "pip cache remove loader_adapters; pip install --force-reinstall --no-deps"
    return (
        "Wheels for Linux have it. To build it: "
        f"{first}pip install this package again, with a C compiler there ({again} loader-adapters, "
        "or the path of a clone, as pip keeps what it built without one)"
    )


def _versions() -> Iterator[str]:
    for name in ("loader-adapters", *_FRAMEWORKS):
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
