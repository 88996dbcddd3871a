"""Several record files as one: their records numbered through, in the order of the files."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ClosedError
from adapters.foretold import Window
from adapters.records.formats import CODECS, listed
from adapters.records.held import Held
from adapters.records.inflated import InflatedObject
from adapters.records.parts import parts_of, without_markers
from adapters.records.peeking import mapped_lightly, will_peek
from adapters.records.remotefile import RemoteFile
from adapters.records.shard import Shard
from adapters.records.sidecar import MANIFEST_SUFFIX, record_files
from adapters.remote import Cache, is_url
from adapters.remote.fetching import side_by_side
from adapters.remote.listing import found_by
from adapters.remote.urls import as_path, clean, has_magic

# Of a stretch of which some records are chosen: how many times as long it may be.
_MOST_SPREAD = 4

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class RecordFiles:
    """The raw records of one file or of several.

    Args:
        paths: A path, a folder of record files, a glob, or a sequence of them. What a folder holds
            or a glob finds is sorted by name, without index files and Spark's markers.
        format: ``"recordio"``, ``"tfrecord"``, or ``"auto"``: each file's, told from its content.
        verify: Check a record's CRC the first time that it is read.
        cache: Where to keep what is read of them.

    Raises:
        ConnectionError: A store doesn't answer.
        FileNotFoundError: No such file, or a glob that finds none.
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
        """Files that are open already, as one."""
        files = cls.__new__(cls)
        files._join(shards)
        return files

    @classmethod
    def all_of(cls, several: Sequence[RecordFiles]) -> RecordFiles:
        """The records of all, one after another, until one of these is closed."""
        shards = {id(shard): shard for files in several for shard in files.shards}
        whole = cls.of(list(shards.values()))
        whole._parts = tuple(several)
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
        self.are_remote = any(isinstance(shard.storage, RemoteFile) for shard in shards)
        self._held = Held(sum(shard.storage.size for shard in shards))

    def chosen(self, numbers: NDArray[np.int64]) -> RecordFiles:
        """These records, numbered anew in this order; each of the two is closed by itself.

        Raises:
            ClosedError: After ``close``.
        """
        self.check_open()
        files = RecordFiles.of(self.shards)
        files._chosen = numbers if self._chosen is None else self._chosen[numbers]
        return files

    def __len__(self) -> int:
        return int(self._starts[-1]) if self._chosen is None else len(self._chosen)

    def locate(self, number: int) -> tuple[Shard, int]:
        """The file that record ``number`` is in, and its number there.

        Raises:
            ClosedError: After ``close``.
        """
        self.check_open()
        if self._chosen is not None:
            number = int(self._chosen[number])
        if len(self.shards) == 1:
            return self.shards[0], number
        place = int(np.searchsorted(self._starts, number, "right")) - 1
        return self.shards[place], number - int(self._starts[place])

    def check_open(self) -> None:
        """Do nothing, before ``close``.

        Raises:
            ClosedError: After it.
        """
        if self._closed or (self._parts and any(part._closed for part in self._parts)):
            raise ClosedError("the record files have been closed; open them anew")

    def in_order(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of these records in the files, one after another."""
        return numbers if self._chosen is None else self._chosen[numbers]

    def places(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which of the files each record is in, and its number there."""
        numbers = self.in_order(numbers)
        places = np.searchsorted(self._starts, numbers, "right") - 1
        return places, numbers - self._starts[places]

    def extents(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """At most how many bytes are read of each record, see ``Shard.extents``."""
        places, own = self.places(numbers)
        most = np.empty(len(numbers), np.int64)
        for place in np.unique(places).tolist():
            of_file = places == place
            most[of_file] = self.shards[place].extents(own[of_file])[1]
        return most

    @property
    def version(self) -> str:
        """What changes when the files do: paths, sizes and times, or URLs and ETags."""
        found = hashlib.sha256()
        for shard in self.shards:
            storage: Any = shard.storage
            storage = storage.remote if isinstance(storage, InflatedObject) else storage
            if isinstance(storage, RemoteFile):
                told: tuple[Any, ...] = (clean(storage.url), storage.head.version, storage.size)
            else:
                told = (os.path.abspath(storage.name), *storage.version)
            found.update(repr(told).encode("utf-8", "surrogateescape"))
        if self._chosen is not None:
            found.update(np.ascontiguousarray(self._chosen).data)
        return found.hexdigest()

    @property
    def record_bytes(self) -> float:
        """Bytes of a record on average, with what stands around it."""
        return sum(shard.storage.size for shard in self.shards) / max(1, int(self._starts[-1]))

    @property
    def store_is_cached(self) -> bool | None:
        """Whether a cache keeps what is fetched of files behind URLs; None without such files."""
        storages = (shard.storage for shard in self.shards)
        remote = [each for each in storages if isinstance(each, RemoteFile) and is_url(each.url)]
        return all(each.has_cache for each in remote) if remote else None

    def will_read(self, first: int, last: int, window: Window | None = None) -> None:
        """Have the files read ahead where records ``first`` to ``last - 1`` lie.

        Chosen records are read ahead where they lie near each other. Those of remote files that are
        ``asked`` for are fetched as a whole, and kept until their window was read.
        """
        if window is not None and window.asked and not self.are_remote:
            return
        if window is not None and not window.asked:
            self._held.leave(window)
        if self._chosen is not None:
            chosen = self._chosen[first:last]
            first, last = int(chosen.min()), int(chosen.max()) + 1
            if last - first > _MOST_SPREAD * len(chosen):
                return
        for start, shard in zip(self._starts.tolist(), self.shards):
            begin, end = max(0, first - start), min(len(shard), last - start)
            if begin >= end or self._closed:
                continue
            if window is None or not window.asked:
                shard.will_read(begin, end)
            elif isinstance(shard.storage, RemoteFile) and shard.is_in_order:
                self._held.hold(shard.storage, *shard.stretch(begin, end), window)

    def read(self, number: int) -> memoryview:
        """The payload of record ``number``, from 0.

        Raises:
            ClosedError: After ``close``.
            RecordError: The record is damaged.
        """
        shard, own = self.locate(number)
        return shard.read(own)

    def lightly(self, numbers: NDArray[np.int64]) -> Iterator[tuple[int, str, memoryview]]:
        """Records here and there of local files, unchecked; of large ones what is touched is read.

        Yields:
            The record's place among ``numbers``, its format and its payload.

        Raises:
            ClosedError: After ``close``.
            RecordError: A record isn't where the index says.
        """
        places: dict[Shard, list[tuple[int, int]]] = {}
        for place, number in enumerate(numbers.tolist()):
            shard, its = self.locate(number)
            places.setdefault(shard, []).append((place, its))
        for shard, located in places.items():
            own = np.array([number for _, number in located])
            begins, ends = shard.offsets[own], shard.offsets[np.minimum(own + 1, len(shard) - 1)]
            will_peek(shard.storage, [*begins.tolist(), *(ends - 1).tolist()])
        for shard, located in places.items():
            with mapped_lightly(shard.storage) as storage:
                for place, number in located:
                    size = None if shard.sizes is None else int(shard.sizes[number])
                    offset = int(shard.offsets[number])
                    payload = shard.codec.read(storage, offset, number, False, size)
                    yield place, shard.format, payload

    def bring(self, numbers: NDArray[np.int64]) -> None:
        """Fetch these records of remote files, of all files at once; return when they are here.

        Raises:
            ClosedError: After ``close``.
            ConnectionError: A store doesn't answer for as long as it may take.
            RecordError: An object has changed since it was opened.
        """
        if not self.are_remote:
            return
        self.check_open()
        parts = list(self._remote(numbers))
        if len(parts) > 1:
            for storage, begins, sizes in parts:
                storage.start(begins, sizes)
        for storage, begins, sizes in parts:
            storage.touch(begins, sizes)

    def expect(self, numbers: NDArray[np.int64], elsewhere: bool) -> None:
        """Begin to fetch these records of remote files, as they are going to be asked for.

        Args:
            numbers: Of the records.
            elsewhere: They are asked for in another process, which sees what is in a cache alone.
        """
        if self.are_remote and not self._closed:
            for storage, begins, sizes in self._remote(numbers):
                if storage.has_cache or not elsewhere:
                    storage.expect(begins, sizes, elsewhere)

    def _remote(
        self, numbers: NDArray[np.int64]
    ) -> Iterator[tuple[RemoteFile, NDArray[np.int64], NDArray[np.int64]]]:
        places, own = self.places(numbers)
        for place in np.unique(places).tolist():
            shard = self.shards[place]
            if isinstance(shard.storage, RemoteFile) and not shard.storage.is_here:
                yield shard.storage, *shard.extents(own[places == place])

    def close(self) -> None:
        """Unmap the files; what was read stays valid."""
        self._closed = True
        self._held.close()
        for shard in self.shards:
            shard.close()


def expanded(paths: Paths) -> list[str]:
    """The files that paths, folders, URLs and globs of these name.

    Raises:
        ConnectionError: A store doesn't answer.
        FileNotFoundError: None.
    """
    given: Any = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    files: list[str] = []
    for path in map(as_path, _as_strings(given)):
        if is_url(path):
            path = f"{path}*" if path.endswith("/") else path  # All that a folder holds.
            urls = without_markers(found_by(path)) if has_magic(path) else [path]
            wanted = record_files(urls, path.endswith(MANIFEST_SUFFIX)) if has_magic(path) else urls
            if not wanted:
                raise FileNotFoundError(f"no object matches {clean(path)!r}")
            files += wanted
            continue
        if os.path.isdir(path):
            files += parts_of(path)
            continue
        if os.path.exists(path) or not glob.has_magic(path):
            files.append(path)
            continue
        manifests = path.endswith(MANIFEST_SUFFIX)
        found = record_files(without_markers(sorted(glob.glob(path))), manifests)
        if not found:
            raise FileNotFoundError(f"no file matches {path!r}")
        files += found
    if not files:
        raise FileNotFoundError("paths must name at least one file, got none")
    return files


def _as_strings(paths: Any) -> list[str]:
    if isinstance(paths, (set, frozenset, Mapping)):
        raise TypeError(
            "paths must be a path, a glob, or a sequence of these, whose order is that of the "
            f"records, got {type(paths).__name__}: sorted makes a list of it"
        )
    try:
        named = [os.fspath(path) for path in paths]
    except TypeError:
        named = [paths]
    if not all(isinstance(path, str) for path in named):
        raise TypeError(f"paths must be a path, a glob, or a sequence of these, got {paths!r}")
    return named
