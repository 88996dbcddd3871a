"""``adapters pack``: pack images into record files, or compare the cost of encodings."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

from adapters.cli import arguments
from adapters.cli.progress import bar
from adapters.packing import ENCODINGS, Comparison, compare, pack
from adapters.packing.executors import connected
from adapters.records import CODECS


def add_parser(subparsers: Any) -> None:
    """Add ``pack`` to the command line."""
    command = subparsers.add_parser("pack", help="images into record files")
    command.add_argument("source", help="a folder with a folder per class, or an .lst or CSV file")
    command.add_argument(
        "out", nargs="?", help='"train" gives train-00000-of-00003.tfrecord, and so on'
    )
    command.add_argument(
        "--compare",
        action="store_true",
        help="pack nothing: say what each encoding costs in bytes and gives in samples/s here",
    )
    command.add_argument("--format", choices=sorted(CODECS), help="else by OUT's ending")
    command.add_argument(
        "--resize", type=arguments.positive, metavar="PIXELS", help="of the shorter side"
    )
    command.add_argument("--quality", type=arguments.quality, help="of JPEGs, 1 to 100")
    command.add_argument("--encoding", choices=ENCODINGS, default="jpeg")
    command.add_argument(
        "--shard-bytes", type=arguments.size, default=128 << 20, help="such as 64MB"
    )
    command.add_argument(
        "--workers", type=arguments.workers, default="auto", help='threads, or "auto"'
    )
    command.add_argument(
        "--dask", metavar="ADDRESS", help="of a Dask scheduler, whose workers encode: tcp://..."
    )
    command.add_argument("--root", help="of the paths in a list; else the list's folder")
    command.add_argument(
        "--on-error", choices=["raise", "skip"], default="raise", help="with what is no image"
    )
    command.add_argument(
        "--seed",
        type=arguments.seed,
        default="auto",
        help='of the order: a number shuffles, "none" doesn\'t; else what comes sorted by class',
    )
    command.set_defaults(run=run_pack)


def run_pack(options: argparse.Namespace) -> int:
    """Run ``adapters pack``."""
    if options.compare:
        for line in compared(
            compare(
                options.source, resize=options.resize, quality=options.quality, root=options.root
            )
        ):
            print(line)
        return 0
    if options.out is None:
        raise argparse.ArgumentError(
            None, "the following arguments are required: out (but with --compare)"
        )
    with contextlib.ExitStack() as stack:
        executor = stack.enter_context(connected(options.dask)) if options.dask else None
        progress = stack.enter_context(bar("pack", "picture"))
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
            progress=progress,
            seed=options.seed,
            executor=executor,
        )
    for skipped in manifest.skipped:
        print(f"skipped {skipped.name}: {skipped.reason}")
    size = sum(packed.bytes for packed in manifest.files)
    print(
        f"{manifest.read} read, {manifest.packed} packed, {len(manifest.skipped)} skipped: "
        f"{len(manifest.files)} files, {size / 2**20:,.1f} MiB, "
        f"{size / max(manifest.packed, 1):,.0f} bytes a record in {options.encoding} "
        "(--compare says what each encoding costs, and gives here)"
    )
    return 0


def compared(comparison: Comparison) -> Iterator[str]:
    """The encodings as a table."""
    yield (
        f"{comparison.inputs:,} pictures, of which {comparison.pictures:,} were encoded; from "
        f"memory to uint8 224x224, random boxes, in {comparison.workers} threads:"
    )
    yield f"{'--encoding':<12}{'bytes a picture':>17}{'all of them':>16}{'samples/s':>12}"
    for cost in comparison.costs:
        total = cost.picture_bytes * comparison.inputs / 2**20
        yield (
            f"{cost.encoding:<12}{cost.picture_bytes:>17,.0f}{total:>12,.1f} MiB"
            f"{cost.samples_per_second:>12,.0f}"
        )
