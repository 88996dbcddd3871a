"""What a slot's parts hold, a member of a sample as bytes, and back; and how a slot holds these.

Picture, Array   an array in NPY's format
Numbers          the bytes of an array whose shape and dtype all samples have
Texts            i64 of axes | i64 length of each | i64 bytes of each text | the texts
"""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from adapters.images import npy
from adapters.sources.source import Leaf

_LENGTH = np.dtype("<i8")


def padded(size: int) -> int:
    """Up to a multiple of 8."""
    return (size + 7) & ~7


def slot_bytes(parts: Sequence[bytes]) -> int:
    """How many the slot of these parts has."""
    return padded(4 * len(parts)) + sum(padded(len(part)) for part in parts)


def slot_of(parts: Sequence[bytes]) -> list[bytes]:
    """What is written of these parts, as ``slotfile`` draws it."""
    sizes = np.array([len(part) for part in parts], "<u4").tobytes()
    return [each for part in (sizes, *parts) for each in (part, bytes(-len(part) % 8))]


class Part(Protocol):
    """One member of all samples."""

    def packed(self, value: Any) -> bytes | None:
        """Its bytes; None of what can't be kept."""
        ...

    def unpacked(self, part: memoryview) -> Any:
        """The value, in memory of its own."""
        ...


class Array:
    """Numbers of any shape; a sample's Python number comes back as one.

    Args:
        python_numbers: Whether one number is a Python number.
    """

    def __init__(self, python_numbers: bool) -> None:
        self._python_numbers = python_numbers

    def packed(self, value: Any) -> bytes | None:
        """In NPY's format."""
        array = np.asarray(value)
        return stored(array) if array.dtype.kind in "biufc" else None

    def unpacked(self, part: memoryview) -> Any:
        """A copy, or a number."""
        array = npy.read(part)
        if array.ndim:
            return array.copy("K")
        return array.item() if self._python_numbers else array[()]


class Numbers:
    """An array of one shape and dtype.

    Args:
        leaf: Shape and dtype.
    """

    def __init__(self, leaf: Leaf) -> None:
        self.shape, self.dtype = leaf

    def packed(self, value: Any) -> bytes | None:
        """In C order."""
        return np.asarray(value, self.dtype).tobytes()

    def unpacked(self, part: memoryview) -> Any:
        """A copy, or one of NumPy's numbers."""
        return np.frombuffer(part, self.dtype).reshape(self.shape).copy()[()]


class Texts:
    """Texts or bytes, one or an array of them.

    Args:
        kind: ``str`` or ``bytes``.
    """

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def packed(self, value: Any) -> bytes | None:
        """Lengths, then what is so long."""
        array = np.asarray(value, object)
        texts = [each.encode() if isinstance(each, str) else bytes(each) for each in array.flat]
        head = [array.ndim, *array.shape, *map(len, texts)]
        return np.array(head, _LENGTH).tobytes() + b"".join(texts)

    def unpacked(self, part: memoryview) -> Any:
        """One text, or an object array."""
        axes = int(np.frombuffer(part, _LENGTH, 1)[0])
        shape = np.frombuffer(part, _LENGTH, axes, 8).tolist()
        count = int(np.prod(shape, dtype=np.int64))
        at = 8 * (1 + axes + count)
        texts = np.empty(count, object)
        for place, size in enumerate(np.frombuffer(part, _LENGTH, count, 8 * (1 + axes)).tolist()):
            text = bytes(part[at : at + size])
            texts[place], at = text.decode() if self._kind is str else text, at + size
        return texts.reshape(shape)[()]


def stored(array: NDArray[Any]) -> bytes:
    """In NPY's format, in C order.

    ``np.save`` into memory takes ten times as long: 1.9 ms for a picture of 500x375 (2026-11).
    """
    return b"".join((header(array), np.asarray(array, order="C").data))


def header(array: NDArray[Any]) -> bytes:
    """What stands before an array's numbers in NPY's format."""
    return _header(np.shape(array), array.dtype.str)


@functools.lru_cache(maxsize=64)
def _header(shape: tuple[int, ...], dtype: str) -> bytes:
    stream, npy_format = io.BytesIO(), cast(Any, np.lib.format)  # Which has no types.
    about = {"descr": dtype, "fortran_order": False, "shape": shape}
    npy_format.write_array_header_1_0(stream, about)
    return stream.getvalue()
