"""IRHeader, which MXNet puts before an image in a record: its label or labels, and two numbers.

::

    u32 flag | f32 label | u64 id | u64 id2 | f32 labels[flag]

``flag`` is the number of labels that follow; if it is 0, ``label`` is the one label. All numbers
are little-endian. Source: MXNet, ``python/mxnet/recordio.py``.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

from adapters.errors import ContentError

HEADER = struct.Struct("<IfQQ")


class Labelled(NamedTuple):
    """A record taken apart."""

    label: Any
    """A float, or float32 ``(labels,)``."""
    id: int
    """Of the image; im2rec's number of the line in the list."""
    content: memoryview
    """The encoded image."""


def pack(label: Any, number: int, content: bytes) -> bytes:
    """Put a header before an image.

    Args:
        label: A number, or a sequence of them.
        number: The image's.
        content: The encoded image.
    """
    if np.ndim(label):
        labels = np.asarray(label, "<f4").ravel()
        return HEADER.pack(len(labels), 0.0, number, 0) + labels.tobytes() + content
    return HEADER.pack(0, float(label), number, 0) + content


def unpack(payload: memoryview) -> Labelled:
    """Take a record apart.

    Raises:
        ContentError: Too few bytes for a header and its labels.
    """
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
