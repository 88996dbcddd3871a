"""Features of MXNet's records: label and ids in an IRHeader, and the payload after it.

``"label"``, ``"id"`` and ``"id2"`` are in the header; every other name is the payload. Labels are
float32 there; whole ones can be read as integers. Records without a header, such as Examples in
RecordIO, are read by other modules.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError, RecordError
from adapters.records import Shard, irheader, recordio, wire
from adapters.records.windows import windows
from adapters.sources.featurekinds import UNKNOWN, FeatureKinds
from adapters.sources.features import Field

LABEL, ID, ID2 = b"label", b"id", b"id2"
_NUMBER_AT = {ID: 8, ID2: 16}
_LABEL_AT = 4
_NUMBERS = ("int64", "uint64")


def in_header(fields: Sequence[Field]) -> list[Field]:
    """Convert fields to the way they are stored in such records.

    Raises:
        ContentError: The header has no such field.
    """
    return [_stored(field) for field in fields]


def _stored(field: Field) -> Field:
    if field.key not in (LABEL, *_NUMBER_AT):
        if field.part_of is not None and field.kind != wire.BYTES_LIST:
            raise ContentError(
                f"{field.part_of} of a label in the IRHeader: Boxes.im2rec() reads im2rec's "
                'detection labels, and one name, keys="label", others',
                f"the name {str(field.key, 'utf-8', 'replace')!r}, which it hasn't",
            )
        if field.kind != wire.BYTES_LIST:
            raise ContentError(
                f'feature {field.name!r} as bytes, stored="raw" for an array (fields= says which '
                "name is the header's label, id or id2)",
                f"{field.dtype}, stored by its values",
            )
        return field
    if field.kind == wire.BYTES_LIST:
        raise ContentError(f"numbers as {field.name!r}, which the header has", "bytes")
    if field.key == LABEL:
        return dataclasses.replace(field, kind=wire.FLOAT_LIST)
    if field.varies or field.count != 1 or field.dtype not in _NUMBERS:
        raise ContentError(f"{field.name!r} as one int64 or uint64", f"{field.dtype} {field.shape}")
    return dataclasses.replace(field, kind=wire.BYTES_LIST, raw=np.dtype("<u8"))


def has_header(payload: memoryview) -> bool:
    """True if the payload may begin with an IRHeader: it has room for that many labels."""
    if len(payload) < irheader.HEADER.size:
        return False
    flag: int = irheader.HEADER.unpack_from(payload)[0]
    return irheader.HEADER.size + 4 * flag <= len(payload)


def values_in(field: Field, payload: memoryview) -> memoryview:
    """Bytes of a field in a record with a header."""
    flag, label, _, _ = irheader.HEADER.unpack_from(payload)
    behind = irheader.HEADER.size
    if field.key in _NUMBER_AT:
        return payload[_NUMBER_AT[field.key] : _NUMBER_AT[field.key] + 8]
    if field.key != LABEL:
        return payload[behind + 4 * flag :]
    if flag:
        return payload[behind : behind + 4 * flag]
    # For zero labels, MXNet's ``pack`` writes a header with a label of 0.
    none = not label and field.varies and field.count > 1
    return payload[:0] if none else payload[_LABEL_AT : _LABEL_AT + 4]


class HeaderKinds(FeatureKinds):
    """Kinds of a file whose records have an IRHeader.

    Args:
        shard: The file.
        fields: Result of ``in_header``.
    """

    def __init__(self, shard: Shard, fields: Sequence[Field]) -> None:
        super().__init__(shard, [True] * len(fields), None)
        self._fields = fields
        if shard.format == recordio.NAME:
            least = recordio.HEADER.size + irheader.HEADER.size
            inside = shard.inside(shard.offsets, np.int64(least))
            self.of[inside & (shard.offsets % 4 == 0)] = UNKNOWN

    def _found(
        self, view: memoryview, numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int32], NDArray[np.int32]]:
        shard = self._shard
        starts = shard.offsets[numbers]
        heads = windows(view, recordio.HEADER.size + 4, starts).view("<u4")
        words = heads[:, 1].astype(np.int64)
        bytes_, flags = words & ((1 << 29) - 1), heads[:, 2].astype(np.int64)
        behind = recordio.HEADER.size + irheader.HEADER.size + 4 * flags
        ends = recordio.HEADER.size + bytes_
        right = (heads[:, 0] == recordio.MAGIC) & (words >> 29 == 0)
        right &= (behind <= ends) & shard.inside(starts, ends)
        places = np.zeros((len(numbers), len(self._fields)), np.int32)
        lengths = np.zeros_like(places)
        for column, field in enumerate(self._fields):
            if field.key in _NUMBER_AT:
                at: Any = recordio.HEADER.size + _NUMBER_AT[field.key]
                held: Any = 8
            elif field.key == LABEL:
                first = recordio.HEADER.size
                at = first + np.where(flags == 0, _LABEL_AT, irheader.HEADER.size)
                held = 4 * np.maximum(flags, 1)
            else:
                at, held = behind, ends - behind
            wanted = field.count * (4 if field.raw is None else field.raw.itemsize)
            right &= held == wanted
            places[:, column], lengths[:, column] = np.where(right, at, 0), wanted
        unchecked = np.flatnonzero(right & ~shard.checked[numbers])
        own = None if shard.sizes is None else shard.sizes[numbers[unchecked]]
        sound = recordio.sound(view, starts[unchecked], bytes_[unchecked], own)
        shard.checked[numbers[unchecked[sound]]] = True
        for row in unchecked[~sound].tolist():
            try:
                shard.read(int(numbers[row]))
            except RecordError:
                right[row] = False
        return right, places, lengths

    def _odd(self, *_: Any) -> list[int]:
        return []
