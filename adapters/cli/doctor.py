"""``adapters doctor``: of a training script, or of this machine and environment."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from adapters.cli.progress import bar
from adapters.diagnosis.script import diagnose_script
from adapters.machine import described_machine


def add_parser(subparsers: Any) -> None:
    """Add ``doctor`` to the command line."""
    doctor = subparsers.add_parser(
        "doctor", help="where does the time of a training script go; without one, of this machine"
    )
    doctor.add_argument("--skip", type=int, default=0, metavar="N", help="loops to leave alone")
    doctor.add_argument(
        "--t",
        type=float,
        metavar="SECONDS",
        help="the step time to keep up with; else the script's",
    )
    doctor.add_argument(
        "--seconds", type=float, default=2.0, help="of each measurement (default: %(default)s)"
    )
    doctor.add_argument("script", nargs="?", help="a training script, run to its first loop")
    doctor.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    doctor.set_defaults(run=run_doctor)


def run_doctor(options: argparse.Namespace) -> int:
    """``adapters doctor``; 1 if the script has no training loop.

    Raises:
        ScriptError: From what the script raises.
    """
    for name in ("t", "seconds"):
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise argparse.ArgumentError(None, f"--{name} must be > 0 seconds, got {value}")
    if options.script is None:
        for line in described_machine():
            print(line)
        return 0
    with bar("doctor", "round") as progress:
        found = diagnose_script(
            options.script,
            options.arguments,
            skip=max(0, options.skip),
            t=options.t,
            seconds=options.seconds,
            progress=progress,
        )
    if found is None:
        print(
            f"adapters doctor: {options.script} came to its end without a call of Keras's fit or a "
            "loop over a Gluon loader that was long enough",
            file=sys.stderr,
        )
        return 1
    print(found)
    return 0
