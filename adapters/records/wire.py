"""Positions of a tf.train.Example's features in its bytes, parsed as strictly as by TensorFlow.

Protocol Buffers lets readers merge repeated fields. TensorFlow's own parser skips that for speed
and may read such messages differently. Anything that the two could read differently is an error
here, so every sample equals TensorFlow's:

- A map entry has one name and one feature, in either order, and nothing else.
- A feature has one list or nothing. A list of numbers is one packed run, or unpacked throughout.
- Of several entries with one name, the last one counts, and it must not be empty. Unknown fields
  are skipped only next to ``Features``.

``example.py`` shows the messages. A tf.train.SequenceExample has its context's ``Features`` in the
place of an Example's, followed by::

    FeatureLists  2: { 1: { 1: name, 2: FeatureList } ... }
    FeatureList   { 1: Feature ... }     one for each step

All positions are offsets in the payload.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError

BYTES_LIST, FLOAT_LIST, INT64_LIST = 1, 2, 3
LISTS = {
    BYTES_LIST: "a bytes_list",
    FLOAT_LIST: "a float_list",
    INT64_LIST: "an int64_list",
}

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
TAG_1, TAG_2 = 1 << 3 | _BYTES, 2 << 3 | _BYTES
TAG_FLOAT, TAG_INTEGER = 1 << 3 | _FIXED32, 1 << 3 | _VARINT
_MOST_VARINT_BYTES = 10


class Entry(NamedTuple):
    """A feature of an Example."""

    name: bytes
    begin: int
    """Start of the entry, at its tag."""
    feature: int
    """Start of the ``Feature``."""
    feature_end: int
    end: int
    """Start of the next entry."""


class List(NamedTuple):
    """List of values in a feature."""

    kind: int
    """``BYTES_LIST``, ``FLOAT_LIST``, ``INT64_LIST``, or 0 for none."""
    begin: int
    end: int


def features(payload: memoryview) -> dict[bytes, Entry]:
    """Return the features of an Example by name.

    Raises:
        ContentError: Not an Example; or the last entry of a name is empty and another isn't, which
            TensorFlow ignores and Protocol Buffers doesn't.
    """
    found: dict[bytes, Entry] = {}
    for entry in entries(payload):
        before = found.get(entry.name)
        if before is not None and entry.feature == entry.feature_end:
            raise ContentError(f"values in the last entry of {entry.name!r}", "an empty feature")
        found[entry.name] = entry
    return found


def feature_lists(payload: memoryview) -> dict[bytes, list[Entry]]:
    """Return the feature lists of a SequenceExample by name, with one unnamed feature a step.

    Raises:
        ContentError: Not a SequenceExample, or a name occurs twice.
    """
    found: dict[bytes, list[Entry]] = {}
    at, end, seen = 0, len(payload), False
    while at < end:
        if payload[at] != TAG_2:
            at = _skipped(payload, at, end)
            continue
        if seen:
            raise ContentError("one FeatureLists", "several")
        seen = True
        size, at = sized(payload, at + 1, end)
        stop = at + size
        while at < stop:
            entry = entry_at(payload, at, stop)
            if entry.name in found:
                raise ContentError(f"one feature list {entry.name!r}", "several")
            found[entry.name] = list(_steps(payload, entry))
            at = entry.end
    return found


def _steps(payload: memoryview, entry: Entry) -> Iterator[Entry]:
    at = entry.feature
    while at < entry.feature_end:
        if payload[at] != TAG_1:
            raise ContentError("a feature in a feature list", f"the tag {payload[at]}")
        size, begin = sized(payload, at + 1, entry.feature_end)
        yield Entry(entry.name, at, begin, begin + size, begin + size)
        at = begin + size


def entries(payload: memoryview) -> Iterator[Entry]:
    """Yield the features of an Example in order.

    Raises:
        ContentError: Not an Example.
    """
    at, end = 0, len(payload)
    while at < end:
        if payload[at] != TAG_1:
            at = _skipped(payload, at, end)
            continue
        size, at = sized(payload, at + 1, end)
        stop = at + size
        while at < stop:
            entry = entry_at(payload, at, stop)
            yield entry
            at = entry.end


def entry_at(payload: memoryview, begin: int, stop: int) -> Entry:
    """Parse the feature entry at ``begin``.

    Raises:
        ContentError: There is none.
    """
    if payload[begin] != TAG_1:
        raise ContentError("a feature's entry", f"the tag {payload[begin]}")
    size, at = sized(payload, begin + 1, stop)
    end = at + size
    name, feature, feature_end = None, -1, -1
    for _ in range(2):
        tag = payload[at] if at < end else 0
        if tag not in (TAG_1, TAG_2):
            raise ContentError("a feature's name and its values", f"the tag {tag}")
        size, at = sized(payload, at + 1, end)
        if tag == TAG_1:
            name = bytes(payload[at : at + size])
        else:
            feature, feature_end = at, at + size
        at += size
    if name is None or feature < 0 or at != end:
        raise ContentError("one name and one feature in an entry", "something else")
    return Entry(name, begin, feature, feature_end, end)


def list_in(payload: memoryview, entry: Entry) -> List:
    """Return the list that a feature holds.

    Raises:
        ContentError: It holds something else, or several lists.
    """
    at, end = entry.feature, entry.feature_end
    if at == end:
        return List(0, at, end)
    kind, wire_type = payload[at] >> 3, payload[at] & 7
    if kind not in LISTS or wire_type != _BYTES:
        raise ContentError("a list of bytes, floats or integers", f"the tag {payload[at]}")
    size, at = sized(payload, at + 1, end)
    if at + size != end:
        raise ContentError("one list in a feature", f"{end - at - size} bytes more")
    return List(kind, at, end)


def strings(payload: memoryview, begin: int, end: int) -> list[memoryview]:
    """Return views of the values of a bytes list.

    Raises:
        ContentError: Damaged.
    """
    found = []
    while begin < end:
        if payload[begin] != TAG_1:
            raise ContentError("bytes in a bytes_list", f"the tag {payload[begin]}")
        size, begin = sized(payload, begin + 1, end)
        found.append(payload[begin : begin + size])
        begin += size
    return found


def floats(payload: memoryview, begin: int, end: int) -> NDArray[np.float32]:
    """Return a copy of the values of a float list.

    Raises:
        ContentError: Damaged.
    """
    if begin < end and payload[begin] == TAG_1:
        begin = _run(payload, begin, end)
        if (end - begin) % 4:
            raise ContentError("floats of 4 bytes each", f"{end - begin} bytes")
        return np.frombuffer(payload[begin:end], "<f4").astype(np.float32)
    rows = np.frombuffer(payload[begin:end], np.uint8)
    if len(rows) % 5 or (rows[::5] != TAG_FLOAT).any():
        raise ContentError("floats in a float_list", "something else")
    floats: NDArray[np.float32] = rows.reshape(-1, 5)[:, 1:].copy().view("<f4")[:, 0]
    return floats.astype(np.float32)


def integers(payload: memoryview, begin: int, end: int) -> NDArray[np.int64]:
    """Return a copy of the values of an integer list.

    Raises:
        ContentError: Damaged.
    """
    values: list[int] = []
    packed = begin < end and payload[begin] == TAG_1
    if packed:
        begin = _run(payload, begin, end)
    while begin < end:
        if not packed:
            if payload[begin] != TAG_INTEGER:
                raise ContentError("integers in an int64_list", f"the tag {payload[begin]}")
            begin += 1
        value, begin = varint(payload, begin, end)
        values.append(value)
    return np.array(values, np.uint64).view(np.int64)


def varint(payload: memoryview, at: int, end: int) -> tuple[int, int]:
    """Read an unsigned integer of up to 64 bits; return it and the next position.

    Raises:
        ContentError: The varint doesn't end.
    """
    value = shift = 0
    for place in range(at, min(at + _MOST_VARINT_BYTES, end)):
        byte = payload[place]
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, place + 1
        shift += 7
    raise ContentError(f"a varint of at most {_MOST_VARINT_BYTES} bytes", "one that doesn't end")


def sized(payload: memoryview, at: int, end: int) -> tuple[int, int]:
    """Read a size; return it and the start of the data, which must end by ``end``.

    Raises:
        ContentError: The data would end after ``end``.
    """
    if at < end and payload[at] < 128:
        size, at = payload[at], at + 1
    else:
        size, at = varint(payload, at, end)
    if at + size > end:
        raise ContentError(f"a field of {size} bytes", f"{end - at} before the message's end")
    return size, at


def _run(payload: memoryview, begin: int, end: int) -> int:
    """Return the start of a list's only packed run."""
    size, begin = sized(payload, begin + 1, end)
    if begin + size != end:
        raise ContentError("one packed run of numbers", f"{end - begin - size} bytes more")
    return begin


def _skipped(payload: memoryview, at: int, end: int) -> int:
    """Return the end of an unknown field."""
    tag, at = varint(payload, at, end)
    number, wire_type = tag >> 3, tag & 7
    if not number or tag >> 32:
        raise ContentError("a field's number", str(number))
    if wire_type == _VARINT:
        return varint(payload, at, end)[1]
    if wire_type == _BYTES:
        size, at = sized(payload, at, end)
        return at + size
    size = {_FIXED32: 4, _FIXED64: 8}.get(wire_type, -1)
    if size < 0:
        raise ContentError("a field of wire type 0, 1, 2 or 5", f"type {wire_type}")
    if at + size > end:
        raise ContentError(f"a field of {size} bytes", f"{end - at} before the message's end")
    return at + size
