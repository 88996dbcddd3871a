"""``adapters pack``, ``verify`` and ``convert``: record files are written, checked, rewritten."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from typing import Any

from adapters.arguments import counted
from adapters.cli import arguments
from adapters.errors import RecordError
from adapters.packing import ENCODINGS, convert, pack, verify
from adapters.packing.tasks import connected
from adapters.progress import bar
from adapters.records import CODECS


def add_parser(subparsers: Any) -> None:
    """Add the three commands to the command line."""
    command = subparsers.add_parser("pack", help="images into record files")
    add = command.add_argument
    add("source", help="a folder with a folder per class, or an .lst or CSV file")
    add("out", help='"train" gives train-00000-of-00003.tfrecord, and so on')
    add("--format", choices=sorted(CODECS), help="else by OUT's ending")
    add("--resize", type=arguments.positive, metavar="PIXELS", help="of the shorter side")
    add("--quality", type=arguments.quality, help="of JPEGs, 1 to 100")
    add("--encoding", choices=ENCODINGS, default="jpeg")
    add(
        "--shard-bytes",
        type=arguments.size,
        default=128 << 20,
        help="such as 64MB, which is 64 MiB",
    )
    add("--workers", type=arguments.workers, default="auto", help='threads, or "auto"')
    add("--dask", metavar="ADDRESS", help="of a Dask scheduler, whose workers encode: tcp://...")
    add("--root", help="of the paths in a list; else the list's folder")
    add("--on-error", choices=["raise", "skip"], default="raise", help="with what is no image")
    add(
        "--seed",
        type=arguments.seed,
        default="auto",
        help='a number shuffles, "none" doesn\'t; by default, only input sorted by class is '
        "shuffled",
    )
    command.set_defaults(run=run_pack)

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


def run_pack(options: argparse.Namespace) -> None:
    """Run ``adapters pack``."""
    with contextlib.ExitStack() as stack:
        executor = stack.enter_context(connected(options.dask)) if options.dask else None
        manifest = pack(
            options.source,
            options.out,
            format=options.format or arguments.format_of(options.out),
            shard_bytes=options.shard_bytes,
            resize=options.resize,
            quality=options.quality,
            encoding=options.encoding,
            workers=options.workers,
            on_error=options.on_error,
            root=options.root,
            progress=stack.enter_context(bar("pack", "image")),
            seed=options.seed,
            executor=executor,
        )
    for skipped in manifest.skipped:
        print(f"skipped {skipped.name}: {skipped.reason}")
    size = sum(packed.bytes for packed in manifest.files)
    print(
        f"{manifest.read} read, {manifest.packed} packed, {len(manifest.skipped)} skipped: "
        f"{counted(len(manifest.files), 'file')}, {size / 2**20:,.1f} MiB, "
        f"{size / max(manifest.packed, 1):,.0f} bytes a record in {options.encoding}"
    )


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
        print(f"{place}: {counted(records, 'record')}")
    for problem in wrong:
        print(problem)
    print(f"{counted(good, 'good record')}, {counted(len(wrong), 'problem')}")
    return 1 if wrong else 0


def run_convert(options: argparse.Namespace) -> int:
    """Run ``adapters convert``; 1 if damaged records were skipped."""
    if os.path.isfile(options.out):  # For example, the last of shard-*.rec, with OUT forgotten.
        raise FileExistsError(
            f"OUT must be a new file, got {options.out!r}, which exists: name a new file last, or "
            "remove this one"
        )
    damage: list[RecordError] = []
    format = options.format or arguments.format_of(options.out)
    with bar("convert", "record") as progress:
        files = arguments.files(options.files)
        count = convert(
            files, options.out, format=format, progress=progress, on_damage=damage.append
        )
    print(f"{options.out}: {counted(count, 'record')}")
    for error in damage:
        print(f"adapters convert: skipped: {error}", file=sys.stderr)
    return 1 if damage else 0
