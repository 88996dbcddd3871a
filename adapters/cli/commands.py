"""The commands: each takes what was said, has it done by ``packing``, and prints the result."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator

from adapters.cli.inspection import contact_sheet, described
from adapters.cli.progress import bar
from adapters.packing import Comparison, compare, convert, pack, verify
from adapters.packing.executors import connected
from adapters.records import CODECS
from adapters.records.files import expanded
from adapters.records.formats import codec_of
from adapters.records.index import Index, text_of, write_atomically
from adapters.records.remoteindex import put_index
from adapters.records.shard import INFLATED, Shard
from adapters.records.sidecar import place_of_command, record_files
from adapters.remote import clean, is_url


def run_pack(options: argparse.Namespace) -> int:
    """``adapters pack``."""
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
            format=options.format or _format_of(options.out),
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
    """A table of the encodings, for people."""
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


def run_index(options: argparse.Namespace) -> int:
    """``adapters index``."""
    paths, written = expanded(_record_files(options.files)), []
    with bar("index", "file") as progress:
        for done, path in enumerate(paths):
            progress(done, len(paths))
            shard = Shard(path, "auto", True, index="search")
            if isinstance(shard.storage, INFLATED):
                raise ValueError(
                    f"{clean(path)} is compressed: its records have no offsets to be listed"
                )
            text = text_of(Index(shard.offsets, shard.sizes), shard.codec)
            if is_url(path):
                target = put_index(path, text)
            else:
                place = place_of_command(path)
                write_atomically(place, text)
                target = str(place)
            written.append(f"{target}: {len(shard)} records")
        progress(len(paths), len(paths))
    for line in written:
        print(line)
    return 0


def run_verify(options: argparse.Namespace) -> int:
    """``adapters verify``; 1 if anything is wrong."""
    with bar("verify", "record") as progress:
        good, wrong = verify(_record_files(options.files, manifests=True), progress)
    for problem in wrong:
        print(problem)
    print(f"{good} records are right, {len(wrong)} things are wrong")
    return 1 if wrong else 0


def run_convert(options: argparse.Namespace) -> int:
    """``adapters convert``."""
    format = options.format or _format_of(options.out)
    with bar("convert", "record") as progress:
        files = _record_files(options.files)
        count = convert(files, options.out, format=format, progress=progress)
    print(f"{options.out}: {count} records")
    return 0


def run_inspect(options: argparse.Namespace) -> int:
    """``adapters inspect``."""
    files = _record_files(options.files)
    for line in described(files, options.count):
        print(line)
    if options.sheet is not None:
        shown = contact_sheet(files, options.count, options.sheet)
        print(f"{options.sheet}: {shown} images")
    return 0


def _record_files(given: list[str], manifests: bool = False) -> list[str]:
    """Without the indexes and manifests that a shell finds, too, where one says ``train*``."""
    return record_files(given, manifests) or given


def _format_of(out: str) -> str:
    codec = codec_of(out)
    if codec is not None:
        return codec.name
    listed = " or ".join(f"{CODECS[name].suffix} ({name})" for name in sorted(CODECS))
    raise argparse.ArgumentError(
        None, f"--format must be given where OUT doesn't end in {listed}, got {out!r}"
    )
