"""Rows that share a process, one after the other: in the smoke size, importing is what takes time.

A process is kept for rows that are alike, and the last few of them are kept at all; a row that
fails ends its process, and the next one has a new one. `KeptProcesses` owns them; its `close` waits
until they have ended, and says which of them left something behind. Used by one thread; nothing
outlives `close`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.processes import (
    ROOT,
    Outcome,
    Watch,
    environment_of,
    left_running,
    outcome_of,
)

MOST_KEPT = 4  # Of processes, each with a framework or two in its memory.


class KeptProcesses:
    """The processes of a session, by what their rows share."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._kept)

    def run(
        self,
        shared: Hashable,
        program: str,
        options: Mapping[str, Any],
        limit_seconds: float,
        backend: str | None = None,
    ) -> tuple[Outcome, list[str]]:
        """Run one row in the process of those that it shares one with, or in a new one.

        Args:
            shared: What tells which.
            program: As for `run_row`.
            options: As for `run_row`.
            limit_seconds: As for `run_row`.
            backend: As for `run_row`.

        Returns:
            The row's outcome; and what is to be said of processes that had to go for it.
        """
        failures = []
        if shared not in self._kept:
            while len(self._kept) >= MOST_KEPT:
                failures += self._close_one()
            self._kept[shared] = _Kept(backend)
        self._kept.move_to_end(shared)
        kept = self._kept[shared]
        outcome = kept.run(program, options, limit_seconds)
        if outcome.failure is not None:
            del self._kept[shared]
            kept.close()
        return outcome, failures

    def close(self) -> list[str]:
        """End all processes; returns what is to be said of those that didn't end well."""
        failures = []
        while self._kept:
            failures += self._close_one()
        return failures

    def _close_one(self) -> list[str]:
        """The one that wasn't used for longest."""
        shared, kept = self._kept.popitem(last=False)
        failure = kept.close()
        return [] if failure is None else [f"{shared}: {failure}"]


class _Kept:
    """One process, and what its rows read and write."""

    def __init__(self, backend: str | None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="benchmark-rows-")
        self._log_path = Path(self._folder.name, "log.txt")
        self._rows = 0
        reading, writing = os.pipe()
        self._lines = os.fdopen(writing, "w")
        with self._log_path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.harness.row", str(reading)],
                cwd=ROOT,
                env=environment_of(backend),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[reading],
                start_new_session=True,
            )
        os.close(reading)
        self._watch = Watch(process)

    def run(self, program: str, options: Mapping[str, Any], limit_seconds: float) -> Outcome:
        """Blocks until the row's result is there, or won't be."""
        self._rows += 1
        options_path = Path(self._folder.name, f"options-{self._rows}.json")
        result_path = Path(self._folder.name, f"result-{self._rows}.json")
        options_path.write_text(json.dumps(options))
        written = self._log_path.stat().st_size
        with contextlib.suppress(BrokenPipeError):  # It has ended since, which is found below.
            self._lines.write(json.dumps([program, str(options_path), str(result_path)]) + "\n")
            self._lines.flush()
        failure = self._watch.wait_for(result_path, limit_seconds)
        if failure is not None:
            # Where it hangs, faulthandler then tells where.
            self._watch.end()
        output = self._log_path.read_bytes()[written:].decode(errors="replace").strip()
        return outcome_of(self._watch, result_path, failure, output)

    def close(self) -> str | None:
        """End it; returns why it didn't end well."""
        with contextlib.suppress(BrokenPipeError):
            self._lines.close()
        try:
            failure = self._watch.wait_for_end()
        finally:
            left_behind = self._watch.end()
            self._folder.cleanup()
        return left_running(left_behind) if failure is None and left_behind else failure
