"""Scripts in processes of their own: what is left of them when they have ended, in whatever way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import psutil

_PROLOGUE = """
import os, signal, sys, threading, time
import numpy as np
from tests.engine.executors import opened, read, settings_of, wait_until, workers
from tests.engine.workloads import *
from tests.plans import plan_of
from adapters.engine import Engine

"""
_ROOT = Path(__file__).parent.parent.parent


class Script:
    """A running script's main process, with all others in a session of their own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        assert process.stdout is not None
        self.output: IO[str] = process.stdout

    def wait_for(self, line: str) -> None:
        """Read up to this line, or raise ``EOFError``."""
        for printed in self.output:
            if printed.strip() == line:
                return
        raise EOFError(f"the script ended without saying {line!r}: {self._process.stderr.read()}")  # type: ignore[union-attr]

    def finish(self, seconds: float) -> tuple[int, str, str]:
        """Wait for its end: exit code, output, errors."""
        output, errors = self._process.communicate(timeout=seconds)
        return self._process.returncode, output, errors

    def wait(self, seconds: float) -> int:
        """Wait for the end of the main process, whoever else still runs: its exit code."""
        return self._process.wait(seconds)

    def interrupt(self) -> None:
        """Ctrl-C: SIGINT to all of its processes."""
        os.killpg(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """SIGKILL, to the main process only."""
        self._process.kill()

    def processes(self) -> list[psutil.Process]:
        """Processes of the script that are alive, its main process and helpers too."""
        found = []
        for process in psutil.process_iter():
            with suppress(ProcessLookupError, psutil.Error):
                if os.getsid(process.pid) == self.pid and process.status() != "zombie":
                    found.append(process)
        return found

    def survivors(self, seconds: float) -> list[str]:
        """Command lines of the processes that are still there after that time."""
        deadline = time.monotonic() + seconds
        while (processes := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        lines = []
        for process in processes:
            with suppress(psutil.Error):
                lines.append(" ".join(process.cmdline()))
        return lines


def ended(
    *arguments: Any, timeout: float = 100, variables: dict[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Python with these arguments and with this package, once it has come to its end."""
    command = [sys.executable, *map(str, arguments)]
    options["env"] = {**os.environ, "PYTHONPATH": str(_ROOT), **(variables or {})}
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, **options)


@contextmanager
def script(text: str) -> Iterator[Script]:
    """Start a script; in the end, kill all that is left of it."""
    command = [sys.executable, "-u", "-W", "error", "-c", _PROLOGUE + textwrap.dedent(text)]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=_ROOT, **pipes, start_new_session=True)
    running = Script(process)
    try:
        yield running
    finally:
        for left in running.processes():
            with suppress(psutil.Error):
                left.kill()
        process.communicate()
