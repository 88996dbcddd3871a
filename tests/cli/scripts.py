"""Somebody's training scripts, and ``adapters doctor`` run on them in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.engine import scripts

# Against a hang, on busy cores.
_TIMEOUT_SECONDS = 300.0


def command(*words: Any) -> list[str]:
    return [sys.executable, "-m", "adapters", *map(str, words)]


def ended(*words: Any, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command, once it has come to its end.

    With Keras on JAX, which is imported in a third of TensorFlow's time.
    """
    variables = {"KERAS_BACKEND": "jax", **variables}
    return scripts.ended("-m", "adapters", *words, timeout=_TIMEOUT_SECONDS, variables=variables)


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
