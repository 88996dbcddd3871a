"""Somebody's training scripts, and ``adapters doctor`` run on them in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

# Against a hang, on busy cores.
_TIMEOUT_SECONDS = 300.0


def command(*words: Any) -> list[str]:
    return [sys.executable, "-m", "adapters.cli", *map(str, words)]


def environment(**variables: str) -> dict[str, str]:
    """Keras on JAX, which is imported in a third of TensorFlow's time."""
    return {**os.environ, "KERAS_BACKEND": "jax", **variables}


def ended(*words: Any, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command, once it has come to its end."""
    options = {"timeout": _TIMEOUT_SECONDS, "env": environment(**variables)}
    return subprocess.run(command(*words), capture_output=True, text=True, **options)


def doctored(folder: Path, text: str, *words: str, options: Any = ()) -> Any:
    """``adapters doctor`` of a script of this text, which is given these words."""
    script = folder / "train.py"
    script.write_text(text)
    return ended("doctor", "--seconds", 0.1, *options, script, "--", *words)


def found_in(process: subprocess.CompletedProcess[str]) -> str:
    """The line about the bottleneck."""
    assert process.returncode == 0, process.stderr
    (line,) = (line for line in process.stdout.splitlines() if line.startswith("bottleneck: "))
    return line.removeprefix("bottleneck: ")
