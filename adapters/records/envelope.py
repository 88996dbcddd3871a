"""How an image and its label stand in the payload of a record: MXNet's way, and TensorFlow's.

``BehindHeader``: the image behind an IRHeader. ``InExample``: two features of a tf.train.Example,
and a third with an id. A ``Codec`` names the one that its format has; another way is another class.
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
# Of encodings that a file may be told to be full of images by.
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
"""What the features of image and label are called, where there are features."""
LabelKind = Literal["varint", "floats"]
"""How a label is written: one varint, or little-endian float32."""


class Envelope(Protocol):
    """From an image and its label to a payload, and back."""

    def pack(self, image: bytes, label: Any, number: int) -> bytes:
        """A payload.

        Args:
            image: Encoded.
            label: A number, or several; whole numbers become integers where there are these.
            number: The record's id.

        Raises:
            ContentError: A label that is no number, or one that has no place. Of fractions float32
                holds the nearest, which is right; of whole numbers, from 2^24 on, not all.
        """
        ...

    def split(self, payload: memoryview, names: Names) -> tuple[memoryview, Any]:
        """The encoded image, where it lies, and the label.

        Returns:
            The label is a Python number where there is one, else float32 or int64 ``(labels,)``.

        Raises:
            ContentError: The payload holds something else.
        """
        ...

    def identity(self, payload: memoryview) -> int:
        """The record's id; 0 without one.

        Raises:
            ContentError: The payload holds something else.
        """
        ...

    def guessed(self, payload: memoryview) -> str | None:
        """The ``decode=`` that suits it: "image", "example" or None.

        Raises:
            ContentError: It is neither.
        """
        ...

    def label_in(self, payload: memoryview, names: Names) -> tuple[memoryview | None, LabelKind]:
        """Where the label's bytes lie; None where they don't lie together, or there are none."""
        ...

    def identity_in(self, payload: memoryview) -> memoryview | None:
        """Where the id's bytes lie, which may be another record's with the same layout."""
        ...


class BehindHeader:
    """The image behind MXNet's IRHeader, which has labels as float32; ``names`` don't matter."""

    def pack(self, image: bytes, label: Any, number: int) -> bytes:
        """A header and the image."""
        _check_float32(_numbers(label))
        return irheader.pack(label, number & _ID_MASK, image)

    def split(self, payload: memoryview, names: Names) -> tuple[memoryview, Any]:
        """What follows the header, and its label or labels."""
        labelled = irheader.unpack(payload)
        return labelled.content, labelled.label

    def identity(self, payload: memoryview) -> int:
        """The first of the header's two."""
        return irheader.unpack(payload).id

    def guessed(self, payload: memoryview) -> str | None:
        """An image, where what follows begins like one."""
        head = bytes(irheader.unpack(payload).content[:8])
        return "image" if head.startswith(IMAGE_BEGINS) else None

    def label_in(self, payload: memoryview, names: Names) -> tuple[memoryview | None, LabelKind]:
        """In the header, or behind it."""
        flag = irheader.HEADER.unpack_from(payload)[0]
        size = irheader.HEADER.size
        return payload[size : size + 4 * flag] if flag else payload[4:8], "floats"

    def identity_in(self, payload: memoryview) -> memoryview | None:
        """Both of the header's."""
        return payload[8 : irheader.HEADER.size]


class InExample:
    """Features of a tf.train.Example, named as TensorFlow's converters of ImageNet name them."""

    def pack(self, image: bytes, label: Any, number: int) -> bytes:
        """An Example of three features."""
        values = _numbers(label)
        if values.dtype.kind == "f":
            values = _as_integer(values)
        if values.dtype.kind == "f":
            _check_float32(values)
        elif int(values.max()) > np.iinfo(np.int64).max:
            raise ContentError("a label that int64 holds", f"{label!r}")
        # Raw images of one size make records of one size, which are gathered at once.
        one = values.dtype.kind != "f" and values.size == 1
        stored = example.Padded(values.item()) if one else values
        return example.encode({IMAGE: image, LABEL: stored, ID: example.Padded(number)})

    def split(self, payload: memoryview, names: Names) -> tuple[memoryview, Any]:
        """Two features."""
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
        """The first value of its feature."""
        kind, view = example.lists(payload).get(ID, (0, memoryview(b"")))
        values = example.values(kind, view) if kind == example.INT64_LIST else []
        return int(values[0]) if len(values) else 0

    def guessed(self, payload: memoryview) -> str | None:
        """An image by the names of the features."""
        features = example.lists(payload)
        if IMAGE in features and LABEL in features:
            return "image"
        return "example" if features else None

    def label_in(self, payload: memoryview, names: Names) -> tuple[memoryview | None, LabelKind]:
        """Of one integer, or of floats that are packed."""
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
        """Of one integer."""
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
    """The error if a feature is missing among these, and the feature lists of a SequenceExample."""
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
    """As int64, if that is one number and loses nothing, not even the sign of a zero."""
    with np.errstate(invalid="ignore"):
        integers = values.astype(np.int64)
    same = integers.astype(values.dtype).tobytes() == values.tobytes()
    return integers if same and values.size == 1 else values


def _check_float32(values: NDArray[Any]) -> None:
    with np.errstate(over="ignore"):
        held = values.astype(np.float32)
    # As Python's numbers, which are compared exactly.
    for given, found in zip(values.ravel().tolist(), held.ravel().tolist()):
        if given != found and (math.isinf(found) or float(given).is_integer()):
            raise ContentError("a label that float32 holds", f"{given!r}")
