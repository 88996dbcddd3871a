"""``adapters inspect``: the first samples of files, folders or a loader, and their statistics."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

from adapters.cli import arguments
from adapters.cli.description import described, images_of, records_among
from adapters.cli.named import is_path, object_named
from adapters.diagnosis.script import code_of
from adapters.errors import ContentError
from adapters.selecting.given import source_given
from adapters.sources import names_images, open_guessed
from adapters.viewing import Peek, statistics


def add_parser(subparsers: Any) -> None:
    """Add ``inspect`` to the command line."""
    command = subparsers.add_parser(
        "inspect",
        help="show the first samples of files, folders or a loader; contact sheets, statistics",
    )
    command.add_argument(
        "targets",
        nargs="+",
        metavar="TARGET",
        help="paths of record files or of folders of images; or FILE.py:NAME or MODULE:NAME of a "
        "SafeSequence, a gluon_loader, a source, or a function that makes one",
    )
    command.add_argument(
        "--count",
        type=arguments.positive,
        default=5,
        help="samples that are shown of each file or source (default: %(default)s)",
    )
    command.add_argument(
        "--batches",
        type=arguments.positive,
        default=2,
        help="that are shown of a loader (default: %(default)s)",
    )
    command.add_argument("--sheet", metavar="PNG", help="also draw their images into this file")
    command.add_argument(
        "--statistics",
        action="store_true",
        help="also read everything: means, labels, sizes, what is damaged",
    )
    command.set_defaults(run=run_inspect)


def run_inspect(options: argparse.Namespace) -> int:
    """Run ``adapters inspect``."""
    names = [name for name in options.targets if not is_path(name)]
    if not names:
        _inspect_paths(arguments.files(options.targets), options)
    elif len(options.targets) > 1:
        raise argparse.ArgumentError(
            None, f"{names[0]} must be the only target, got {len(options.targets)}"
        )
    else:
        _inspect_object(names[0], options)
    return 0


def _inspect_paths(paths: list[str], options: argparse.Namespace) -> None:
    """Show the first records or images of each path."""
    for line in described(paths, options.count):
        print(line)
    if options.statistics:
        for path in filter(names_images, paths):
            print(statistics(path))
        if records := records_among(paths):
            print(statistics(open_guessed(records)))
    if options.sheet is not None:
        images = images_of(paths, options.count)
        if not images:
            raise ContentError("records that are images", "none")
        Peek.of_samples(images).save(options.sheet)
        print(f"{options.sheet}: {len(images)} images")


def _inspect_object(name: str, options: argparse.Namespace) -> None:
    """Show the first batches of a loader, or the first samples of a source."""
    found = object_named(name)
    is_loader = hasattr(found, "peek")
    if is_loader and options.statistics:
        raise ValueError(
            f"--statistics is about a source, got {type(found).__name__}: name what it reads"
        )
    source = None if is_loader else source_given(found, "target")
    with contextlib.closing(found) if is_loader else contextlib.nullcontext(), code_of(name):
        if source is None:
            peek = found.peek(options.batches)
        else:
            if options.statistics:
                print(statistics(source))
            count = min(options.count, len(source))
            peek = Peek.of_samples(source.sample(number) for number in range(count))
    print(peek)
    if options.sheet is not None:
        print(f"{peek.save(options.sheet)}: their images")
