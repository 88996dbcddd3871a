"""What tests need an interpreter of its own for: ``moved``, and the functions of ``fits``."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[3]
# Importing TensorFlow takes 4 s on two idle cores.
_TIMEOUT_SECONDS = 90.0


@dataclass(frozen=True)
class Ended:
    """A program that came to its end.

    Args:
        output: What it printed, without the line that says that it is ready.
        errors: What it wrote to stderr.
        code: Its exit code; that of a signal is negative.
        seconds: From when it was ready (or else started) to its end.
    """

    output: str
    errors: str
    code: int
    seconds: float


class Program:
    """A program that runs; it leads a process group of its own.

    Args:
        name: ``"moved"``, or a function of ``fits``.
        arguments: For its command line.
        environment: Further variables.
    """

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
        self._since = time.monotonic()

    def wait_until_ready(self) -> None:
        """Wait for the program's first line of output."""
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise AssertionError(f"ended before it was ready:\n{self.end().errors}")
        self._since = time.monotonic()

    def interrupt(self) -> None:
        """Ctrl-C: SIGINT for the program and its children."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self, timeout_seconds: float = _TIMEOUT_SECONDS) -> Ended:
        """Wait for the end.

        Raises:
            AssertionError: It didn't come; says where the program was. Its children are killed.
        """
        try:
            output, errors = self.process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            _, errors = self.process.communicate()
            raise AssertionError(f"no end after {timeout_seconds} s:\n{errors}") from None
        finally:
            self.kill()
        return Ended(output, errors, self.process.returncode, time.monotonic() - self._since)

    def kill(self) -> None:
        """Kill what is left of the program's process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        # Waits for it, and closes its pipes.
        self.process.communicate()


def run_program(name: str, *arguments: str, **options: Any) -> Ended:
    """Run a program to its end.

    Raises:
        AssertionError: It failed.
    """
    ended = Program(name, *arguments, **options).end()
    assert ended.code == 0, ended.errors
    return ended
