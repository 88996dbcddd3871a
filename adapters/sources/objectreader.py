"""``ObjectReader``: reads whole objects behind URLs, with many concurrent requests.

    start, prefetch --Request each--> threads --> _requests --read--> decoder, then the only owner

A file usually takes one request, and so is of one version even if the object changes meanwhile. The
version is the listed one, or the one that this process read first; another one is an error. Fetched
files are kept up to a limit until they are read; beyond it they are fetched again. With a cache,
files are looked up there first, and files of slow disks are cached as well.

Thread-safe; a read waits for its file. A forked process, like any other one, starts with nothing
fetched.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.remote import Cache, Head, client_of, is_url, reader_of
from adapters.remote.cache import IDENTITY_BYTES, ObjectCache, identity_of
from adapters.remote.fetch import Piece, side_by_side, start
from adapters.remote.retry import persistently
from adapters.sources.filereader import MOST_BYTES, NO_ROOM, FileReader, read_file
from adapters.sources.files import Files, Listed, measured

# Most bytes fetched and not read yet.
_MOST_HELD_BYTES = 256 << 20
# Most bytes fetched ahead: a window of 10 batches of 256 images of 47 kB has 120 MB.
_MOST_EXPECTED_BYTES = 128 << 20
# Assumed size of a file before any is known.
_GUESSED_BYTES = 100_000


class Request(Piece):
    """Request for one file, in flight or done."""

    __slots__ = ("data", "is_expected", "stays")

    def __init__(self, number: int, reader: ObjectReader, is_expected: bool, stays: bool) -> None:
        self.data: memoryview | None = None
        self.is_expected = is_expected
        self.stays = stays  # In memory until it is read; else in the cache alone.
        super().__init__(number, number + 1, reader._run)

    @property
    def is_stale(self) -> bool:
        """True if it failed before a read waited for it; the store may answer by now."""
        return self.is_expected and self.error is not None


class ObjectReader(FileReader):
    """Reads files behind URLs, and local files among them.

    ``listed`` has their versions and sizes from a listing.
    """

    def __init__(
        self, files: Files, cache: Cache | None = None, listed: Listed | None = None
    ) -> None:
        super().__init__(files)
        self._cache, self._objects = cache, None if cache is None else ObjectCache(cache)
        self._listed = listed
        # Versions that were listed, or else read first. Pages of zeros take memory once written.
        if listed is not None:
            self._versions = listed.identities.copy()
        else:
            self._versions = np.zeros((len(self.files), IDENTITY_BYTES), np.uint8)
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[int, Request] = {}
        self._held_bytes = self._ahead = 0
        self._bytes_seen = self._files_seen = 0
        _readers.add(self)

    def read(self, number: int, room: memoryview = NO_ROOM) -> memoryview:
        """Read a whole file."""
        with self._lock:
            request = self._forget(number)
        if request is not None and not request.is_stale:
            request.wait()
            if request.error is not None:
                raise request.error
            if request.data is not None:
                return request.data
        return self._read_now(number)

    def fetch(self, numbers: NDArray[np.int64]) -> None:
        """Start fetching these files, ahead of files that are only expected."""
        self.check_open()
        if len(numbers) > 1:
            start(self._new_requests(numbers.tolist(), expected=False, stays=True))

    def prefetch(self, numbers: NDArray[np.int64], elsewhere: bool) -> None:
        """Start fetching these files, up to the limit; for another process, into the cache."""
        if not self.is_closed and (self._objects is not None or not elsewhere):
            start(self._new_requests(numbers.tolist(), True, stays=not elsewhere), expected=True)

    def _read_ahead(self, numbers: range) -> None:
        if self._objects is not None:  # Into the cache.
            start(self._new_requests(numbers, True, stays=False), expected=True)

    @property
    def store_is_cached(self) -> bool | None:
        """True with a cache, False without; None if all files are local."""
        return None if self.files.are_local else self._objects is not None

    @property
    def mean_bytes(self) -> float | None:
        """Average bytes per file, from the listing or by requests for some files."""
        if self._listed is not None and self._listed.mean_bytes is not None:
            return self._listed.mean_bytes
        sizes = side_by_side(self._size, measured(len(self.files)))
        known = [size for size in sizes if size is not None]
        return sum(known) / len(known) if known else None

    def stamps(self, numbers: Sequence[int]) -> list[str]:
        """Fingerprint of each file's version; unknown ones are requested concurrently."""
        return side_by_side(self._stamp, numbers)

    def _stamp(self, number: int) -> str:
        identity = self._known_version(number)
        if identity is None:
            try:
                identity = identity_of(self._url(number), self._head(number))
            except (OSError, ValueError):
                return "missing"
        return identity.hex()

    def only(self, number: int) -> ObjectReader:
        """Return a reader of one file, of the known version."""
        known = Listed(self._versions[number : number + 1].copy(), None)
        return ObjectReader(self.files.only(number), self._cache, known)

    def close(self) -> None:
        """Free memory and start no more requests."""
        super().close()  # Ends retries that no read waits for.
        with self._lock:
            requests = [*self._requests.values()]
            self._requests.clear()
            self._held_bytes = self._ahead = 0
        for request in requests:
            request.cancel()

    # --- requests in flight ---

    def _new_requests(self, numbers: Iterable[int], expected: bool, stays: bool) -> list[Request]:
        """Requests to start for these files: not those in memory or in the cache."""
        wanted = [number for number in dict.fromkeys(numbers) if not self._is_kept(number)]
        found: list[Request] = []
        with self._lock:
            room = len(wanted)
            if expected:  # Files that may still be fetched ahead.
                room = int(_MOST_EXPECTED_BYTES / self._mean()) - self._ahead
            for number in wanted:
                request = self._requests.get(number)
                if request is not None and request.is_stale and not expected:
                    self._forget(number)
                    request = None
                if request is None:
                    if len(found) >= room:
                        break
                    request = self._requests[number] = Request(number, self, expected, stays)
                    self._ahead += expected
                elif expected or request.data is not None or request.error is not None:
                    continue
                request.stays |= stays
                found.append(request)
        return found

    def _run(self, piece: Piece) -> None:
        assert isinstance(piece, Request)
        number, data = piece.begin, None
        try:
            if piece.stays or not self._is_kept(number):
                data = self._read_now(number)
        finally:
            with self._lock:
                piece.data = data
                # If it isn't there, a read took it and is its only owner.
                if self._requests.get(number) is piece:
                    self._held_bytes += len(data or b"")
                    if not piece.stays:
                        self._forget(number)
                    self._evict()

    def _evict(self) -> None:
        """Drop the oldest files if those that wait to be read are over the limit."""
        if self._held_bytes > _MOST_HELD_BYTES:
            for number in [at for at, held in self._requests.items() if held.data]:
                self._forget(number)
                if self._held_bytes <= _MOST_HELD_BYTES:
                    break

    def _forget(self, number: int) -> Request | None:
        request = self._requests.pop(number, None)
        if request is not None:
            self._held_bytes -= len(request.data or b"")
            self._ahead -= request.is_expected
        return request

    # --- one file ---

    def _read_now(self, number: int) -> memoryview:
        objects, url, identity = self._objects, self._url(number), self._known_version(number)
        head: Head | None
        if objects is not None and identity is None:
            try:
                head = self._head(number)
            except ContentError:
                raise
            except ValueError:  # The store doesn't know the size.
                head = None
            if head is not None and head.version:
                identity = self._check_version(number, url, head)
        if objects is not None and identity is not None:
            found = objects.get(url, identity)
            if found is not None:
                return found
        data, head = self._download(number, url) if is_url(url) else self._local(number, url)
        if not len(data):
            raise ContentError("an image", "an empty object")
        if head is not None:
            identity = self._check_version(number, url, head)
            if objects is not None and objects.cache.for_version(url, head) is not None:
                objects.keep(url, identity, data)
        self._bytes_seen, self._files_seen = self._bytes_seen + len(data), self._files_seen + 1
        return memoryview(data)

    def _download(self, number: int, url: str) -> tuple[bytes | memoryview, Head]:
        client, key = client_of(url)

        def once() -> tuple[bytes | memoryview, Head]:
            if self.is_closed:
                raise ValueError("closed meanwhile")
            data, head = client.get_all(key)
            if head.size and len(data) != head.size:
                raise ConnectionError(f"{len(data)} of {head.size} bytes came")
            return data, head

        data, head = persistently(once, self.files.named(number))
        if len(data) > MOST_BYTES:
            at_most = f"an image of at most {MOST_BYTES:,} bytes"
            raise ContentError(at_most, f"an object of {len(data):,}")
        return data, head

    def _local(self, number: int, path: str) -> tuple[memoryview, Head | None]:
        """Read a local file; return its version too, if it is needed and didn't change."""
        head = None if self._objects is None else self._head(number)
        data = read_file(os.fsencode(path))
        return data, head if head is not None and self._head(number) == head else None

    def _url(self, number: int) -> str:
        """URL, or absolute path."""
        return os.fsdecode(self.files.path(number))

    def _head(self, number: int) -> Head:
        url = self._url(number)
        reader, key = reader_of(url)
        if not is_url(url):
            try:
                return reader.head(key)
            except IsADirectoryError:
                raise ContentError("a file", "something else") from None
        return persistently(lambda: reader.head(key), self.files.named(number))

    def _size(self, number: int) -> int | None:
        try:
            return self._head(number).size
        except (FileNotFoundError, PermissionError, ValueError, NotImplementedError):
            return None  # Reading reports it. A store that doesn't answer is an error.

    def _mean(self) -> float:
        if self._listed is not None and self._listed.mean_bytes:
            return self._listed.mean_bytes
        return max(1.0, self._bytes_seen / self._files_seen) if self._files_seen else _GUESSED_BYTES

    # --- versions ---

    def _known_version(self, number: int) -> bytes | None:
        """Identity of the version that was listed, or read first; None if unknown."""
        known: bytes = self._versions[number].tobytes()
        return known if any(known) else None

    def _check_version(self, number: int, url: str, head: Head) -> bytes:
        """Compare a version with the known one, or record the first one; return its identity."""
        identity, known = identity_of(url, head), self._known_version(number)
        if known is None:
            self._versions[number] = np.frombuffer(identity, np.uint8)
        elif known != identity:
            raise ContentError(
                "the version of the object that was listed, or read first",
                f"one that was changed since: {head.size} bytes of version {head.version}; "
                "open the images again",
            )
        return identity

    def _is_kept(self, number: int) -> bool:
        """True if the cache has the file."""
        identity = self._known_version(number)
        if self._objects is None or identity is None:
            return False
        return self._objects.has(self._url(number), identity)

    def __reduce__(self) -> tuple[Any, ...]:
        known = self._listed
        if self._versions.any():
            known = Listed(self._versions, known.mean_bytes if known is not None else None)
        return ObjectReader, (self.files, self._cache, known), {"is_closed": self.is_closed}


_readers: weakref.WeakSet[ObjectReader] = weakref.WeakSet()


def _in_child() -> None:
    for reader in list(_readers):
        reader._begin()


os.register_at_fork(after_in_child=_in_child)
