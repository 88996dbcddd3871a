"""``ObjectReader``: reads whole objects behind URLs, with many concurrent requests.

    start, expect --Fetch each--> threads --> here --read--> decoder, then the only owner

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
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.remote import Cache, Changed, Head, client_of, is_url
from adapters.remote.fetch import Piece, side_by_side, start
from adapters.remote.retry import persistently
from adapters.remote.wholes import IDENTITY_BYTES, Wholes, identity_of
from adapters.sources.filereader import MOST_BYTES, FileReader, Room, new_memory, read_file
from adapters.sources.files import Files, Listed, measured

# Most bytes fetched and not read yet.
_MOST_HELD_BYTES = 256 << 20
# Most bytes fetched ahead: a window of 10 batches of 256 images of 47 kB has 120 MB.
_MOST_EXPECTED_BYTES = 128 << 20
# Assumed size of a file before any is known.
_GUESSED_BYTES = 100_000


class Fetch(Piece):
    """Request for one file, in flight or done."""

    __slots__ = ("data", "held", "is_expected", "stays")

    def __init__(self, number: int, reader: ObjectReader, is_expected: bool, stays: bool) -> None:
        self.data: memoryview | None = None
        self.held = 0
        self.is_expected = is_expected
        self.stays = stays  # In memory until it is read; else in the cache alone.
        super().__init__(number, number + 1, reader._fetch)

    @property
    def is_done(self) -> bool:
        """True if the file needn't be fetched any more."""
        return self.data is not None or self.error is not None

    @property
    def is_stale(self) -> bool:
        """True if it failed before a read waited for it; the store may answer by now."""
        return self.is_expected and self.error is not None


class ObjectReader(FileReader):
    """Reads files behind URLs, and local files among them.

    Args:
        files: Paths, by number.
        cache: Cache for the files, or None.
        listed: Their versions and sizes from a listing.
    """

    uses_room = False

    def __init__(
        self, files: Files, cache: Cache | None = None, listed: Listed | None = None
    ) -> None:
        super().__init__(files)
        self._wholes = None if cache is None else Wholes(cache)
        self._listed = listed
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._here: OrderedDict[int, Fetch] = OrderedDict()
        self._held = self._ahead = 0
        # Versions that were read here; memory pages are allocated as they are written.
        self._seen = np.zeros((len(self._files), IDENTITY_BYTES), np.uint8)
        self._came = self._count = 0
        self._is_closed = False
        _readers[self] = None

    def read(self, number: int, room: Room) -> memoryview:
        """Read a whole file.

        Raises:
            ConnectionError: The store doesn't answer in time.
            ContentError: The file is empty, too large or changed.
            OSError: The file doesn't exist or can't be read.
        """
        with self._lock:
            fetch = self._here.pop(number, None)
            is_stale = fetch is not None and fetch.is_stale
            if fetch is not None:
                self._forget(fetch)
        if fetch is not None and not is_stale:
            fetch.wait()
            if fetch.error is not None:
                raise fetch.error
            if fetch.data is not None:
                return fetch.data
        return self._got(number)

    def start(self, numbers: NDArray[np.int64]) -> None:
        """Start fetching these files, ahead of files that are only expected."""
        if len(numbers) > 1:
            start(self._fetches(numbers.tolist(), expected=False, stays=True))

    def expect(self, numbers: NDArray[np.int64], elsewhere: bool) -> None:
        """Start fetching these files, up to the limit; for another process, into the cache."""
        if self._wholes is not None or not elsewhere:
            start(self._fetches(numbers.tolist(), True, stays=not elsewhere), expected=True)

    def will_read(self, first: int, last: int) -> None:
        """Start fetching these files into the cache, if there is one."""
        if self._wholes is not None:
            start(self._fetches(range(first, last), True, stays=False), expected=True)

    @property
    def store_is_cached(self) -> bool | None:
        """True with a cache, False without; None if all files are local."""
        return None if self._files.are_local else self._wholes is not None

    @property
    def mean_bytes(self) -> float | None:
        """Average bytes per file, from the listing or by requests for some files."""
        if self._listed is not None and self._listed.mean_bytes is not None:
            return self._listed.mean_bytes
        sizes = side_by_side(self._size, measured(len(self._files)))
        known = [size for size in sizes if size is not None]
        return sum(known) / len(known) if known else None

    def stamps(self, numbers: Sequence[int]) -> list[str]:
        """Fingerprint of each file's version; unknown ones are requested concurrently."""
        return side_by_side(self._stamp, numbers)

    def _stamp(self, number: int) -> str:
        identity = self._known(number)
        if identity is None:
            try:
                identity = identity_of(self._files[number], self._head(number))
            except (OSError, ValueError):
                return "missing"
        return identity.hex()

    def only(self, number: int) -> tuple[Files, ObjectReader]:
        """Return one file by itself, and its reader."""
        files, identity = self._files.only(number), self._known(number)
        listed = None
        if identity is not None:
            listed = Listed(np.frombuffer(identity, np.uint8).reshape(1, -1), None)
        return files, ObjectReader(files, self._cache, listed)

    def close(self) -> None:
        """Free memory and start no more requests."""
        self._is_closed = True  # Ends retries that no read waits for.
        with self._lock:
            fetches = [*self._here.values()]
            self._here.clear()
            self._held = self._ahead = 0
        for fetch in fetches:
            fetch.cancel()

    # --- requests in flight ---

    def _fetches(self, numbers: Iterable[int], expected: bool, stays: bool) -> list[Fetch]:
        """Requests to start for these files: not those in memory or in the cache."""
        wanted = [number for number in dict.fromkeys(numbers) if not self._is_kept(number)]
        found: list[Fetch] = []
        with self._lock:
            room = self._room() if expected else len(wanted)
            for number in wanted:
                fetch = self._here.get(number)
                if fetch is not None and fetch.is_stale and not expected:
                    self._forget(fetch)
                    fetch = None
                if fetch is None:
                    if len(found) >= room:
                        break
                    fetch = self._here[number] = Fetch(number, self, expected, stays)
                    self._ahead += expected
                elif expected or fetch.is_done:
                    continue
                fetch.stays |= stays
                found.append(fetch)
        return found

    def _room(self) -> int:
        """Number of files that may still be fetched ahead."""
        return int(_MOST_EXPECTED_BYTES / self._mean()) - self._ahead

    def _fetch(self, piece: Piece) -> None:
        assert isinstance(piece, Fetch)
        number = piece.begin
        try:
            if piece.stays or not self._is_kept(number):
                piece.data = self._got(number)
        finally:
            with self._lock:
                if self._here.get(number) is piece:  # Else a read took it and is its only owner.
                    self._came_in(number, piece)

    def _came_in(self, number: int, fetch: Fetch) -> None:
        if not fetch.stays:
            del self._here[number]
            self._forget(fetch)
        elif fetch.data is not None:
            fetch.held = len(fetch.data)
            self._held += fetch.held
            if self._held > _MOST_HELD_BYTES:
                self._drop()

    def _drop(self) -> None:
        """Drop the oldest files over the limit; reading one fetches it again."""
        for number, fetch in [*self._here.items()]:
            if self._held <= _MOST_HELD_BYTES:
                return
            if fetch.held:
                del self._here[number]
                self._forget(fetch)

    def _forget(self, fetch: Fetch) -> None:
        self._held -= fetch.held
        self._ahead -= fetch.is_expected
        fetch.held = 0
        fetch.is_expected = False

    # --- one file ---

    def _got(self, number: int) -> memoryview:
        url = os.fsdecode(self._files.path(number))
        wholes, is_remote = self._wholes, is_url(url)
        identity = self._known(number)
        if wholes is not None and identity is None:
            head = self._asked(number)
            identity = None if head is None else self._noted(number, url, head)
        if wholes is not None and identity is not None:
            found = wholes.get(url, identity)
            if found is not None:
                return found
        data, head = self._fetched(number, url) if is_remote else self._local(number, url)
        if not len(data):
            raise ContentError("an image", "an empty object")
        if head is not None:
            identity = self._noted(number, url, head)
            if wholes is not None and wholes.cache.for_version(url, head) is not None:
                wholes.keep(url, identity, data)
        self._came, self._count = self._came + len(data), self._count + 1
        return memoryview(data)

    def _fetched(self, number: int, url: str) -> tuple[bytes | memoryview, Head]:
        client, key = client_of(url)

        def once() -> tuple[bytes | memoryview, Head]:
            if self._is_closed:
                raise ValueError("closed meanwhile")
            data, head = client.get_all(key)
            if head.size and len(data) != head.size:
                raise ConnectionError(f"{len(data)} of {head.size} bytes came")
            return data, head

        data, head = persistently(once, self._files.named(number))
        if len(data) > MOST_BYTES:
            at_most = f"an image of at most {MOST_BYTES:,} bytes"
            raise ContentError(at_most, f"an object of {len(data):,}")
        return data, head

    def _local(self, number: int, path: str) -> tuple[memoryview, Head | None]:
        """Read a local file; return its version too, if it is needed and didn't change."""
        head = None if self._wholes is None else self._head(number)
        data = read_file(os.fsencode(path), new_memory)
        return data, head if head is not None and self._head(number) == head else None

    def _head(self, number: int) -> Head:
        url = os.fsdecode(self._files.path(number))
        client, key = client_of(url)
        if not is_url(url):
            try:
                return client.head(key)
            except IsADirectoryError:
                raise ContentError("a file", "something else") from None
        return persistently(lambda: client.head(key), self._files.named(number))

    def _asked(self, number: int) -> Head | None:
        """Look up a file's version; None if the store can't provide it."""
        try:
            head = self._head(number)
        except ContentError:
            raise
        except ValueError:  # The store doesn't know the size.
            return None
        return head if head.version else None

    def _size(self, number: int) -> int | None:
        try:
            return self._head(number).size
        except (FileNotFoundError, PermissionError, ValueError, NotImplementedError):
            return None  # Reading reports it. A store that doesn't answer is an error.

    def _mean(self) -> float:
        if self._listed is not None and self._listed.mean_bytes:
            return self._listed.mean_bytes
        return max(1.0, self._came / self._count) if self._count else _GUESSED_BYTES

    # --- versions ---

    def _known(self, number: int) -> bytes | None:
        """Identity of the version that was listed, or read first; None if unknown."""
        if self._listed is not None:
            listed: bytes = self._listed.identities[number].tobytes()
            if any(listed):
                return listed
        seen: bytes = self._seen[number].tobytes()
        return seen if any(seen) else None

    def _noted(self, number: int, url: str, head: Head) -> bytes:
        """Record the version that was read, which must be the known one."""
        identity, known = identity_of(url, head), self._known(number)
        if known is None:
            self._seen[number] = np.frombuffer(identity, np.uint8)
        elif known != identity:
            found = Changed(f"{head.size} bytes of version {head.version}").found
            raise ContentError(
                "the version of the object that was listed, or read first",
                f"one that was changed since: {found}; open the images again",
            )
        return identity

    def _is_kept(self, number: int) -> bool:
        """True if the cache has the file."""
        if self._wholes is None:
            return False
        identity = self._known(number)
        url = os.fsdecode(self._files.path(number))
        return identity is not None and self._wholes.has(url, identity)

    @property
    def _cache(self) -> Cache | None:
        return None if self._wholes is None else self._wholes.cache

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self._files, "cache": self._cache, "listed": self._listed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["files"], state["cache"], state["listed"])  # type: ignore[misc]


_readers: weakref.WeakKeyDictionary[ObjectReader, None] = weakref.WeakKeyDictionary()


def _in_child() -> None:
    for reference in _readers.keyrefs():
        if (reader := reference()) is not None:
            reader._begin()


os.register_at_fork(after_in_child=_in_child)
