"""What tests need an interpreter of its own for: ``moved``, and the functions of ``fits``."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

_ROOT = Path(__file__).parents[3]
# Importing TensorFlow takes 4 s on two idle cores.
_TIMEOUT_SECONDS = 90.0


class Ended(NamedTuple):
    """What a program printed, without ``ready``; the exit code of a signal is negative."""

    output: str
    errors: str
    code: int


class Program:
    """``moved``, or a function of ``fits``, as a process that leads a process group of its own."""

    def __init__(self, name: str, *arguments: str, environment: dict[str, str] | None = None):
        module = "moved" if name == "moved" else "fits"
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"tests.keras.programs.{module}", name, *arguments],
            cwd=_ROOT,
            env={**os.environ, "PYTHONFAULTHANDLER": "1", **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_until_ready(self) -> None:
        """Wait for the program's first line of output."""
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise AssertionError(f"ended before it was ready:\n{self.end().errors}")

    def interrupt(self) -> None:
        """Ctrl-C: SIGINT for the program and its children."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self, timeout_seconds: float = _TIMEOUT_SECONDS) -> Ended:
        """Wait for the end; if it doesn't come, say where the program was, and kill its group."""
        try:
            output, errors = self.process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            _, errors = self.process.communicate()
            raise AssertionError(f"no end after {timeout_seconds} s:\n{errors}") from None
        finally:
            self.kill()
        return Ended(output, errors, self.process.returncode)

    def kill(self) -> None:
        """Kill what is left of the program's process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        # Waits for it, and closes its pipes.
        self.process.communicate()


def run_program(name: str, *arguments: str) -> str:
    """What a program prints, which must not fail."""
    ended = Program(name, *arguments).end()
    assert ended.code == 0, ended.errors
    return ended.output
