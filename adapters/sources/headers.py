"""Features of MXNet's records: label and ids in an IRHeader, and the payload after it.

``"label"``, ``"id"`` and ``"id2"`` are in the header; every other name is the payload. Labels are
float32 there; whole ones can be read as integers. Records without a header, such as Examples in
RecordIO, are read by other modules.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from adapters.errors import ContentError
from adapters.records import example, irheader
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
        if field.part_of is not None and field.kind != example.BYTES_LIST:
            raise ContentError(
                f"{field.part_of} of a label in the IRHeader: Boxes.im2rec() reads im2rec's "
                'detection labels, and one name, keys="label", others',
                f"the name {str(field.key, 'utf-8', 'replace')!r}, which it hasn't",
            )
        if field.kind != example.BYTES_LIST:
            raise ContentError(
                f'feature {field.name!r} as bytes, stored="raw" for an array (fields= says which '
                "name is the header's label, id or id2)",
                f"{field.dtype}, stored by its values",
            )
        return field
    if field.kind == example.BYTES_LIST:
        raise ContentError(f"numbers as {field.name!r}, which the header has", "bytes")
    if field.key == LABEL:
        return dataclasses.replace(field, kind=example.FLOAT_LIST)
    if field.varies or field.count != 1 or field.dtype not in _NUMBERS:
        raise ContentError(f"{field.name!r} as one int64 or uint64", f"{field.dtype} {field.shape}")
    return dataclasses.replace(field, kind=example.BYTES_LIST, raw=np.dtype("<u8"))


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
