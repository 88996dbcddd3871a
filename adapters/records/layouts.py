"""Vectorized search for features in many records, without Python code for each record.

An Example is a sequence of entries, one for each feature, in any order. Most entries of a file
match one of a few *pieces*: the same head (sizes, name, tags), followed by the same number of value
bytes. All records are walked in parallel, an entry at a time, and compared with the heads of the
known pieces. An entry without a match is parsed as ``wire`` does it and becomes a new piece.

So the result for a record is always what ``wire`` would give. A record with anything unusual gets
no result and is left to ``wire``.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.records import tfrecord, wire
from adapters.records.crc import masked_crc
from adapters.records.windows import windows

# Entries differ in their sizes, for example with file names and varints.
_MOST_PIECES = 512
# Unwanted entries that occurred in a single record. If each record has another name, comparing with
# all known pieces takes longer than parsing.
_MOST_ONCE = 16
_TAGS = {
    wire.FLOAT_LIST: wire.TAG_FLOAT,
    wire.INT64_LIST: wire.TAG_INTEGER,
    wire.BYTES_LIST: None,
}
_MOST_VARINT_BYTES = 10  # For negative numbers.


class Wanted(NamedTuple):
    """Feature whose values take the same number of bytes in many records."""

    name: bytes
    kind: int
    """Kind of its list."""
    values: int
    """Number of values in the list."""
    size: int
    """Size in bytes of the single value of a bytes list."""


@dataclass(frozen=True)
class Piece:
    """Entries with the same head.

    Args:
        head: Bytes before the values.
        size: Bytes of the entry.
        features: Numbers of the wanted features that it holds; empty if it is unwanted.
        length: Bytes of the values.
        varints: Number of varints among the values; 0 for other values.
    """

    head: NDArray[np.uint8]
    size: int
    features: tuple[int, ...]
    length: int
    varints: int


class Layouts:
    """Pieces seen so far. Thread-safe; a lock serializes learning.

    Args:
        wanted: Features to find; several of them may share a name.
    """

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        self._wanted = list(wanted)
        self._numbers: dict[bytes, list[int]] = {}
        for number, feature in enumerate(wanted):
            self._numbers.setdefault(feature.name, []).append(number)
        self._pieces: list[Piece] = []
        # Numbers of unwanted pieces that occurred once.
        self._once: set[int] = set()
        self._learning = threading.Lock()

    def find(
        self, view: memoryview, starts: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int32], NDArray[np.int32]]:
        """Find the wanted features in TFRecord's records.

        Args:
            view: The file.
            starts: Offsets of the records, ``(records,)``.
            sizes: Sizes of the records with lengths and CRCs; they lie within the file.

        Returns:
            Three arrays: a mask of the records with a known layout, ``(records,)``; the position of
            each feature's values from the record's first byte, -1 if missing; and their size in
            bytes. The last two are ``(records, features)``. The data's CRC isn't checked.
        """
        shape = len(starts), len(self._wanted)
        places, lengths = np.full(shape, -1, np.int32), np.zeros(shape, np.int32)
        right, at = _heads(view, starts, sizes)
        ends = starts + sizes - tfrecord.FOOTER.size
        active, last = np.flatnonzero(right), -1
        while len(active := active[at[active] < ends[active]]):
            left = active
            # Most records have their entries in the order in which pieces were learned.
            order = [*range(last + 1, len(self._pieces)), *range(min(last + 1, len(self._pieces)))]
            for number in order:
                if not len(left):
                    break
                left, met = self._placed(
                    view, self._pieces[number], left, at, ends, starts, places, lengths, right
                )
                if met:
                    last = number
                    self._once.discard(number)
            while len(left):
                one = int(left[0])
                piece = self._learned(view, int(at[one]), int(ends[one]))
                if piece is not None:
                    before = len(left)
                    left, _ = self._placed(
                        view, piece, left, at, ends, starts, places, lengths, right
                    )
                    if len(left) < before:
                        last = len(self._pieces) - 1
                        if len(left) < before - 1:
                            self._once.discard(last)
                        continue
                right[one] = False
                left = left[1:] if len(self._pieces) < _MOST_PIECES else _none(right, left)
            active = active[right[active]]
        return right, places, lengths

    def _placed(
        self,
        view: memoryview,
        piece: Piece,
        rows: NDArray[np.int64],
        at: NDArray[np.int64],
        ends: NDArray[np.int64],
        starts: NDArray[np.int64],
        places: NDArray[np.int32],
        lengths: NDArray[np.int32],
        right: NDArray[np.bool_],
    ) -> tuple[NDArray[np.int64], bool]:
        """Advance records whose next entry is this piece; return the others, and if any matched."""
        begins = at[rows]
        fits = begins + piece.size <= ends[rows]
        if fits.all():
            fits = _is_piece(view, piece, begins)
        else:
            fits[fits] = _is_piece(view, piece, begins[fits])
        met = rows[fits]
        if not len(met):
            return rows, False
        for feature in piece.features:
            right[met] &= places[met, feature] < 0  # A repeated name: left to ``wire``.
            places[met, feature] = begins[fits] + len(piece.head) - starts[met]
            lengths[met, feature] = piece.length
        at[met] += piece.size
        return rows[~fits], True

    def _learned(self, view: memoryview, at: int, end: int) -> Piece | None:
        """Learn the piece of this entry; None if it is unusual."""
        with self._learning:
            if len(self._pieces) >= _MOST_PIECES:
                return None
            try:
                piece = self._piece_at(view[at:end])
            except ContentError:
                return None
            if piece is not None and not piece.features:
                if len(self._once) >= _MOST_ONCE:
                    return None
                self._once.add(len(self._pieces))
            if piece is not None:
                self._pieces.append(piece)
            return piece

    def _piece_at(self, view: memoryview) -> Piece | None:
        entry = wire.entry_at(view, 0, len(view))
        if entry.feature_end != entry.end:
            return None  # The name follows the values.
        if entry.feature == entry.end:
            return None  # No values: ``wire`` refuses that after another entry of the name.
        numbers = self._numbers.get(entry.name, ())
        begin, count = entry.feature, 0
        for number in numbers:
            wanted = self._wanted[number]
            found = _begin_of(view, wanted, wire.list_in(view, entry))
            if found is None:
                return None
            begin = found
            if wanted.kind == wire.INT64_LIST:
                if count not in (0, wanted.values):
                    return None  # Two wanted features differ in their number of values.
                count = wanted.values
        head = np.frombuffer(bytes(view[:begin]), np.uint8)
        return Piece(head, entry.end, tuple(numbers), entry.end - begin, count)

    def located(self, payload: memoryview) -> tuple[list[int], list[int]] | None:
        """Find the values of one Example, whatever its layout, and their sizes in bytes.

        Returns:
            Positions and sizes as from ``find``, but from the payload's first byte; None if the
            values aren't contiguous or not as wanted.
        """
        places, lengths = [], []
        try:
            found = wire.features(payload)
            for wanted in self._wanted:
                entry = found.get(wanted.name)
                if entry is None or entry.feature == entry.feature_end:
                    places.append(-1)
                    lengths.append(0)
                    continue
                held = wire.list_in(payload, entry)
                begin = _begin_of(payload, wanted, held)
                if begin is None:
                    return None
                if wanted.kind == wire.INT64_LIST:
                    written = np.frombuffer(payload[begin : held.end], np.uint8)[np.newaxis]
                    if not _are_varints(written, wanted.values).all():
                        return None
                places.append(begin)
                lengths.append(held.end - begin)
        except ContentError:
            return None
        return places, lengths


def _begin_of(view: memoryview, wanted: Wanted, held: wire.List) -> int | None:
    """Return where a list's contiguous values begin; they end with the list. Else None."""
    begin = held.begin
    if held.kind != wanted.kind or begin == held.end:
        return None
    if view[begin] == wire.TAG_1:
        size, begin = wire.sized(view, begin + 1, held.end)
        if begin + size != held.end:
            return None
    elif wanted.values == 1 and view[begin] == _TAGS[wanted.kind]:
        begin += 1
    else:
        return None
    size = held.end - begin
    if wanted.kind == wire.INT64_LIST:
        return begin if size else None
    return begin if size == (wanted.size or 4 * wanted.values) else None


def varints(written: NDArray[np.uint8], count: int) -> NDArray[np.int64]:
    """Decode rows of ``count`` varints, ``(rows, count)``.

    Args:
        written: Valid varints, ``(rows, bytes)``. Each row has ``count`` bytes that end a varint,
            and the last byte of the row is one of them.
        count: Varints in a row.
    """
    rows, size = written.shape
    if size == count:
        return written.astype(np.int64)
    digits = (written & 127).astype(np.uint64)
    if count == 1:
        values = digits[:, 0]
        for place in range(1, size):
            values |= digits[:, place] << np.uint64(7 * place)
        return values.view(np.int64)[:, np.newaxis]
    ends = np.nonzero(written < 128)[1].reshape(rows, count)
    starts = np.zeros_like(ends)
    starts[:, 1:] = ends[:, :-1] + 1
    firsts = np.repeat(starts.ravel(), (ends - starts + 1).ravel()).reshape(rows, size)
    digits <<= (7 * (np.arange(size) - firsts)).astype(np.uint64)
    flat = (starts + np.arange(rows)[:, np.newaxis] * size).ravel()
    return np.add.reduceat(digits.ravel(), flat).view(np.int64).reshape(rows, count)


def _is_piece(view: memoryview, piece: Piece, begins: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which entries match this piece; all must fit into their records."""
    if not len(begins):
        return np.zeros(0, bool)
    size = len(piece.head)
    same: NDArray[np.bool_] = (windows(view, size, begins) == piece.head).all(1)
    if piece.varints and same.any():
        written = windows(view, piece.length, begins[same] + size)
        same[same] = _are_varints(written, piece.varints)
    return same


def _are_varints(written: NDArray[np.uint8], count: int) -> NDArray[np.bool_]:
    """Return which rows are ``count`` varints, each of at most ten bytes and 64 bits."""
    is_end = written < 128
    right: NDArray[np.bool_] = is_end[:, -1] & (is_end.sum(1) == count)
    if written.shape[1] - count < _MOST_VARINT_BYTES - 1:
        return right
    if count == 1:
        right &= (written.shape[1] == _MOST_VARINT_BYTES) & (written[:, -1] < 2)
        return right
    for row in np.flatnonzero(right).tolist():  # May have negative numbers of ten bytes each.
        ends = np.flatnonzero(is_end[row])
        sizes = np.diff(ends, prepend=-1)
        longest = ends[sizes >= _MOST_VARINT_BYTES]
        right[row] = sizes.max() <= _MOST_VARINT_BYTES and (written[row, longest] < 2).all()
    return right


def _heads(
    view: memoryview, starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return which records start as their size requires, and where their first entries begin."""
    own, which = np.unique(sizes, return_inverse=True)
    heads = [_head(size) for size in own.tolist()]
    longest = max(map(len, heads), default=0)
    if not longest:
        return np.zeros(len(starts), bool), starts
    model = np.zeros((len(heads), longest), np.uint8)
    cared = np.zeros((len(heads), longest), bool)
    for place, head in enumerate(heads):
        model[place, : len(head)] = np.frombuffer(head, np.uint8)
        cared[place, : len(head)] = True
    lengths = np.array([len(head) for head in heads])[which]
    right = lengths > 0
    # The longest head may reach past the end of the file.
    right &= starts + longest <= len(view)
    found = windows(view, longest, starts[right])
    which = which[right]
    right[right] = ((found == model[which]) | ~cared[which]).all(1)
    return right, starts + lengths


@functools.lru_cache(maxsize=4096)
def _head(size: int) -> bytes:
    """Return a record's first bytes, by its size, for one ``Features``; empty if impossible."""
    payload = size - tfrecord.OVERHEAD_BYTES
    for digits in range(1, 6):
        rest = payload - 1 - digits
        if rest >= 0 and len(varint := _varint(rest)) == digits:
            length = payload.to_bytes(8, "little")
            crc = tfrecord.FOOTER.pack(masked_crc(length))
            return length + crc + bytes([wire.TAG_1]) + varint
    return b""


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])


def _none(right: NDArray[np.bool_], left: NDArray[np.int64]) -> NDArray[np.int64]:
    """Mark these records as not found."""
    right[left] = False
    return left[:0]
