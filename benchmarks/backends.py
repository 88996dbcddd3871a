"""Keras's backends that rows train on: the one asked for, or each that has a GPU here."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass

from benchmarks.processes import ROOT

TITLES = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
CPU = "CPU"
ASK = "from benchmarks.keras_training import describe_device; print(describe_device())"


@dataclass(frozen=True)
class Backend:
    """What networks are trained with.

    Args:
        name: Keras's name of it; None for the one that Keras chooses.
        device: What it trains on: the GPU's name, or `CPU`.
    """

    name: str | None
    device: str

    @property
    def title(self) -> str:
        """For tables."""
        return "Keras's own choice" if self.name is None else TITLES.get(self.name, self.name)

    @property
    def on_gpu(self) -> bool:
        """Whether it trains on one."""
        return self.device != CPU


def find_backends() -> list[Backend]:
    """The backend that the environment names; otherwise all that have a GPU, or Keras's choice.

    Each is asked in a process of its own, all at once, as it would stay in this one.

    Raises:
        RuntimeError: Keras, or its backend, can't be imported.
    """
    asked = os.environ.get("KERAS_BACKEND")
    names = [asked] if asked else [name for name in TITLES if importlib.util.find_spec(name)]
    found, reasons = [], []
    for name, process in [(name, _ask(name)) for name in names]:
        output, errors = process.communicate()
        if process.returncode == 0:
            found.append(Backend(name, output.splitlines()[-1]))
        else:
            last = (errors.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
            reasons.append(f"{name}: {last}")
    if not found:
        raise RuntimeError(
            "Keras must be installed with a backend, TensorFlow, JAX or PyTorch; "
            f"got {'; '.join(reasons) or 'none of them'}"
        )
    return [each for each in found if each.on_gpu] or [Backend(asked, CPU)]


def _ask(name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ASK],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": name},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
