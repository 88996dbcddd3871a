"""tf.train.Example, the usual content of a TFRecord: named lists of bytes, floats or integers.

::

    Example    { 1: Features }
    Features   { 1: { 1: name, 2: Feature } ... }
    Feature    { 1: BytesList | 2: FloatList | 3: Int64List }
    BytesList  { 1: bytes ... }
    FloatList  { 1: f32 ... }     packed or not
    Int64List  { 1: varint ... }  packed or not

in Protocol Buffers' wire format. A tf.train.SequenceExample has its context's ``Features`` in the
place of an Example's, followed by::

    FeatureLists  2: { 1: { 1: name, 2: FeatureList } ... }
    FeatureList   { 1: Feature ... }     one for each step

Source: TensorFlow, ``tensorflow/core/example/feature.proto``, and protobuf.dev, "Encoding".

Protocol Buffers lets readers merge repeated fields. TensorFlow's own parser skips that for speed
and may read such messages differently. Anything that the two could read differently is an error
here, so every sample equals TensorFlow's:

- A map entry has one name and one feature, in either order, and nothing else.
- A feature has one list or nothing. A list of numbers is one packed run, or unpacked throughout.
- Of several entries with one name, the last one counts, and it must not be empty. Unknown fields
  are skipped only next to ``Features``.

``native/records.c`` reads the records of a batch alike; what it doesn't take comes here. All
positions are offsets in the payload. Reading raises ``ContentError`` if the bytes are damaged or
something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError

FeatureValues = list[bytes] | NDArray[np.float32] | NDArray[np.int64]
Span = tuple[int, int]
"""Begin and end of a ``Feature`` message."""
Field = tuple[int, int, int]
"""Tag, begin and end."""

BYTES_LIST, FLOAT_LIST, INT64_LIST = 1, 2, 3
LISTS = {
    BYTES_LIST: "a bytes_list",
    FLOAT_LIST: "a float_list",
    INT64_LIST: "an int64_list",
}

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
TAG_1, TAG_2 = 1 << 3 | _BYTES, 2 << 3 | _BYTES
_TAG_FLOAT, _TAG_INTEGER = 1 << 3 | _FIXED32, 1 << 3 | _VARINT
_MOST_VARINT_BYTES, _MOST_INTEGER = 10, (1 << 64) - 1


class Padded(int):
    """Integer encoded as a varint of five or ten bytes, so that records have the same size."""


class List(NamedTuple):
    """List of values in a feature."""

    kind: int
    """``BYTES_LIST``, ``FLOAT_LIST``, ``INT64_LIST``, or 0 for none."""
    begin: int
    end: int


def decode(payload: memoryview | bytes) -> dict[str, FeatureValues]:
    """Decode the features of an Example.

    Returns:
        For each name a list of bytes, float32 ``(values,)`` or int64 ``(values,)``; an empty list
        if a feature has no values.
    """
    view = memoryview(payload)
    return {
        str(name, "utf-8", "replace"): values(view, list_in(view, span))
        for name, span in features(view).items()
    }


def encode(features: Mapping[str, Any]) -> bytes:
    """Encode features as an Example. Deterministic.

    Args:
        features: For each name bytes, a string, a number or a boolean, or a sequence or an array of
            one of these.

    Raises:
        TypeError: Another kind of value.
    """
    entries = []
    for name in sorted(features):
        feature = _encoded(name, features[name])
        entries.append(_field(1, _field(1, name.encode()) + _field(2, feature)))
    return _field(1, b"".join(entries))


def features(payload: memoryview) -> dict[bytes, Span]:
    """Return where the features of an Example lie, by name.

    Raises:
        ContentError: Not an Example; or the last entry of a name is empty and another isn't, which
            TensorFlow ignores and Protocol Buffers doesn't.
    """
    found: dict[bytes, Span] = {}
    for tag, at, end in fields(payload, 0, len(payload)):
        for name, begin, until in _entries(payload, at, end) if tag == TAG_1 else ():
            if begin == until and name in found:
                raise ContentError(f"values in the last entry of {name!r}", "an empty feature")
            found[name] = begin, until
    return found


def feature_lists(payload: memoryview) -> dict[bytes, list[Span]]:
    """Return where the steps of a SequenceExample's feature lists lie, by name."""
    lists = [field for field in fields(payload, 0, len(payload)) if field[0] == TAG_2]
    if len(lists) > 1:
        raise ContentError("one FeatureLists", "several")
    found: dict[bytes, list[Span]] = {}
    for name, begin, end in _entries(payload, *lists[0][1:]) if lists else ():
        if name in found:
            raise ContentError(f"one feature list {name!r}", "several")
        steps = _repeated(payload, begin, end, "a feature in a feature list")
        found[name] = [step[1:] for step in steps]
    return found


def list_in(payload: memoryview, span: Span) -> List:
    """Return the list that a feature holds."""
    lists = fields(payload, *span)
    if not lists:
        return List(0, *span)
    tag, begin, end = lists[0]
    if tag & 7 != _BYTES or tag >> 3 not in LISTS:
        raise ContentError("a list of bytes, floats or integers", f"the tag {tag}")
    if len(lists) > 1:
        raise ContentError("one list in a feature", f"{len(lists)}")
    return List(tag >> 3, begin, end)


def values(payload: memoryview, held: List) -> FeatureValues:
    """Return a copy of the values of a list."""
    if held.kind == FLOAT_LIST:
        return floats(payload, held.begin, held.end)
    if held.kind == INT64_LIST:
        return integers(payload, held.begin, held.end)
    return [bytes(item) for item in strings(payload, held.begin, held.end)]


def strings(payload: memoryview, begin: int, end: int) -> list[memoryview]:
    """Return views of the values of a bytes list."""
    held = _repeated(payload, begin, end, "bytes in a bytes_list")
    return [payload[begin:end] for _, begin, end in held]


def floats(payload: memoryview, begin: int, end: int) -> NDArray[np.float32]:
    """Return a copy of the values of a float list."""
    if begin < end and payload[begin] == TAG_1:
        run = _run(payload, begin, end)
        if len(run) % 4:
            raise ContentError("floats of 4 bytes each", f"{len(run)} bytes")
        return np.frombuffer(run, "<f4").astype(np.float32)
    rows = np.frombuffer(payload[begin:end], np.uint8)
    if len(rows) % 5 or (rows[::5] != _TAG_FLOAT).any():
        raise ContentError("floats in a float_list", "something else")
    floats: NDArray[np.float32] = rows.reshape(-1, 5)[:, 1:].copy().view("<f4")[:, 0]
    return floats.astype(np.float32)


def integers(payload: memoryview, begin: int, end: int) -> NDArray[np.int64]:
    """Return a copy of the values of an integer list."""
    if begin < end and payload[begin] == TAG_1:
        return np.array(_varints(_run(payload, begin, end)), np.uint64).view(np.int64)
    values = []
    for tag, at, until in fields(payload, begin, end):
        if tag != _TAG_INTEGER:
            raise ContentError("integers in an int64_list", f"the tag {tag}")
        values.append(varint(payload, at, until)[0])
    return np.array(values, np.uint64).view(np.int64)


def _varints(run: memoryview) -> list[int]:
    values: list[int] = []
    value = shift = 0
    for byte in run:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(value & _MOST_INTEGER)
            value = shift = 0
        elif shift == 7 * _MOST_VARINT_BYTES:
            break
    if shift:
        raise _unending()
    return values


def varint(payload: memoryview, at: int, end: int) -> tuple[int, int]:
    """Read an unsigned integer of up to 64 bits; return it and the next position."""
    value = shift = 0
    for place in range(at, min(at + _MOST_VARINT_BYTES, end)):
        byte = payload[place]
        value |= (byte & 127) << shift
        if byte < 128:
            return value & _MOST_INTEGER, place + 1
        shift += 7
    raise _unending()


def _unending() -> ContentError:
    return ContentError(f"a varint of at most {_MOST_VARINT_BYTES} bytes", "one that doesn't end")


def fields(payload: memoryview, at: int, end: int) -> list[Field]:
    """Return tag, begin and end of each field of a message; of a varint, where it is encoded."""
    found = []
    while at < end:
        begin, tag = at, payload[at]
        at += 1
        if tag >= 128:
            tag, at = varint(payload, begin, end)
            if tag < 128:
                raise ContentError("a field's tag in its shortest form", f"{at - begin} bytes")
        wire_type = tag & 7
        if wire_type == _BYTES:
            if at < end and (size := payload[at]) < 128:
                at += 1
            else:
                size, at = varint(payload, at, end)
        elif wire_type == _VARINT:
            size = varint(payload, at, end)[1] - at
        else:
            size = {_FIXED32: 4, _FIXED64: 8}.get(wire_type, -1)
        if size < 0 or not 8 <= tag < 1 << 32:
            raise ContentError("a field's number, and wire type 0, 1, 2 or 5", f"the tag {tag}")
        if at + size > end:
            raise ContentError(f"a field of {size} bytes", f"{end - at} before the message's end")
        found.append((tag, at, at + size))
        at += size
    return found


def _repeated(payload: memoryview, at: int, end: int, what: str) -> list[Field]:
    """Return the fields of a message that has only number 1."""
    found = fields(payload, at, end)
    for tag, _, _ in found:
        if tag != TAG_1:
            raise ContentError(what, f"the tag {tag}")
    return found


def _entries(payload: memoryview, at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield the name of each map entry, and begin and end of its feature."""
    for _, begin, stop in _repeated(payload, at, end, "a feature's entry"):
        parts = fields(payload, begin, stop)
        if len(parts) == 2:
            (first, begin, until), (second, begins, ends) = parts
            if first == TAG_1 and second == TAG_2:
                yield bytes(payload[begin:until]), begins, ends
                continue
            if first == TAG_2 and second == TAG_1:
                yield bytes(payload[begins:ends]), begin, until
                continue
        tags = ", ".join(str(tag) for tag, _, _ in parts)
        raise ContentError("a feature's name and its values", f"the tags {tags}")


def _run(payload: memoryview, begin: int, end: int) -> memoryview:
    """Return the only packed run of a list."""
    runs = fields(payload, begin, end)
    if len(runs) > 1:
        raise ContentError("one packed run of numbers", f"{len(runs)} fields")
    return payload[slice(*runs[0][1:])]


def _encoded(name: str, value: Any) -> bytes:
    if isinstance(value, Padded):
        return _field(INT64_LIST, _field(1, _as_varint(value, 5 if 0 <= value < 1 << 35 else 10)))
    if isinstance(value, (bytes, bytearray, memoryview, str)):
        value = [value]
    elif not isinstance(value, (list, tuple)):
        value = np.asarray(value).ravel()
    if len(value) and all(isinstance(item, (bytes, bytearray, memoryview, str)) for item in value):
        items = [item.encode() if isinstance(item, str) else bytes(item) for item in value]
        return _field(BYTES_LIST, b"".join(_field(1, item) for item in items))
    array = np.asarray(value)
    if not array.size:
        return b""
    if array.dtype.kind == "f":
        return _field(FLOAT_LIST, _field(1, array.astype("<f4").tobytes()))
    if array.dtype.kind in "iub":
        varints = b"".join(_as_varint(int(item)) for item in array.ravel())
        return _field(INT64_LIST, _field(1, varints))
    raise TypeError(
        f"feature {name!r} must be bytes, strings, integers or floats, got {array.dtype}"
    )


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | _BYTES]) + _as_varint(len(content)) + content


def _as_varint(value: int, size: int = 1) -> bytes:
    """Encode as a varint of at least ``size`` bytes."""
    value &= _MOST_INTEGER  # Negative values as 2^64 - n.
    out = bytearray()
    while value > 127 or len(out) < size - 1:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
