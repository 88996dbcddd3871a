"""``adapters doctor``: diagnose a training script, or this machine and environment.

Arguments after the script's name are passed to the script, except ``--html`` before a ``--``.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from adapters.cli.arguments import finite, from_zero
from adapters.cli.progress import bar
from adapters.diagnosis.page import page_of
from adapters.diagnosis.script import diagnose_script
from adapters.machine import described_machine


def add_parser(subparsers: Any) -> None:
    """Add ``doctor`` to the command line."""
    doctor = subparsers.add_parser(
        "doctor", help="where does the time of a training script go; without one, of this machine"
    )
    doctor.add_argument(
        "--skip", type=from_zero, default=0, metavar="N", help="loops to leave alone"
    )
    doctor.add_argument(
        "--t",
        type=finite,
        metavar="SECONDS",
        help="the step time to keep up with; else the script's",
    )
    doctor.add_argument(
        "--seconds", type=finite, default=2.0, help="of each measurement (default: %(default)s)"
    )
    doctor.add_argument(
        "--html", metavar="FILE", help="also a page with the waits drawn, to be looked at"
    )
    doctor.add_argument("script", nargs="?", help="a training script, run to its first loop")
    doctor.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    doctor.set_defaults(run=run_doctor)


def run_doctor(options: argparse.Namespace) -> int:
    """Run ``adapters doctor``; 1 if the script has no training loop.

    Raises:
        ScriptError: The script raises an error.
    """
    for name in ("t", "seconds"):
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise argparse.ArgumentError(None, f"--{name} must be > 0 seconds, got {value}")
    html, arguments = _page_of_arguments(options.html, options.arguments)
    if html is not None and options.script is None:
        raise argparse.ArgumentError(None, "--html needs a script to be examined")
    if html is not None and not os.path.isdir(os.path.dirname(html) or "."):
        raise argparse.ArgumentError(
            None, f"--html must be a file in a folder that is there, got {html!r}"
        )
    if options.script is None:
        for line in described_machine():
            print(line, flush=True)
        return 0
    with bar("doctor", "round") as progress:
        found = diagnose_script(
            options.script,
            arguments,
            skip=options.skip,
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
    if html is not None:
        with open(html, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(page_of(found, os.path.basename(options.script)))
        print(f"\n{html}: the same as a page")
    return 0


def _page_of_arguments(html: str | None, arguments: list[str]) -> tuple[str | None, list[str]]:
    """Separate the path of the page from the arguments of the script.

    Raises:
        ArgumentError: ``--html`` has no value.
    """
    ours = arguments.index("--") if "--" in arguments else len(arguments)
    left, given = [], iter(arguments[:ours])
    for word in given:
        name, equals, value = word.partition("=")
        if name != "--html":
            left.append(word)
        elif (found := value if equals else next(given, "")) == "":
            raise argparse.ArgumentError(None, "--html must be followed by the file of the page")
        else:
            html = found
    # A leading ``--`` is a separator, and isn't passed to the script.
    return html, left + arguments[ours + (not left) :]
