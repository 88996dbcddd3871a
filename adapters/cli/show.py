"""``adapters show``: show batches or samples as a table and a contact sheet."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

from adapters.cli.arguments import positive
from adapters.cli.named import is_path, made_by, names_in
from adapters.diagnosis.script import code_of
from adapters.selecting.given import source_given
from adapters.sources import Source
from adapters.viewing import Peek, statistics

# Samples shown of a source.
_SAMPLES = 16


def add_parser(subparsers: Any) -> None:
    """Add ``show`` to the command line."""
    show = subparsers.add_parser("show", help="batches as a table and a contact sheet")
    show.add_argument(
        "what",
        help="FILE.py:NAME or MODULE:NAME of a SafeSequence, a gluon_loader, a source, or a "
        "function that makes one; or the path of record files or of a folder of images",
    )
    show.add_argument(
        "--batches", type=positive, default=2, help="that are shown (default: %(default)s)"
    )
    show.add_argument("--sheet", metavar="PNG", help="draw their images into this file")
    show.add_argument(
        "--statistics",
        action="store_true",
        help="read the whole source: means, labels, sizes, what is damaged",
    )
    show.set_defaults(run=run_show)


def run_show(options: argparse.Namespace) -> int:
    """Run ``adapters show``.

    Raises:
        FileNotFoundError: There is no such file.
        ModuleNotFoundError: There is no such module.
        ScriptError: The user's code raises an error.
        TypeError: The named object can't be shown.
        ValueError: There is nothing of that name, a function needs arguments, or there are no
            images for a sheet.
    """
    if is_path(options.what):
        given: Any = options.what
        running: Any = contextlib.nullcontext()
    else:
        given = _named(options.what)
        running = code_of(options.what)
    peeks = hasattr(given, "peek")
    source = None if peeks else source_given(given, "what")
    with running:
        if options.statistics and source is not None:
            print(statistics(source))
        peek = given.peek(options.batches) if source is None else _of_source(source)
    if options.statistics and peeks:
        raise ValueError(
            f"--statistics is about a source, got {type(given).__name__}: name what it reads"
        )
    print(peek)
    if options.sheet:
        print(f"its images: {peek.save(options.sheet)}")
    if peeks:
        given.close()
    return 0


def _named(name: str) -> Any:
    place, _, attribute = name.rpartition(":")
    names = names_in(place)
    if attribute not in names:
        raise ValueError(f"{place} must define {attribute}, and doesn't")
    given = names[attribute]
    if callable(given) and not hasattr(given, "__len__"):
        given = made_by(name, given)
    return given


def _of_source(source: Source) -> Peek:
    return Peek.of_samples(source.sample(number) for number in range(min(_SAMPLES, len(source))))
