"""IRHeader, which MXNet puts before an image in a record: its label or labels, and two ids.

::

    u32 flag | f32 label | u64 id | u64 id2 | f32 labels[flag]

``flag`` is the number of labels that follow; if it is 0, ``label`` is the only label. All numbers
are little-endian. Source: MXNet, ``python/mxnet/recordio.py``.

For detection, the labels consist of a header and objects of one width; all numbers are float32::

    header width | object width | rest of the header ... | objects ...

An object is ``class | xmin | ymin | xmax | ymax | more ...``, relative to the image size. Source:
MXNet, ``python/mxnet/image/detection.py``, ``ImageDetIter._parse_label``.

Other content is a ``ContentError``.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError

HEADER = struct.Struct("<IfQQ")


class Labelled(NamedTuple):
    """Parts of a record."""

    label: Any
    """A float, or float32 ``(labels,)``."""
    id: int
    """Id of the image; im2rec stores the line number of the list."""
    content: memoryview
    """The encoded image."""


def pack(label: Any, number: int, content: bytes) -> bytes:
    """Prepend a header with a label, or a sequence of labels, and an id to an encoded image."""
    if np.ndim(label):
        labels = np.asarray(label, "<f4").ravel()
        return HEADER.pack(len(labels), 0.0, number, 0) + labels.tobytes() + content
    return HEADER.pack(0, float(label), number, 0) + content


def unpack(payload: memoryview) -> Labelled:
    """Split a record into label, id and image."""
    if len(payload) < HEADER.size:
        raise ContentError(f"an IRHeader of {HEADER.size} bytes", f"{len(payload)} bytes")
    flag, label, number, _ = HEADER.unpack_from(payload)
    if not flag:
        return Labelled(label, number, payload[HEADER.size :])
    end = HEADER.size + 4 * flag
    if len(payload) < end:
        raise ContentError(f"{flag} labels in {end} bytes", f"{len(payload)} bytes")
    labels = np.frombuffer(payload[HEADER.size : end], "<f4").astype(np.float32)
    return Labelled(labels, number, payload[end:])


def objects(labels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the objects of a detection label, ``(objects, object width)``."""
    size = len(labels)
    first = labels[:2].tolist()
    if size >= 2 and all(number.is_integer() for number in first):
        head, width = map(int, first)
        if 2 <= head <= size and width >= 5 and not (size - head) % width:
            return labels[head:].reshape(-1, width)
    shown = ", ".join(f"{number:g}" for number in labels[:6].tolist())
    raise ContentError(
        "a detection label: the width of its header (at least 2), that of an object (at least 5), "
        "the rest of the header, and whole objects",
        f"{size} numbers: {shown}{', ...' * (size > 6)}",
    )


def are_objects(labels: NDArray[Any]) -> bool:
    """True for labels that are clearly detection labels: boxes that all have an area."""
    try:
        corners = objects(np.asarray(labels, np.float32))[:, 1:5]
    except ContentError:
        return False
    inside = ((corners >= -1) & (corners <= 2)).all()
    return bool(len(corners) and inside and (corners[:, 2:] > corners[:, :2]).all())


def refuse_objects(labels: NDArray[Any]) -> None:
    """Refuse labels for which ``are_objects`` is true."""
    if are_objects(labels):
        count = len(objects(np.asarray(labels, np.float32)))
        raise ContentError(
            "labels that are no boxes, which would neither be told from the widths before them nor "
            'follow a crop or a flip: open_records(..., decode={"image": ImageDecoder(...), '
            '"label": Boxes.im2rec()}) reads them',
            f"a detection label of im2rec with {count} boxes",
        )
