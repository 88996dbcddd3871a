"""``ObjectReading``: whole objects behind URLs, many requests at once, straight to the decoder.

    start, expect --Fetch each--> threads --> here --read--> who decodes, who alone holds it then

A file is one request, as a rule: of one version, whatever happens to the object meanwhile. The
version is that which a listing told, or which this process read first; another one is an error.
What was fetched and not read yet is held up to a limit, and fetched again beyond it. With a cache,
files are looked for there first, and those of slow disks are kept as well.

Any thread may ask, and who reads waits. A fork begins anew, and so does another process.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.remote import Cache, Changed, Head, client_of, is_url
from adapters.remote.fetching import Piece, side_by_side, start
from adapters.remote.retrying import persistently
from adapters.remote.wholes import IDENTITY_BYTES, Wholes, identity_of
from adapters.sources.filereading import MOST_BYTES, Room, measured, new_memory, read_file
from adapters.sources.files import Files

# Fetched, and not read yet.
_MOST_HELD_BYTES = 256 << 20
# Fetched ahead of who asks: a window of 10 batches of 256 pictures of 47 kB has 120 MB.
_MOST_EXPECTED_BYTES = 128 << 20
# Of a file, before anything is known of them.
_GUESSED_BYTES = 100_000


class Listed:
    """What a listing told of files, in their order.

    Args:
        identities: uint8 ``(files, 16)``; zeros where it told no version.
        mean_bytes: Of a file on average; None where it told no sizes.
    """

    def __init__(self, identities: NDArray[np.uint8], mean_bytes: float | None) -> None:
        self.identities = identities
        self.mean_bytes = mean_bytes


class Fetch(Piece):
    """One file on its way, or here."""

    __slots__ = ("data", "held", "is_expected")

    def __init__(self, number: int, reading: ObjectReading, is_expected: bool) -> None:
        self.data: memoryview | None = None
        self.held = 0
        self.is_expected = is_expected
        super().__init__(number, number + 1, reading._fetch)

    @property
    def is_done(self) -> bool:
        """Whether nobody needs to fetch it."""
        return self.data is not None or self.error is not None

    @property
    def is_stale(self) -> bool:
        """Whether it failed before anybody waited for it, and the store may answer by now."""
        return self.is_expected and self.error is not None


class ObjectReading:
    """Reads files behind URLs, and those of this machine among them.

    Args:
        files: They are named by number.
        cache: Where to keep them; None for nowhere.
        listed: What a listing told of them.
    """

    uses_room = False
    tells_versions = True
    """Whether every file that was looked at had a version."""

    def __init__(
        self, files: Files, cache: Cache | None = None, listed: Listed | None = None
    ) -> None:
        self._files = files
        self._wholes = None if cache is None else Wholes(cache)
        self._listed = listed
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._here: OrderedDict[int, Fetch] = OrderedDict()
        self._held = self._ahead = self._outside = 0
        # Of the versions that were read here: pages of memory that come as they are written to.
        self._seen = np.zeros((len(self._files), IDENTITY_BYTES), np.uint8)
        self._came = self._count = 0
        self._is_closed = False
        _readings[self] = None

    def read(self, number: int, room: Room) -> memoryview:
        """A whole file.

        Raises:
            ConnectionError: The store doesn't answer for as long as it may take.
            ContentError: It is empty or too large, or was changed.
            OSError: It isn't there, or can't be read.
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
        """Begin to fetch all of these, before what is only expected."""
        if len(numbers) > 1:
            start(self._fetches(numbers.tolist(), expected=False))

    def expect(self, numbers: NDArray[np.int64], elsewhere: bool) -> None:
        """Begin to fetch these, as far as there is room; for another process, into the cache."""
        if elsewhere:
            self._warm(numbers.tolist())
        else:
            start(self._fetches(numbers.tolist(), expected=True), expected=True)

    def will_read(self, first: int, last: int) -> None:
        """Begin to fetch these into the cache, if there is one."""
        self._warm(range(first, last))

    @property
    def store_is_cached(self) -> bool | None:
        """Whether there is a cache; None where all files are of this machine."""
        return None if self._files.are_local else self._wholes is not None

    @property
    def mean_bytes(self) -> float | None:
        """As the listing told, or of some that stand at equal distances, which are asked for it."""
        if self._listed is not None and self._listed.mean_bytes is not None:
            return self._listed.mean_bytes
        sizes = side_by_side(self._size, measured(len(self._files)))
        known = [size for size in sizes if size is not None]
        return sum(known) / len(known) if known else None

    def stamps(self, numbers: Sequence[int]) -> list[str]:
        """What tells versions from others; those that aren't known are asked for at once."""
        return side_by_side(self._stamp, numbers)

    def _stamp(self, number: int) -> str:
        identity = self._known(number)
        if identity is None:
            try:
                head = self._head(number)
                self.tells_versions &= bool(head.version)
                identity = identity_of(self._files[number], head)
            except (OSError, ValueError):
                return "missing"
        return identity.hex()

    def only(self, number: int) -> tuple[Files, ObjectReading]:
        """One of the files by itself."""
        files, identity = self._files.only(number), self._known(number)
        listed = None
        if identity is not None:
            listed = Listed(np.frombuffer(identity, np.uint8).reshape(1, -1), None)
        return files, ObjectReading(files, self._cache, listed)

    def close(self) -> None:
        """Let go of memory, and begin no more requests."""
        self._is_closed = True  # Nobody waits for what is tried again, and it need not be.
        with self._lock:
            fetches = [*self._here.values()]
            self._here.clear()
            self._held = self._ahead = 0
        for fetch in fetches:
            fetch.cancel()

    # --- what is on its way ---

    def _fetches(self, numbers: list[int], expected: bool) -> list[Fetch]:
        """Those of these that are to be begun: not what is here, or in the cache."""
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
                    fetch = self._here[number] = Fetch(number, self, expected)
                    self._ahead += expected
                elif expected or fetch.is_done:
                    continue
                found.append(fetch)
        return found

    def _room(self) -> int:
        """How many more may be fetched ahead."""
        return int(_MOST_EXPECTED_BYTES / self._mean()) - self._ahead - self._outside

    def _fetch(self, piece: Piece) -> None:
        assert isinstance(piece, Fetch)
        number = piece.begin
        piece.data = self._got(number)
        with self._lock:
            if self._here.get(number) is not piece:
                return  # Somebody took it, who holds it alone.
            piece.held = len(piece.data)
            self._held += piece.held
            if self._held > _MOST_HELD_BYTES:
                self._drop()

    def _drop(self) -> None:
        """Forget what has been here for longest; who wants it fetches it again."""
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

    def _warm(self, numbers: Any) -> None:
        """Begin to fetch files into the cache, as far as there is room."""
        if self._wholes is None:
            return
        wanted = [number for number in numbers if not self._is_kept(number)]
        with self._lock:
            wanted = wanted[: max(0, self._room())]
            self._outside += len(wanted)
        start([Piece(number, number + 1, self._warmed) for number in wanted], expected=True)

    def _warmed(self, piece: Piece) -> None:
        try:
            if not self._is_kept(piece.begin):
                self._got(piece.begin)
        finally:
            with self._lock:
                self._outside -= 1

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
        """A file of this machine, and its version where that is wanted and didn't change."""
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
        """Its version; None where the store can't say."""
        try:
            head = self._head(number)
        except ContentError:
            raise
        except ValueError:  # It doesn't know the size.
            return None
        return head if head.version else None

    def _size(self, number: int) -> int | None:
        try:
            return self._head(number).size
        except (FileNotFoundError, PermissionError, ValueError, NotImplementedError):
            return None  # As everybody finds it. A store that doesn't answer is an error.

    def _mean(self) -> float:
        if self._listed is not None and self._listed.mean_bytes:
            return self._listed.mean_bytes
        return max(1.0, self._came / self._count) if self._count else _GUESSED_BYTES

    # --- versions ---

    def _known(self, number: int) -> bytes | None:
        """The version that was listed, or read first."""
        if self._listed is not None:
            listed: bytes = self._listed.identities[number].tobytes()
            if any(listed):
                return listed
        seen: bytes = self._seen[number].tobytes()
        return seen if any(seen) else None

    def _noted(self, number: int, url: str, head: Head) -> bytes:
        """The version that was read, which is that which is known."""
        identity, known = identity_of(url, head), self._known(number)
        self.tells_versions &= bool(head.version)
        if known is None:
            self._seen[number] = np.frombuffer(identity, np.uint8)
        elif known != identity:
            found = Changed(f"{head.size} bytes of version {head.version}").found
            raise ContentError(
                "the version of the object that was listed, or read first",
                f"one that was changed since: {found}; open the images anew",
            )
        return identity

    def _is_kept(self, number: int) -> bool:
        """Whether the cache has it."""
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


_readings: weakref.WeakKeyDictionary[ObjectReading, None] = weakref.WeakKeyDictionary()


def _in_child() -> None:
    for reference in _readings.keyrefs():
        if (reading := reference()) is not None:
            reading._begin()


os.register_at_fork(after_in_child=_in_child)
