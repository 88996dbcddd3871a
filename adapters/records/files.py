"""Several record files as one, with records numbered consecutively in file order.

An order of samples in blocks (``batch.blocks``) reads a few blocks at once, shuffled: a window. A
block is a range of a file. Those of remote files are fetched whole, in the background::

    batch requested:   prefetch_hint(blocks of the next window, asked)
    batch computed:    prefetch_hint(the same, not asked) releases windows that have been read

So two windows and the start of a third lie in memory. Data that fit into the generations of
``remotefile`` stay there, and data of cached files stay in the cache.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ClosedError
from adapters.readahead import Window
from adapters.records import remotefile
from adapters.records.formats import CODECS, listed
from adapters.records.remotefile import RemoteFile, WindowKey, window_bytes
from adapters.records.shard import Shard
from adapters.records.sidecar import MANIFEST_SUFFIX, record_files
from adapters.records.storage import peeked
from adapters.remote import Cache, is_url
from adapters.remote.clients import found_by
from adapters.remote.fetch import low_priority_seconds, side_by_side
from adapters.remote.urls import as_path, clean, has_magic

# Selected records are read ahead if their range is at most this many times longer than they are.
_MOST_SPREAD = 4
# Other files in the output folders of Spark and Hadoop, whose record files are part-00000 etc. All
# hidden files are left out, too, such as the checksum .part-00000.crc.
_MARKERS = ("_SUCCESS", "_committed_", "_started_", "_temporary", "_metadata", "_common_metadata")

# Smaller blocks gain nothing over fetching single records.
_LEAST_BLOCK_BYTES = 1 << 20
# If a piece takes longer, connections are slow, and fetching records needs all of them.
_MOST_PIECE_SECONDS = 0.5

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class RecordFiles:
    """Raw records of one or more files.

    Args:
        paths: A path, a folder of record files, a glob, or a sequence of them. The files of a
            folder or a glob are sorted by name; index files and Spark's markers are left out.
        format: ``"recordio"``, ``"tfrecord"``, or ``"auto"`` to detect each file's format from its
            content.
        verify: Check a record's CRC the first time it is read.
        cache: Cache for the bytes that are read.

    Raises:
        ConnectionError: A store doesn't answer.
        FileNotFoundError: No such file, or a glob without matches.
        RecordError: A file of neither format, or a damaged one.
        ValueError: An unknown format.
    """

    def __init__(
        self,
        paths: Paths,
        format: str = "auto",
        verify: bool = True,
        cache: Cache | None = None,
    ) -> None:
        if format not in ("auto", *CODECS):
            raise ValueError(f'format must be "auto", {listed()}, got {format!r}')
        names = expanded(paths)

        def opened(path: str) -> Shard:
            return Shard(path, format, verify, cache=cache)

        if any(map(is_url, names)):
            self._join(side_by_side(opened, names))
        else:
            self._join([opened(name) for name in names])

    @classmethod
    def of(cls, shards: list[Shard]) -> RecordFiles:
        """Combine files that are already open."""
        files = cls.__new__(cls)
        files._join(shards)
        return files

    @classmethod
    def all_of(cls, several: Sequence[RecordFiles]) -> RecordFiles:
        """Concatenate several sets; closing any of them closes the result."""
        shards = {id(shard): shard for files in several for shard in files.shards}
        whole = cls.of(list(shards.values()))
        whole._parts = tuple(part for files in several for part in (files, *files._parts))
        chosen = any(files._chosen is not None for files in several)
        if chosen or len(shards) < sum(len(files.shards) for files in several):
            begins = dict(zip(shards, whole._starts.tolist()))
            numbers = []
            for files in several:
                places, inside = files.places(np.arange(len(files)))
                own = np.array([begins[id(shard)] for shard in files.shards], np.int64)
                numbers.append(own[places] + inside)
            whole._chosen = np.concatenate(numbers)
        return whole

    def _join(self, shards: list[Shard]) -> None:
        self.shards = shards
        self._parts: tuple[RecordFiles, ...] = ()
        self._starts = np.cumsum([0, *map(len, shards)])
        self._chosen: NDArray[np.int64] | None = None
        self._closed = False
        storages = (shard.storage for shard in shards)
        self._remote = [storage for storage in storages if isinstance(storage, RemoteFile)]
        self.are_remote = bool(self._remote)
        self._bytes = sum(shard.storage.size for shard in shards)

    def chosen(self, numbers: NDArray[np.int64]) -> RecordFiles:
        """Select these records, in this order; each object is closed separately."""
        self.check_open()
        files = RecordFiles.of(self.shards)
        files._parts = self._parts
        files._chosen = self.in_order(numbers)
        return files

    def __len__(self) -> int:
        return int(self._starts[-1]) if self._chosen is None else len(self._chosen)

    def locate(self, number: int) -> tuple[Shard, int]:
        """Return the file that holds record ``number``, and the record's number in it."""
        self.check_open()
        if self._chosen is not None:
            number = int(self._chosen[number])
        if len(self.shards) == 1:
            return self.shards[0], number
        place = int(np.searchsorted(self._starts, number, "right")) - 1
        return self.shards[place], number - int(self._starts[place])

    def check_open(self) -> None:
        """Check that the files are open."""
        if self._closed or (self._parts and any(part._closed for part in self._parts)):
            raise ClosedError("the record files have been closed; open them again")

    def in_order(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Map record numbers to numbers in the concatenated files."""
        return numbers if self._chosen is None else self._chosen[numbers]

    def places(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the index of each record's file, and the record's number in it."""
        numbers = self.in_order(numbers)
        places = np.searchsorted(self._starts, numbers, "right") - 1
        return places, numbers - self._starts[places]

    @property
    def version(self) -> str:
        """Hash of paths, sizes and times, or of URLs and ETags; differs if a file has changed."""
        found = hashlib.sha256()
        for shard in self.shards:
            storage: Any = getattr(shard.storage, "source", shard.storage)  # Of an inflated file.
            if isinstance(storage, RemoteFile):
                parts: tuple[Any, ...] = (clean(storage.path), storage.head.version, storage.size)
            else:
                times = map(int, storage.head.version.split())
                parts = (os.path.abspath(storage.name), storage.size, *times)
            found.update(repr(parts).encode("utf-8", "surrogateescape"))
        if self._chosen is not None:
            found.update(np.ascontiguousarray(self._chosen).data)
        return found.hexdigest()

    @property
    def mean_bytes(self) -> float:
        """Average size of a record in bytes, including its framing."""
        return sum(shard.storage.size for shard in self.shards) / max(1, int(self._starts[-1]))

    @property
    def store_is_cached(self) -> bool | None:
        """True if a cache stores all data fetched from URLs; None if no file is behind a URL."""
        behind_urls = [file for file in self._remote if is_url(file.path)]
        return all(file.cache is not None for file in behind_urls) if behind_urls else None

    def prefetch_hint(self, first: int, last: int, window: Window | None = None) -> None:
        """Read ahead in the files that hold records ``first`` to ``last - 1``.

        Selected records are read ahead only if they lie close together. If the window has ``asked``
        set, remote blocks are fetched whole and stay in memory until the window has been read.
        """
        is_asked = window is not None and window.asked
        if window is not None and not is_asked:
            order, over = (id(self), window.order), window.over
            self._leave(lambda key: key[:2] == order and key[2] <= over)
        if is_asked and not self.are_remote:
            return
        for shard, begin, end in self._stretches(first, last):
            if window is None or not is_asked:
                shard.storage.prefetch_hint(*shard.stretch(begin, end))
            elif isinstance(shard.storage, RemoteFile) and shard.is_in_order:
                self._prefetch(shard.storage, *shard.stretch(begin, end), window)

    def _prefetch(self, file: RemoteFile, offset: int, size: int, window: Window) -> None:
        """Start to fetch a block of a window, unless fetching records is better.

        Small blocks gain nothing, and on slow connections, records come first. Data sets of up to
        two ``HALF_BYTES`` stay in the generations anyway; of these, only data sets of up to one, or
        with a cache, are fetched in blocks.
        """
        if low_priority_seconds() > _MOST_PIECE_SECONDS:
            return
        if file.cache is not None or self._bytes <= remotefile.HALF_BYTES:
            file.prefetch_block(offset, size)
        elif size >= _LEAST_BLOCK_BYTES and self._bytes > 2 * remotefile.HALF_BYTES:
            order, most = (id(self), window.order), remotefile.MOST_WINDOW_BYTES
            if window_bytes() + size > most:  # Others may be left over.
                self._leave(lambda key: key[:2] != order)
            if window_bytes() + size <= most:
                file.prefetch_block(offset, size, (*order, window.number))

    def _leave(self, is_over: Callable[[WindowKey], bool]) -> None:
        """Release windows of these files."""
        for file in self._remote:
            file.leave(is_over)

    def _stretches(self, first: int, last: int) -> Iterator[tuple[Shard, int, int]]:
        """Yield files with the range of records to read ahead; none if these lie far apart."""
        if self._chosen is not None:
            chosen = self._chosen[first:last]
            first, last = int(chosen.min()), int(chosen.max()) + 1
            if last - first > _MOST_SPREAD * len(chosen):
                return
        for start, shard in zip(self._starts.tolist(), self.shards):
            begin, end = max(0, first - start), min(len(shard), last - start)
            if begin < end and not self._closed:
                yield shard, begin, end

    def read(self, number: int) -> memoryview:
        """Return the payload of record ``number``, counted from 0."""
        shard, own = self.locate(number)
        return shard.read(own)

    def read_unchecked(self, numbers: NDArray[np.int64]) -> Iterator[tuple[int, str, memoryview]]:
        """Read scattered records of local files without checks; in large files only touched pages.

        Yields:
            The record's place in ``numbers``, its format and its payload.
        """
        self.check_open()
        places, own = self.places(numbers)
        for place in np.unique(places).tolist():
            shard, rows = self.shards[place], np.flatnonzero(places == place)
            shard.check_length()
            begins = shard.offsets[own[rows]]
            ends = shard.offsets[np.minimum(own[rows] + 1, len(shard) - 1)]
            storage = peeked(shard.storage, [*begins.tolist(), *(ends - 1).tolist()])
            for row, number, offset in zip(rows.tolist(), own[rows].tolist(), begins.tolist()):
                size = None if shard.sizes is None else int(shard.sizes[number])
                payload = shard.codec.read(storage, offset, number, False, size)
                yield row, shard.format, payload

    def fetch(self, numbers: NDArray[np.int64]) -> None:
        """Fetch these records of all remote files at once, and wait for them."""
        if not self.are_remote:
            return
        self.check_open()
        parts = list(self._extents(numbers))
        if len(parts) > 1:
            for storage, begins, sizes in parts:
                storage.start(begins, sizes)
        for storage, begins, sizes in parts:
            storage.fetched_view(begins, sizes)

    def prefetch(self, numbers: NDArray[np.int64], elsewhere: bool) -> None:
        """Start to prefetch these records of remote files.

        If ``elsewhere``, another process will read them, which shares only the cache.
        """
        if self.are_remote and not self._closed:
            for storage, begins, sizes in self._extents(numbers):
                if storage.cache is not None or not elsewhere:
                    storage.prefetch(begins, sizes, elsewhere)

    def _extents(
        self, numbers: NDArray[np.int64]
    ) -> Iterator[tuple[RemoteFile, NDArray[np.int64], NDArray[np.int64]]]:
        places, own = self.places(numbers)
        for place in np.unique(places).tolist():
            shard = self.shards[place]
            if isinstance(shard.storage, RemoteFile) and not shard.storage.is_here:
                yield shard.storage, *shard.extents(own[places == place])

    def close(self) -> None:
        """Unmap the files; data that were read stay valid."""
        self._closed = True
        self._leave(lambda key: key[0] == id(self))
        for shard in self.shards:
            shard.close()


def expanded(paths: Paths) -> list[str]:
    """Expand paths, folders, URLs and globs of these to files."""
    files: list[str] = []
    for path in map(as_path, _as_strings(paths)):
        if is_url(path):
            path = f"{path}*" if path.endswith("/") else path  # Everything in the folder.
            found = _record_files(found_by(path), path) if has_magic(path) else [path]
            if not found:
                raise FileNotFoundError(f"no object matches {clean(path)!r}")
        elif os.path.isdir(path):
            found = _parts_of(path)
        elif os.path.exists(path) or not glob.has_magic(path):
            found = [path]
        else:
            found = _record_files(sorted(glob.glob(path, recursive=True)), path)
            if not found:
                raise FileNotFoundError(f"no file matches {path!r}")
        files += found
    if not files:
        raise FileNotFoundError("paths must name at least one file, got none")
    return files


def _record_files(names: Iterable[str], pattern: str = "") -> list[str]:
    """Filter out hidden files, job markers and indexes; manifests unless the pattern is of them."""
    hidden = (".", *_MARKERS)
    shown = [name for name in names if not os.path.basename(name).startswith(hidden)]
    return record_files(shown, pattern.endswith(MANIFEST_SUFFIX))


def _parts_of(folder: str) -> list[str]:
    """Return the record files of a local folder, sorted by name."""
    with os.scandir(folder) as entries:
        found = {entry.path: entry.is_dir() for entry in entries}
    parts = sorted(_record_files(path for path in found if not found[path]))
    if not parts:
        there = f"the folder {folder!r}, an empty one"
        if _record_files(path for path in found if found[path]):
            there = (
                f"{folder!r}, which holds only folders: use "
                f"{os.path.join(folder, '*', 'part-*')!r} for the files in them; open_images opens "
                "folders of images"
            )
        raise FileNotFoundError(f"paths must name record files, got {there}")
    return parts


def _as_strings(paths: Any) -> list[str]:
    if isinstance(paths, (set, frozenset, Mapping)):
        raise TypeError(
            "paths must be a path, a glob, or a sequence of these, whose order is that of the "
            f"records, got {type(paths).__name__}: sorted makes a list of it"
        )
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    try:
        named = [os.fspath(path) for path in paths]
    except TypeError:
        named = [paths]
    if not all(isinstance(path, str) for path in named):
        raise TypeError(f"paths must be a path, a glob, or a sequence of these, got {paths!r}")
    return named
