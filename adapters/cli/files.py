"""``adapters verify`` and ``convert``: commands for whole record files."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from adapters.cli import arguments
from adapters.cli.progress import bar
from adapters.errors import RecordError
from adapters.packing import convert, verify
from adapters.records import CODECS


def add_parser(subparsers: Any) -> None:
    """Add both commands to the command line."""
    checked = subparsers.add_parser("verify", help="read all, check all, list what is wrong")
    checked.add_argument("files", nargs="+", help="record files, or manifests (.json)")
    checked.add_argument(
        "--write-index",
        action="store_true",
        help="also write the index beside each record file; it lists the whole records",
    )
    checked.set_defaults(run=run_verify)

    converted = subparsers.add_parser("convert", help="RecordIO to TFRecord and back")
    converted.add_argument("files", nargs="+")
    converted.add_argument("out")
    converted.add_argument("--format", choices=sorted(CODECS), help="else by OUT's ending")
    converted.set_defaults(run=run_convert)


def run_verify(options: argparse.Namespace) -> int:
    """Run ``adapters verify``; 1 if anything is wrong."""
    written: dict[str, int] = {}
    with bar("verify", "record") as progress:
        good, wrong = verify(
            arguments.files(options.files, manifests=True),
            progress,
            on_index=written.__setitem__ if options.write_index else None,
        )
    for place, records in written.items():
        print(f"{place}: {records} records")
    for problem in wrong:
        print(problem)
    print(f"{good} records are right, {len(wrong)} things are wrong")
    return 1 if wrong else 0


def run_convert(options: argparse.Namespace) -> int:
    """Run ``adapters convert``; 1 if damaged records were skipped."""
    damage: list[RecordError] = []
    format = options.format or arguments.format_of(options.out)
    with bar("convert", "record") as progress:
        files = arguments.files(options.files)
        count = convert(
            files, options.out, format=format, progress=progress, on_damage=damage.append
        )
    print(f"{options.out}: {count} records")
    for error in damage:
        print(f"adapters convert: skipped: {error}", file=sys.stderr)
    return 1 if damage else 0
