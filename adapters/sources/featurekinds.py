"""Kinds of records in a file: where the features of each record lie, found once per record.

A kind is one layout of features. When a record is read first, its layout is found (``layouts``) and
its CRC is checked. Only the number of its kind is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adapters.clock import once
from adapters.errors import RecordError
from adapters.records import Shard
from adapters.records.crc import masked_crcs_of
from adapters.records.joined import ApartError
from adapters.records.layouts import Layouts
from adapters.records.tfrecord import FOOTER, HEADER, NAME
from adapters.records.windows import windows

UNKNOWN, UNUSUAL = -1, -2
# Most kinds of a file; records of further kinds are parsed each time.
_MOST_KINDS = 2048
# If records are of several kinds, up to this many features are fetched one by one, more of them in
# groups of one kind.
_FEW_FEATURES = 3
# Further records are parsed ahead, in file order: at most so many times the records asked for, and
# so many bytes for each of these. Parsing 64 records takes NumPy hardly less time than 1,000: the
# first epoch of 60,000 digits takes 251 ms instead of 542 (medians of 3).
_MOST_AHEAD, _MOST_AHEAD_BYTES = 16, 16384


class FeatureKinds:
    """Kinds of one file's records. Thread-safe: two threads find the same.

    Args:
        shard: The file.
        needed: True for each feature that no record may lack.
        layouts: Finds the features of Examples.
    """

    def __init__(self, shard: Shard, needed: Sequence[bool], layouts: Layouts | None) -> None:
        self._shard = shard
        self._needed = np.array(needed, bool)
        self._layouts = layouts
        self._numbers: dict[bytes, int] = {}
        self._noting = threading.Lock()
        self._left = len(shard)
        self._looks = self._seen = 0
        self.of = np.full(len(shard), UNKNOWN, np.int16)
        """Kind of each record, ``UNKNOWN``, or ``UNUSUAL`` if it has to be read by itself."""
        none = np.zeros((0, len(needed)), np.int32)
        self.where = none, none
        """Offsets (-1 if missing) and byte sizes of a kind's features, ``(kinds, features)``."""
        self.even: list[tuple[NDArray[np.int32], int]] | None = None
        """Offsets by kind, and the size, of a few features with equal sizes in all kinds."""
        self.only: int | None = None
        """The kind of all records, if there is just one."""
        sizes = shard.sizes
        self.most_bytes = int(sizes.max()) if sizes is not None and len(sizes) else 0
        """Size of the largest record."""
        if shard.format != NAME or sizes is None or layouts is None:
            self.of[:] = UNUSUAL
        else:  # The index isn't trusted.
            least = HEADER.size + FOOTER.size
            inside = (sizes >= least) & (sizes <= shard.storage.size)
            self.of[~(inside & shard.inside(shard.offsets, sizes))] = UNUSUAL

    def look(
        self, view: memoryview, numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int16], NDArray[np.int32], NDArray[np.int32]]:
        """Parse records for the first time.

        Returns:
            Mask of usual records, their kinds, and offsets and sizes of their features.
        """
        with once():
            return self._looked(view, numbers)

    def _looked(
        self, view: memoryview, numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int16], NDArray[np.int32], NDArray[np.int32]]:
        asked, numbers = len(numbers), np.concatenate([numbers, self._next(numbers)])
        right, places, lengths = self._found(view, numbers)
        odd = self._odd(numbers, right, places, lengths)
        kinds = np.full(len(numbers), UNUSUAL, np.int16)
        usual = np.flatnonzero(right)
        both = np.concatenate([places[usual], lengths[usual]], 1)
        whole = both.view(f"V{both.shape[1] * both.itemsize}")[:, 0]
        with self._noting:
            own, firsts, which = np.unique(whole, return_index=True, return_inverse=True)
            named = [
                self._kind(*each)
                for each in zip(own, places[usual[firsts]], lengths[usual[firsts]])
            ]
            kinds[usual] = np.array(named, np.int16)[which]
            # Parsing one of these each time is no better than reading it by itself.
            kinds[odd] = np.where(kinds[odd] == UNKNOWN, UNUSUAL, kinds[odd])
            right[odd] = kinds[odd] != UNUSUAL
            fresh = np.unique(numbers[self.of[numbers] == UNKNOWN])
            self.of[numbers] = kinds
            self._left -= int((self.of[fresh] != UNKNOWN).sum())
            if not self._left and len(self._numbers) == 1 and (self.of == 0).all():
                self.only = 0
        return right[:asked], kinds[:asked], places[:asked], lengths[:asked]

    def _next(self, asked: NDArray[np.int64]) -> NDArray[np.int64]:
        """Further records of the file to parse along with these; more with each call.

        None for a remote file, of which only the requested records are here.
        """
        if len(self.of) < 2 * len(asked) or self._shard.storage.is_remote:
            return asked[:0]
        share = self._shard.storage.size // len(self.of) + 1
        ahead = min(self._looks, _MOST_AHEAD, _MOST_AHEAD_BYTES // share) * len(asked)
        self._looks += 1
        begin, self._seen = self._seen, self._seen + ahead
        fresh = self.of[begin : begin + ahead] == UNKNOWN
        fresh[asked[(asked >= begin) & (asked < begin + len(fresh))] - begin] = False
        return begin + np.flatnonzero(fresh)

    def _found(
        self, view: memoryview, numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int32], NDArray[np.int32]]:
        """Mask of usual, undamaged records, and where their features lie."""
        shard = self._shard
        assert shard.sizes is not None
        assert self._layouts is not None
        starts, sizes = shard.offsets[numbers], shard.sizes[numbers]
        right, places, lengths = self._layouts.find(view, starts, sizes)
        right &= (places[:, self._needed] >= 0).all(1)
        unchecked = np.flatnonzero(right & ~shard.checked[numbers])
        ends = (starts + sizes)[unchecked] - FOOTER.size
        found = windows(view, FOOTER.size, ends).view("<u4")[:, 0]
        right[unchecked] = masked_crcs_of(view, starts[unchecked] + HEADER.size, ends) == found
        shard.checked[numbers[right]] = True
        return right, places, lengths

    def _odd(
        self,
        numbers: NDArray[np.int64],
        right: NDArray[np.bool_],
        places: NDArray[np.int32],
        lengths: NDArray[np.int32],
    ) -> list[int]:
        """Parse unusually written records one by one; return the rows that are right."""
        found: list[int] = []
        assert self._layouts is not None
        for row in np.flatnonzero(~right).tolist():
            try:
                located = self._layouts.located(self._shard.read(int(numbers[row])))
            except RecordError:
                continue
            if located is None:
                continue
            at, sizes = np.array(located, np.int32)
            if not (self._needed & (at < 0)).any():
                places[row] = np.where(at < 0, -1, at + HEADER.size)
                lengths[row] = sizes
                right[row] = True
                found.append(row)
        return found

    def _kind(self, key: np.void, places: NDArray[np.int32], lengths: NDArray[np.int32]) -> int:
        """Number of the kind with this layout; ``UNKNOWN`` if there are too many kinds."""
        kind = self._numbers.get(key.tobytes())
        if kind is None:
            if len(self._numbers) >= _MOST_KINDS:
                if len(self._shard.parts) > 1:
                    raise ApartError  # Each file alone may have fewer.
                return UNKNOWN
            known = self.where
            every = np.concatenate([known[0], places[np.newaxis]])
            sizes = np.concatenate([known[1], lengths[np.newaxis]])
            self.where = every, sizes  # One assignment: other threads may be reading.
            alike = (sizes == sizes[0]).all() and every.min() >= 0
            self.even = None
            if alike and len(self._needed) <= _FEW_FEATURES:
                self.even = list(zip(np.ascontiguousarray(every.T), sizes[0].tolist()))
            kind = self._numbers[key.tobytes()] = len(self._numbers)
        return kind
