"""``adapters tune``: the best number and kind of workers and queue size for a source."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from adapters.cli.arguments import finite
from adapters.cli.named import is_path, made_by, names_in
from adapters.cli.progress import bar
from adapters.diagnosis.loaders import own_of
from adapters.diagnosis.prediction import gain_in_words
from adapters.diagnosis.script import code_of
from adapters.diagnosis.sweep import ROUNDS, line_of, sweep, table_of
from adapters.sources import names_images


def add_parser(subparsers: Any) -> None:
    """Add ``tune`` to the command line."""
    tune = subparsers.add_parser("tune", help="which workers are the fastest for a source")
    tune.add_argument(
        "loader",
        help="FILE.py:NAME or MODULE:NAME of a SafeSequence, a gluon_loader, or a function that "
        "makes one; or the path of record files with images, or of a folder of them",
    )
    tune.add_argument(
        "--seconds", type=finite, default=1.0, help="of each measurement (default: %(default)s)"
    )
    tune.add_argument(
        "--rounds", type=int, default=ROUNDS, help="measurements of each (default: %(default)s)"
    )
    tune.set_defaults(run=run_tune)


def run_tune(options: argparse.Namespace) -> int:
    """``adapters tune``."""
    for name in ("seconds", "rounds"):
        if not getattr(options, name) > 0:
            raise argparse.ArgumentError(
                None, f"--{name} must be > 0, got {getattr(options, name)}"
            )
    with _loader_of(options.loader) as loader, bar("tune", "measurement") as progress:
        # Reading a path runs no user code.
        running = nullcontext() if is_path(options.loader) else code_of(options.loader)
        with running:
            found = sweep(loader, seconds=options.seconds, rounds=options.rounds, progress=progress)
        for line in lines_of(loader, found):
            print(line)
    return 0


def lines_of(loader: Any, found: Any) -> Iterator[str]:
    """The table, the settings not tried, and the line to paste."""
    yield f"batches of {found.samples}; medians of {len(found.found[0].speeds)} rounds"
    yield from table_of(found.found)
    for each in found.left_out:
        yield f"not tried: {each}"
    best = found.recommended
    gain = "" if found.gain is None else f", {gain_in_words(found.gain)} beside its own setting"
    yield f"recommended, at {best.median:,.0f} samples/s of the loader alone{gain}:"
    yield f"  {line_of(loader, best.setting)}"


def _loader_of(name: str) -> Any:
    """Find or make the loader of that name.

    Raises:
        FileNotFoundError: There is no such file.
        ModuleNotFoundError: There is no such module.
        ValueError: There is no loader of that name, or it is a function that needs arguments.
        ScriptError: The file, the module or the function raises an error.
    """
    if is_path(name):
        return _of_records(name)
    place, _, attribute = name.rpartition(":")
    names = names_in(place)
    if attribute not in names:
        raise ValueError(
            f"{place} must define {attribute} when it is imported, and doesn't; what is below "
            'if __name__ == "__main__": isn\'t defined then'
        )
    loader = names[attribute]
    if own_of(loader) is None and callable(loader):
        loader = made_by(name, loader)
    if own_of(loader) is None:
        raise ValueError(
            f"{name} must be a SafeSequence, a gluon_loader, or a function that makes one, got "
            f"{type(loader).__name__}"
        )
    return loader


def _of_records(path: str) -> Any:
    """Make a typical image training loader: random resized crops of 224x224, shuffled."""
    from adapters import ImageDecoder, SafeSequence, open_images, open_records

    decode = ImageDecoder(224, crop="random_resized", flip=True)
    source = (open_images if names_images(path) else open_records)(path, decode=decode)
    return SafeSequence(source, 64, shuffle=True)
