"""``adapters index``, ``verify`` and ``convert``: commands for whole record files."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from adapters.cli import arguments
from adapters.cli.progress import bar
from adapters.errors import RecordError
from adapters.packing import convert, verify
from adapters.records import CODECS
from adapters.records.files import expanded
from adapters.records.index import text_of, write_atomically
from adapters.records.remoteindex import put_index
from adapters.records.shard import INFLATED, Shard
from adapters.records.sidecar import place_of_command
from adapters.remote import clean, is_url


def add_parser(subparsers: Any) -> None:
    """Add the three commands to the command line."""
    index = subparsers.add_parser("index", help="write the index beside record files")
    index.add_argument("files", nargs="+")
    index.set_defaults(run=run_index)

    checked = subparsers.add_parser("verify", help="read all, check all, list what is wrong")
    checked.add_argument("files", nargs="+", help="record files, or manifests (.json)")
    checked.set_defaults(run=run_verify)

    converted = subparsers.add_parser("convert", help="RecordIO to TFRecord and back")
    converted.add_argument("files", nargs="+")
    converted.add_argument("out")
    converted.add_argument("--format", choices=sorted(CODECS), help="else by OUT's ending")
    converted.set_defaults(run=run_convert)


def run_index(options: argparse.Namespace) -> int:
    """Run ``adapters index``; 1 if damaged records were skipped."""
    paths, written = expanded(arguments.files(options.files)), []
    damage: list[RecordError] = []
    with bar("index", "file") as progress:
        for done, path in enumerate(paths):
            progress(done, len(paths))
            shard = Shard(path, "auto", True, index="search")
            if isinstance(shard.storage, INFLATED):
                raise ValueError(
                    f"{clean(path)} is compressed: its records have no offsets to be listed"
                )
            damage += shard.damage.values()
            if damage and len(shard.damage) == len(shard):
                raise damage[-1]
            text = text_of(shard.whole, shard.codec)
            if is_url(path):
                target = put_index(path, text)
            else:
                place = place_of_command(path)
                write_atomically(place, text)
                target = str(place)
            written.append(f"{target}: {len(shard) - len(shard.damage)} records")
        progress(len(paths), len(paths))
    for line in written:
        print(line)
    return _left_out("index", damage)


def run_verify(options: argparse.Namespace) -> int:
    """Run ``adapters verify``; 1 if anything is wrong."""
    with bar("verify", "record") as progress:
        good, wrong = verify(arguments.files(options.files, manifests=True), progress)
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
    return _left_out("convert", damage)


def _left_out(command: str, damage: list[RecordError]) -> int:
    """Print the records that were skipped, and return the exit status."""
    for error in damage:
        print(f"adapters {command}: left out: {error}", file=sys.stderr)
    return 1 if damage else 0
