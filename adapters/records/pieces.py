"""``Pieces``: what of a remote file is under way, and who brings it.

    missing units --of--> pieces of one's own, for threads to fetch | those of others, to wait for
    bytes that come --> region, of which these units are here then

Any thread may ask. The lock is the file's: whoever holds it sees which units are flying, and whose.
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
from adapters.remote.fetching import GAP_BYTES, PIECE_BYTES, Piece, runs
from adapters.remote.retrying import persistently

# Of the pieces that are for later, those that somebody waits for.
ANY, BEGUN, NONE = 2, 1, 0


class Pieces:
    """The pieces of one file.

    Args:
        url: Of the file.
        name: What messages call it.
        head: Its size and version.
        lock: Of the file.
        came: Called with the bytes that were put into the memory that all files share.
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
        """Pieces that bring units: new ones, not started yet, and those that are under way.

        Args:
            region: Where they are to be.
            old: Where they may come to be, to be copied from; None for nowhere.
            missing: The units, ascending, each once.
            later: Whether the new ones are for later.
            patience: Which pieces that are for later count: ``ANY``, ``BEGUN`` or ``NONE``.
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
            found = f"one that was changed since: {error.found}; open it anew"
            raise RecordError(self._name, None, begin, what, found) from None


def _counts(piece: Piece, patience: int) -> bool:
    """Whether who has this patience waits for a piece."""
    return not piece.later or patience == ANY or (patience == BEGUN and piece.begun)
