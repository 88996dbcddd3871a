"""TensorProto, the message that ``tf.io.serialize_tensor`` writes.

::

    TensorProto       { 1: dtype, 2: TensorShapeProto, 4: tensor_content, 8: string_val ... }
    TensorShapeProto  { 2: { 1: size } ... }

The content is the array's bytes, little-endian, in C order; string tensors have none. Source:
TensorFlow, ``tensorflow/core/framework/tensor.proto``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.records import example

_TAG_DTYPE, _TAG_SHAPE, _TAG_VERSION = 1 << 3, 2 << 3 | 2, 3 << 3
_TAG_CONTENT, _TAG_STRING = 4 << 3 | 2, 8 << 3 | 2
_TAG_DIM, _TAG_SIZE = 2 << 3 | 2, 1 << 3
_NAMES = {1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string"}
_NAMES |= {8: "complex64", 9: "int64", 10: "bool", 14: "bfloat16", 17: "uint16"}
_NAMES |= {18: "complex128", 19: "float16", 22: "uint32", 23: "uint64"}


class Tensor(NamedTuple):
    """A serialized tensor."""

    dtype: str
    """TensorFlow's name, which is NumPy's if NumPy has the dtype."""
    shape: tuple[int, ...]
    content: memoryview

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}"

    @property
    def remedy(self) -> str:
        """Code that reads a record consisting only of this tensor, for messages."""
        parse = f'tf.io.parse_tensor(record, "{self.dtype}").numpy()'
        return f"which decode=lambda record: {parse} reads"

    @property
    def is_numeric(self) -> bool:
        """True if NumPy has the dtype."""
        return self.dtype not in ("string", "bfloat16")

    @property
    def array(self) -> NDArray[np.generic]:
        """Copy of the values as an array."""
        if not self.is_numeric:
            raise ContentError("a tensor of numbers that NumPy has", f"one of {self.dtype}")
        stored = np.dtype(self.dtype).newbyteorder("<")
        found = np.frombuffer(self.content, stored).astype(self.dtype)
        return found.reshape(self.shape)


def tensor_in(payload: memoryview) -> Tensor | None:
    """Parse a serialized tensor; None if the bytes are something else or damaged."""
    dtype, shape, strings = "", tuple[int, ...](), 0
    content: memoryview | None = None
    try:
        for tag, begin, end in example.fields(payload, 0, len(payload)):
            if tag == _TAG_DTYPE:
                dtype = _NAMES.get(example.varint(payload, begin, end)[0], "")
            elif tag == _TAG_SHAPE:
                shape = tuple(_sides(payload, begin, end))
            elif tag == _TAG_CONTENT:
                content = payload[begin:end]
            elif tag == _TAG_STRING:
                strings += 1
            elif tag != _TAG_VERSION:
                return None
    except ContentError:
        return None
    count = math.prod(shape)
    if dtype == "string":
        fits = content is None and strings == count
    else:
        item = 2 if dtype == "bfloat16" else np.dtype(dtype or "u1").itemsize
        fits = dtype != "" and not strings and len(content or b"") == count * item
    return Tensor(dtype, shape, payload[:0] if content is None else content) if fits else None


def refuse_tensor(payload: memoryview) -> None:
    """Refuse a record that is a serialized tensor.

    Raises:
        ContentError: It is one; the message says how to read it.
    """
    if tensor := tensor_in(payload):
        raise ContentError(
            "a tf.train.Example", f"a serialized tensor of {tensor}, {tensor.remedy}"
        )


def _sides(payload: memoryview, begin: int, end: int) -> Iterator[int]:
    for tag, at, until in example.fields(payload, begin, end):
        sizes = example.fields(payload, at, until)  # A size of zero isn't written.
        if tag != _TAG_DIM or len(sizes) > 1 or (sizes and sizes[0][0] != _TAG_SIZE):
            raise ContentError("a dimension's size alone", f"{len(sizes)} fields")
        yield example.varint(payload, *sizes[0][1:])[0] if sizes else 0
