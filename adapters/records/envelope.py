"""Layouts of an image and its label in a record's payload, as MXNet and TensorFlow write them.

``BehindHeader``: the image follows an IRHeader. ``InExample``: image, label and id are features of
a tf.train.Example. Each ``Codec`` names its default; another layout is another class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.records import example, irheader, wire
from adapters.records.tensor import refuse_tensor

IMAGE, LABEL, ID = "image/encoded", "image/class/label", "image/id"
# First bytes of the image encodings that identify a file of images.
IMAGE_BEGINS = (
    b"\xff\xd8\xff",
    b"\x89PNG\r\n",
    b"\x93NUMPY",
    b"\x93YUV420",
    b"GIF8",
    b"BM",
    b"RIFF",
    b"II*\0",
)
_ID_MASK = (1 << 64) - 1

Names = tuple[str, str]
"""Feature names of image and label; unused in formats without features."""
LabelKind = Literal["varint", "floats"]
"""Encoding of a label: one varint, or little-endian float32."""


class Envelope(Protocol):
    """Converts an image and its label to a payload and back."""

    def pack(self, image: bytes, label: Any, number: int) -> bytes:
        """Build a payload.

        Args:
            image: Encoded image.
            label: One number or several. Whole numbers are stored as integers if the format has
                them.
            number: Id of the record.

        Raises:
            ContentError: The label is not numeric or can't be stored. Fractions are rounded to
                float32; whole numbers that float32 can't hold (some from 2^24 on) are refused.
        """
        ...

    def split(self, payload: memoryview, names: Names) -> tuple[memoryview, Any]:
        """Return a view of the encoded image, and the label.

        Returns:
            The label is a Python number if there is one, else float32 or int64 ``(labels,)``.

        Raises:
            ContentError: The payload holds something else.
        """
        ...

    def identity(self, payload: memoryview) -> int:
        """Return the record's id, or 0 if it has none.

        Raises:
            ContentError: The payload holds something else.
        """
        ...

    def guessed(self, payload: memoryview) -> str | None:
        """Guess the ``decode=`` for this payload: "image", "example" or None.

        Raises:
            ContentError: The payload is none of these.
        """
        ...

    def label_in(self, payload: memoryview, names: Names) -> tuple[memoryview | None, LabelKind]:
        """Return a view of the label's bytes; None if there are none or they aren't contiguous."""
        ...

    def identity_in(self, payload: memoryview) -> memoryview | None:
        """Return a view of the id's bytes, by which records of the same layout may differ."""
        ...


class BehindHeader:
    """Image after MXNet's IRHeader, with float32 labels; ``names`` is ignored."""

    def pack(self, image: bytes, label: Any, number: int) -> bytes:
        """Build a header followed by the image."""
        _check_float32(_numbers(label))
        return irheader.pack(label, number & _ID_MASK, image)

    def split(self, payload: memoryview, names: Names) -> tuple[memoryview, Any]:
        """Return the bytes after the header, and its label or labels."""
        labelled = irheader.unpack(payload)
        return labelled.content, labelled.label

    def identity(self, payload: memoryview) -> int:
        """Return the first of the header's two ids."""
        return irheader.unpack(payload).id

    def guessed(self, payload: memoryview) -> str | None:
        """Return "image" if the content begins like one."""
        head = bytes(irheader.unpack(payload).content[:8])
        return "image" if head.startswith(IMAGE_BEGINS) else None

    def label_in(self, payload: memoryview, names: Names) -> tuple[memoryview | None, LabelKind]:
        """Return the label in the header, or the labels after it."""
        flag = irheader.HEADER.unpack_from(payload)[0]
        size = irheader.HEADER.size
        return payload[size : size + 4 * flag] if flag else payload[4:8], "floats"

    def identity_in(self, payload: memoryview) -> memoryview | None:
        """Return both ids of the header."""
        return payload[8 : irheader.HEADER.size]


class InExample:
    """Features of a tf.train.Example, with the names that TensorFlow's ImageNet converters use."""

    def pack(self, image: bytes, label: Any, number: int) -> bytes:
        """Build an Example with three features."""
        values = _numbers(label)
        if values.dtype.kind == "f":
            values = _as_integer(values)
        if values.dtype.kind == "f":
            _check_float32(values)
        elif int(values.max()) > np.iinfo(np.int64).max:
            raise ContentError("a label that int64 holds", f"{label!r}")
        # Raw images of one size give records of one size, which can be gathered at once.
        one = values.dtype.kind != "f" and values.size == 1
        stored = example.Padded(values.item()) if one else values
        return example.encode({IMAGE: image, LABEL: stored, ID: example.Padded(number)})

    def split(self, payload: memoryview, names: Names) -> tuple[memoryview, Any]:
        """Return the two named features."""
        features = example.lists(payload, names)
        for name in names:
            if name not in features:
                refuse_tensor(payload)
                raise no_feature(name, example.lists(payload), wire.feature_lists(payload))
        kind, view = features[names[0]]
        images = example.strings(view) if kind == example.BYTES_LIST else []
        if len(images) != 1:
            raise ContentError(f"one image as {names[0]!r}", f"{len(images)}")
        kind, view = features[names[1]]
        label = example.integer(view) if kind == example.INT64_LIST else None
        return images[0], _label(example.values(kind, view)) if label is None else label

    def identity(self, payload: memoryview) -> int:
        """Return the first value of the id feature."""
        kind, view = example.lists(payload).get(ID, (0, memoryview(b"")))
        values = example.values(kind, view) if kind == example.INT64_LIST else []
        return int(values[0]) if len(values) else 0

    def guessed(self, payload: memoryview) -> str | None:
        """Guess "image" from the feature names."""
        features = example.lists(payload)
        if IMAGE in features and LABEL in features:
            return "image"
        return "example" if features else None

    def label_in(self, payload: memoryview, names: Names) -> tuple[memoryview | None, LabelKind]:
        """Return a single integer's bytes, or those of contiguous floats."""
        kind, view = example.lists(payload)[names[1]]
        packed, count = example.strings(view), len(example.values(kind, view))
        if kind == example.FLOAT_LIST:
            if len(packed) == 1 and len(packed[0]) == 4 * count:
                return packed[0] if count else None, "floats"
            return view[1:] if (len(view), count) == (5, 1) else None, "floats"
        if kind != example.INT64_LIST or count != 1 or len(packed) > 1:
            return None, "varint"
        return packed[0] if packed else view[1:], "varint"

    def identity_in(self, payload: memoryview) -> memoryview | None:
        """Return a single integer's bytes."""
        kind, view = example.lists(payload, (ID,)).get(ID, (0, payload[:0]))
        if kind != example.INT64_LIST or len(example.values(kind, view)) != 1:
            return None
        packed = example.strings(view)
        return packed[0] if packed else view[1:]


BEHIND_HEADER: Envelope = BehindHeader()
IN_EXAMPLE: Envelope = InExample()


def no_feature(
    name: str, features: Mapping[str, Any], lists: Mapping[bytes, Any] | None = None
) -> ContentError:
    """Build the error for a feature that is neither here nor in a SequenceExample's lists."""
    listed = ", ".join(sorted(features)) or "none"
    found = f"the features {listed}"
    if lists:
        steps = ", ".join(sorted(str(each, "utf-8", "replace") for each in lists))
        found += (
            f", and the feature lists {steps} of a SequenceExample, which "
            "decode={name: Feature(bytes, (None,))} reads"
        )
    return ContentError(f"a feature {name!r} (fields= renames)", found)


def _label(values: example.Feature) -> Any:
    if len(values) != 1:
        return values if isinstance(values, np.ndarray) else np.array(values, object)
    return values[0].item() if isinstance(values, np.ndarray) else values[0]


def _numbers(label: Any) -> NDArray[Any]:
    values = np.asarray(label)
    if values.dtype.kind not in "biuf" or not values.size:
        raise ContentError("a number as label, or several", f"{label!r}")
    return values


def _as_integer(values: NDArray[Any]) -> NDArray[Any]:
    """Convert to int64 if it is one number and lossless, including the sign of a zero."""
    with np.errstate(invalid="ignore"):
        integers = values.astype(np.int64)
    same = integers.astype(values.dtype).tobytes() == values.tobytes()
    return integers if same and values.size == 1 else values


def _check_float32(values: NDArray[Any]) -> None:
    with np.errstate(over="ignore"):
        held = values.astype(np.float32)
    # Compare as Python numbers, which is exact.
    for given, found in zip(values.ravel().tolist(), held.ravel().tolist()):
        if given != found and (math.isinf(found) or float(given).is_integer()):
            raise ContentError("a label that float32 holds", f"{given!r}")
