"""``adapters cache``: show the contents of a cache, fill it before a training, or empty it."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import counted
from adapters.cli import arguments
from adapters.progress import bar
from adapters.records import RecordFiles
from adapters.remote import Cache
from adapters.remote.cache import DEFAULT_LIMIT_BYTES
from adapters.sources.folders import names_images, open_images
from adapters.sources.imagefiles import ImageSource

# Records fetched at once: 25 MB if each has 100 kB.
_AT_ONCE = 256


def add_parser(subparsers: Any) -> None:
    """Add ``cache`` and its three subcommands to the command line."""
    cache = subparsers.add_parser("cache", help="show, fill or empty a cache of remote files")
    own = cache.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = own.add_parser("show", help="list what is stored, and how much of the disk it takes")
    show.add_argument("folder")
    show.set_defaults(run=run_show)
    warm = own.add_parser("warm", help="fetch records or images into it before a training")
    warm.add_argument("folder")
    warm.add_argument(
        "files", nargs="+", help="record files: URLs, globs of them, paths; folders of images"
    )
    warm.add_argument(
        "--limit",
        default=DEFAULT_LIMIT_BYTES,
        help="in bytes, or like 200GB (200 * 10^9) or 200GiB; 100GB by default",
    )
    warm.set_defaults(run=run_warm)
    clear = own.add_parser("clear", help="remove what is stored; open files can still be read")
    clear.add_argument("folder")
    clear.set_defaults(run=run_clear)


def run_show(options: argparse.Namespace) -> None:
    """Run ``adapters cache show``."""
    cache = _existing(options.folder)
    for stored in cache.objects():
        if stored.size:
            share = min(stored.cached_bytes / stored.size, 1)
            cached = f"{_mib(stored.cached_bytes)} of {_mib(stored.size)} MiB"
            print(f"{stored.url}: {cached} ({share:.0%})")
        else:
            print(f"{stored.url}: {_mib(stored.cached_bytes)} MiB of whole objects")
    print(f"{cache.folder}: {_mib(cache.used)} MiB")


def run_warm(options: argparse.Namespace) -> int:
    """Run ``adapters cache warm``; 1 if something couldn't be cached, as a warning says."""
    cache = Cache(options.folder, options.limit)
    os.makedirs(cache.folder, exist_ok=True)
    with tempfile.TemporaryFile(dir=cache.folder):  # Fails before anything is fetched.
        pass
    done = []
    for path in filter(names_images, options.files):
        with open_images(path, cache=cache) as images:
            _read_all(images, images.read_and_discard, "image")
            done.append(counted(len(images), "image"))
    records = [path for path in options.files if not names_images(path)]
    if records:
        files = RecordFiles(arguments.files(records), cache=cache)
        _read_all(files, files.fetch, "record")
        files.close()
        done.append(f"{counted(len(files), 'record')} of {counted(len(files.shards), 'file')}")
    print(f"{cache.folder}: {', '.join(done)}, {_mib(cache.used)} MiB")
    return int(cache.has_failed)


def _read_all(
    source: RecordFiles | ImageSource, read: Callable[[NDArray[np.int64]], None], unit: str
) -> None:
    """Read everything in blocks of ``_AT_ONCE``, with one block of read-ahead."""
    with bar("cache", unit) as progress:
        for first in range(0, len(source), _AT_ONCE):
            last = min(first + _AT_ONCE, len(source))
            source.prefetch(np.arange(last, min(last + _AT_ONCE, len(source))), elsewhere=False)
            read(np.arange(first, last))
            progress(last, len(source))


def run_clear(options: argparse.Namespace) -> None:
    """Run ``adapters cache clear``."""
    cache = _existing(options.folder)
    print(f"{cache.folder}: {_mib(cache.clear())} MiB removed")


def _existing(folder: str) -> Cache:
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"{folder}: no such folder")
    return Cache(folder)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f}"
