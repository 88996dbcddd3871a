"""Keras's backends that rows train on: the one asked for, or each that has a GPU here."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.processes import ROOT

TITLES = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
CPU = "CPU"
# Begins the line with the answer; what libraries write may come before and after it.
ANSWER = "trains on: "
ASK = f"""
from benchmarks.harness.keras_training import describe_device
print("\\n{ANSWER}" + describe_device(), flush=True)
"""


@dataclass(frozen=True)
class Backend:
    """What networks are trained with.

    Args:
        name: Keras's name of it.
        device: What it trains on: the GPU's name, or `CPU`.
    """

    name: str
    device: str

    @property
    def title(self) -> str:
        """For tables."""
        return TITLES.get(self.name, self.name)

    @property
    def on_gpu(self) -> bool:
        """Whether it trains on one."""
        return self.device != CPU


@dataclass(frozen=True)
class Backends:
    """Those to train with.

    Args:
        chosen: One at least.
        broken: Why others that are installed can't be used, by their names.
    """

    chosen: tuple[Backend, ...]
    broken: dict[str, str]

    def notes(self) -> list[str]:
        """For the readers of tables."""
        return [
            f"not trained with, as it can't be imported: {TITLES.get(name, name)}: {reason}"
            for name, reason in self.broken.items()
        ]


def find_backends() -> Backends:
    """The backend that the environment names; otherwise all that have a GPU, or Keras's choice.

    Each is asked in a process of its own, all at once, as it would stay in this one.

    Raises:
        RuntimeError: Keras, or its backend, can't be imported.
    """
    asked = os.environ.get("KERAS_BACKEND")
    names = [asked] if asked else [name for name in TITLES if importlib.util.find_spec(name)]
    found, broken = {}, {}
    for name, process in [(name, _ask(name)) for name in names]:
        output, errors = process.communicate()
        answers = [line for line in output.splitlines() if line.startswith(ANSWER)]
        if process.returncode == 0 and answers:
            found[name] = Backend(name, answers[-1].removeprefix(ANSWER))
        else:
            lines = errors.strip().splitlines() or [f"exit code {process.returncode}"]
            broken[name] = lines[-1]
    if not found:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in broken.items())
        raise RuntimeError(
            "Keras must be installed with a backend, TensorFlow, JAX or PyTorch, which "
            f"KERAS_BACKEND may name; got {reasons or 'none of them'}"
        )
    gpus = tuple(each for each in found.values() if each.on_gpu)
    return Backends(gpus or (found.get(_configured(), next(iter(found.values()))),), broken)


def _configured() -> str:
    """Keras's choice where the environment names none: that of its own file, or TensorFlow."""
    folder = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras"))
    try:
        return str(json.loads((folder / "keras.json").read_text())["backend"])
    except (OSError, ValueError, KeyError):
        return "tensorflow"


def _ask(name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ASK],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": name},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
