"""One row of a table: the program that runs in a fresh process.

    python -m benchmarks.harness.row PROGRAM OPTIONS.json RESULT.json

PROGRAM is a module with `measure(options) -> Measurement`. It is imported under its own name, not
as `__main__`, so that transforms and data sets that a row sends to worker processes can be found
there. The result appears whole or not at all.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import TypedDict

# Keras and MXNet import them where they are installed, as for the harness; no row needs either, and
# they would take a second of each.
UNNEEDED = ("matplotlib", "sklearn")


class _Needed(TypedDict):
    software: str
    device: str
    metrics: dict[str, float]
    window: tuple[float, float]


class Measurement(_Needed, total=False):
    """What a row program reports.

    `software` and `device` are for the table's head: which framework on which backend, with
    versions, and what it trained on. `metrics` are numbers under the keys of the experiment's
    columns. `window` is the begin and the end, by `time.monotonic`, of what was measured: the
    harness, which shares that clock, takes the peak of its memory samples over it. `rounds` are the
    same metrics of parts of what was measured, where one process can tell its own spread. `busy` is
    the part of `window` that `cpu_percent` is of, where that isn't all of it. `seed` is what the
    order of samples and the first weights came from, where a row has one.
    """

    rounds: dict[str, list[float]]
    busy: tuple[float, float]
    seed: int


def main() -> None:
    """Run the program named on the command line."""
    for name in UNNEEDED:
        # For who imports it, it isn't installed.
        sys.modules[name] = None  # type: ignore[assignment]
    run(*sys.argv[1:])


def run(program: str, options_path: str, result_path: str) -> None:
    """Run a program and write its result."""
    options = json.loads(Path(options_path).read_text())
    if options.get("cpus") is not None:
        # Before any library counts them.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options["cpus"]])
    result: Measurement = importlib.import_module(program).measure(options)
    unfinished = Path(result_path + ".unfinished")
    unfinished.write_text(json.dumps(result))
    os.replace(unfinished, result_path)


if __name__ == "__main__":
    main()
