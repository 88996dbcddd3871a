"""Layouts of an image and its label in a record's payload, as MXNet and TensorFlow write them.

``InExample``: image, label and id are features of a tf.train.Example. ``BehindHeader``, with the
same methods: the image follows an IRHeader. Each ``Codec`` names its own. Other payloads are
ContentErrors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.records import example, irheader
from adapters.records.tensor import refuse_tensor

IMAGE, LABEL, ID = "image/encoded", "image/class/label", "image/id"
# First bytes of the image encodings that identify a file of images.
IMAGE_BEGINS = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"\x93NUMPY", b"GIF8", b"BM", b"RIFF", b"II*\0")
_ID_MASK = (1 << 64) - 1

Names = tuple[str, str]
"""Feature names of image and label."""


class BehindHeader:
    """Image after MXNet's IRHeader, with float32 labels."""

    has_header = True
    """True if payloads usually begin with an IRHeader; False if they are Examples."""

    def pack(self, image: bytes, label: Any, number: int, as_float: bool = False) -> bytes:
        """Build a header followed by the image; a label that float32 can't hold is refused."""
        _check_float32(_numbers(label))
        return irheader.pack(label, number & _ID_MASK, image)

    def split(self, payload: memoryview, names: Names) -> tuple[memoryview, Any]:
        """Return the bytes after the header, and its label or labels; ``names`` is ignored."""
        labelled = irheader.unpack(payload)
        return labelled.content, labelled.label

    def identity(self, payload: memoryview) -> int:
        """Return the first of the header's two ids."""
        return irheader.unpack(payload).id

    def guessed(self, payload: memoryview) -> str | None:
        """Return "image" if the content begins like one."""
        head = bytes(irheader.unpack(payload).content[:8])
        return "image" if head.startswith(IMAGE_BEGINS) else None


class InExample:
    """Features of a tf.train.Example, with the names that TensorFlow's ImageNet converters use."""

    has_header = False

    def pack(self, image: bytes, label: Any, number: int, as_float: bool = False) -> bytes:
        """Build a payload from an encoded image, one number or several, and the record's id.

        Whole numbers are stored as integers, unless ``as_float``.

        Raises:
            ContentError: The label is not numeric or can't be stored. Fractions are rounded to
                float32; whole numbers that float32 can't hold (some from 2^24 on) are refused.
        """
        values = _numbers(label)
        if as_float:
            values = values.astype(np.float64)
        elif values.dtype.kind == "f" and values.size == 1 and _are_whole(values):
            values = values.astype(np.int64)
        if values.dtype.kind == "f":
            _check_float32(values)
        elif int(values.max()) > np.iinfo(np.int64).max:
            raise ContentError("a label that int64 holds", f"{label!r}")
        # Raw images of one size give records of one size, which can be gathered at once.
        one = values.dtype.kind != "f" and values.size == 1
        stored = example.Padded(values.item()) if one else values
        return example.encode({IMAGE: image, LABEL: stored, ID: example.Padded(number)})

    def split(self, payload: memoryview, names: Names) -> tuple[memoryview, Any]:
        """Return a view of the encoded image, and the label, from the two named features.

        The label is a Python number if there is one, else float32 or int64 ``(labels,)``.
        """
        features = example.features(payload)
        lists = []
        for name in names:
            if name.encode() not in features:
                refuse_tensor(payload)
                raise no_feature(name, features, example.feature_lists(payload))
            lists.append(example.list_in(payload, features[name.encode()]))
        image, label = lists
        images = []
        if image.kind == example.BYTES_LIST:
            images = example.strings(payload, image.begin, image.end)
        if len(images) != 1:
            raise ContentError(f"one image as {names[0]!r}", f"{len(images)}")
        values = example.values(payload, label)
        if len(values) != 1:
            return images[0], np.array(values, object) if isinstance(values, list) else values
        return images[0], values[0] if isinstance(values, list) else values[0].item()

    def identity(self, payload: memoryview) -> int:
        """Return the first value of the id feature, or 0 if there is none."""
        held = example.list_in(payload, example.features(payload).get(ID.encode(), (0, 0)))
        values = example.values(payload, held) if held.kind == example.INT64_LIST else []
        return int(values[0]) if len(values) else 0

    def guessed(self, payload: memoryview) -> str | None:
        """Guess the ``decode=`` for this payload: "image", "example" or None."""
        features = example.features(payload)
        if IMAGE.encode() in features and LABEL.encode() in features:
            return "image"
        return "example" if features else None


Envelope = BehindHeader | InExample
IN_EXAMPLE = InExample()


def no_feature(
    name: str, features: Iterable[str | bytes], lists: Iterable[bytes] = ()
) -> ContentError:
    """Build the error for a feature that is neither here nor in a SequenceExample's lists."""
    listed = _listed(features) or "none"
    found = f"the features {listed}"
    if lists:
        found += (
            f", and the feature lists {_listed(lists)} of a SequenceExample, which "
            "decode={name: Feature(bytes, (None,))} reads"
        )
    return ContentError(f"a feature {name!r} (fields= renames)", found)


def _listed(names: Iterable[str | bytes]) -> str:
    return ", ".join(
        sorted(str(name, "utf-8", "replace") if isinstance(name, bytes) else name for name in names)
    )


def _numbers(label: Any) -> NDArray[Any]:
    values = np.asarray(label)
    if values.dtype.kind not in "biuf" or not values.size:
        raise ContentError("a number as label, or several", f"{label!r}")
    return values


def has_fractions(labels: NDArray[Any] | None) -> bool:
    """True if a label is known to be no whole number; then none is stored as an integer."""
    return labels is not None and labels.dtype.kind == "f" and not _are_whole(labels)


def _are_whole(values: NDArray[Any]) -> bool:
    """True if int64 holds them without loss, including the sign of a zero."""
    with np.errstate(invalid="ignore"):
        return values.astype(np.int64).astype(values.dtype).tobytes() == values.tobytes()


def _check_float32(values: NDArray[Any]) -> None:
    with np.errstate(over="ignore"):
        held = values.astype(np.float32)
    # Compare as Python numbers, which is exact.
    for given, found in zip(values.ravel().tolist(), held.ravel().tolist()):
        if given != found and (math.isinf(found) or float(given).is_integer()):
            raise ContentError("a label that float32 holds", f"{given!r}")
