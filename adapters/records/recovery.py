"""Search for the records of a file without its index; damaged files included."""

from __future__ import annotations

import numpy as np

from adapters.errors import RecordError
from adapters.records.codec import Codec
from adapters.records.index import Index
from adapters.records.storage import Storage


def searched(storage: Storage, codec: Codec, verify: bool) -> Index:
    """Find the records of a file and its damaged ranges.

    Args:
        storage: The file.
        codec: Its format.
        verify: Passed to ``Codec.scan``. In a damaged file, records are always checked.

    Raises:
        RecordError: The file doesn't begin like this format and has no intact record, or the format
            can't find records after damage.
    """
    try:
        return Index(*codec.scan(storage, verify))
    except RecordError as error:
        if codec.following is None:
            raise
        index = _recovered(storage, codec)
        head = bytes(storage.read(0, 16))
        if len(index.damage) == len(index.offsets) and not codec.begins(head):
            raise error from None
        return index


def _recovered(storage: Storage, codec: Codec) -> Index:
    """Index the intact records, and each damaged range as one record."""
    assert codec.following is not None
    begins: list[int] = []
    ends: list[int] = []
    damage: dict[int, RecordError] = {}
    position, last = 0, None
    while position < storage.size:
        try:
            end = codec.end(storage, position)
        except RecordError as error:
            following = codec.following(storage, last, position)
            if last is not None and following <= position:
                # The previous record's length was wrong: replace that record, too.
                position = last
                del begins[-1], ends[-1]
            damage[len(begins)] = _wrong(storage, codec, position, len(begins), error)
            begins.append(storage.size)
            ends.append(storage.size + 1)
            position, last = following, None
        else:
            begins.append(position)
            ends.append(end)
            position, last = end, position
    offsets = np.array(begins, np.int64)
    # RecordIO's sizes have no CRC; readers compare them with the next header instead.
    sizes = np.array(ends, np.int64) - offsets if codec.has_sizes else None
    return Index(offsets, sizes, damage)


def _wrong(
    storage: Storage, codec: Codec, offset: int, number: int, error: RecordError
) -> RecordError:
    """Return the error of the damaged record at ``offset``."""
    try:
        codec.read(storage, offset, number, True)
    except RecordError as found:
        return found
    return RecordError(storage.name, number, offset, error.expected, error.found)
