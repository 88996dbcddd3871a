"""``Pieces``: the requests in flight for one remote file.

    missing units --of--> new pieces, for threads to fetch | pieces in flight, to wait for
    received bytes --> region, which then marks these units as available

Thread-safe. The lock is the file's; it protects the record of which units are in flight.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from adapters.errors import RecordError
from adapters.records.mapping import NoMapError
from adapters.records.regions import CacheError, EvictedError, MemoryRegion, Region
from adapters.remote import Changed, Head, client_of
from adapters.remote.fetch import GAP_BYTES, PIECE_BYTES, Piece, runs
from adapters.remote.retry import persistently

# Pieces for later that a caller waits for: all, those already started, or none.
ANY, BEGUN, NONE = 2, 1, 0


class Pieces:
    """Pieces of one file.

    Args:
        url: URL of the file.
        name: Name in messages.
        head: Its size and version.
        lock: The file's lock.
        came: Called with the number of bytes stored in memory that all files share.
    """

    def __init__(
        self, url: str, name: str, head: Head, lock: threading.Lock, came: Callable[[int], None]
    ) -> None:
        self._url, self._name, self._head = url, name, head
        self._lock, self._came = lock, came
        self._flying: dict[int, Piece] = {}
        self._numbers = itertools.count(1)

    def of(
        self,
        region: Region,
        old: MemoryRegion | None,
        missing: NDArray[np.int64],
        later: bool = False,
        patience: int = BEGUN,
    ) -> tuple[list[Piece], list[Piece]]:
        """Return pieces that bring units: new ones, not yet started, and ones in flight.

        Args:
            region: Region to fill.
            old: Region that may receive some of the units, to be copied from; None for none.
            missing: The units, ascending and unique.
            later: True if the new pieces are low-priority.
            patience: Which low-priority pieces in flight count: ``ANY``, ``BEGUN`` or ``NONE``.
        """
        if not len(missing):
            return [], []
        with self._lock:
            missing = missing[~region.here[missing]]
            flying = region.flying[missing]
            if old is not None and old.unit == region.unit:
                flying = np.where(flying == 0, old.flying[missing], flying)
            under_way = {
                number: piece
                for number in np.unique(flying[flying > 0]).tolist()
                if (piece := self._flying.get(number)) and _counts(piece, patience)
            }
            others = [*under_way.values()]
            known = np.isin(flying, [*under_way])
            own = []
            gap, longest = GAP_BYTES // region.unit, PIECE_BYTES // region.unit
            for begin, end in runs(missing[~known], gap, longest):
                number = next(self._numbers)
                fetch = functools.partial(self._fetch, region, number)
                piece = Piece(begin, end, fetch, later)
                self._flying[number] = piece
                region.flying[begin:end] = number
                own.append(piece)
            return own, others

    def _fetch(self, region: Region, number: int, piece: Piece) -> None:
        begin, end = piece.begin * region.unit, min(piece.end * region.unit, self._head.size)
        try:
            if region.left or region.here[piece.begin : piece.end].all():
                return
            data = self._got(begin, end)
            try:
                region.put(piece.begin, data)
            except (EvictedError, NoMapError):
                raise
            except OSError as error:
                raise CacheError(error) from error
            region.here[piece.begin : piece.end] = True
        finally:
            with self._lock:
                self._flying.pop(number, None)
                flying = region.flying[piece.begin : piece.end]
                flying[flying == number] = 0
        if region.shared:
            self._came(len(data))

    def _got(self, begin: int, end: int) -> bytes | memoryview:
        client, key = client_of(self._url)

        def once() -> bytes | memoryview:
            data = client.get(key, begin, end, self._head)
            if len(data) != end - begin:
                raise ConnectionError(f"{len(data)} of {end - begin} bytes came")
            return data

        try:
            return persistently(once, self._name)
        except Changed as error:
            head = self._head
            what = f"the object that was opened, of {head.size} bytes, version {head.version}"
            found = f"one that was changed since: {error.found}; open it again"
            raise RecordError(self._name, None, begin, what, found) from None


def _counts(piece: Piece, patience: int) -> bool:
    """True if a caller with this patience waits for the piece."""
    return not piece.later or patience == ANY or (patience == BEGUN and piece.begun)
