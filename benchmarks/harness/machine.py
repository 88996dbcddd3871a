"""What the numbers were taken on, and with: processor, GPUs, versions, date, commit."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from adapters.machine import found_features
from benchmarks.harness.processes import ROOT

# What the numbers may depend on; those that aren't installed are left out.
DISTRIBUTIONS = (
    "loader-adapters",
    "numpy",
    "keras",
    "tensorflow",
    "tensorflow-cpu",
    "jax",
    "torch",
    "torchvision",
    "torchcodec",
    "mxnet",
    "grain",
    "litdata",
    "nvidia-dali-cuda120",
    "ffcv",
    "webdataset",
    "numba",
    "opencv-python-headless",
    "simplejpeg",
    "pillow",
    "scikit-image",
    "scikit-learn",
)


def describe_machine() -> dict[str, Any]:
    """The machine, the libraries and the command line, for JSON."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return {**_described(), "date": now}


@cache  # As it is written after each row.
def _described() -> dict[str, Any]:
    features = found_features()
    return {
        "cpu": _cpu_model(),
        "usable_cpus": usable_cpus(),
        "memory_gib": _memory_gib(),
        "features": sorted(features.names),
        "gpus": list(features.gpus),
        "system": platform.platform(),
        "python": platform.python_version(),
        "libraries": dict(_versions(DISTRIBUTIONS)),
        "commit": _commit(),
        "arguments": sys.argv[1:],
        # Keras's own setting, in its file, is seen in each row's software.
        "keras_backend": os.environ.get("KERAS_BACKEND"),
    }


def usable_cpus() -> int:
    """The processors that this process may use, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gib() -> float:
    return round(float(psutil.virtual_memory().total) / 2**30, 1)


def _versions(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    for name in names:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


def _commit() -> str | None:
    """The commit, with "+changes" where the work tree differs; None without git."""
    try:
        commit = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.stdout.strip()
