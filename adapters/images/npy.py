"""Arrays in NPY's format, in which raw images are stored.

::

    93 4E 55 4D 50 59 | u8 major | u8 minor | u16 length, u32 from 2.0 on | header | array

The header is a dict as Python writes one: ``{'descr': '|u1', 'fortran_order': False, 'shape': (28,
28), }``. Numbers are little-endian. Source: NumPy, ``numpy/lib/format.py``.
"""

from __future__ import annotations

import ast
import functools
import io
import math
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError

MAGIC = b"\x93NUMPY"
# NumPy's own limit: Python's parser may fail otherwise on deeply nested text.
_MOST_HEADER_BYTES = 10_000


def read(buffer: memoryview | bytes) -> NDArray[Any]:
    """Read an array of numbers without a copy."""
    start = 12 if bytes(buffer[6:7]) > b"\x01" else 10
    size = int.from_bytes(buffer[8:start], "little")
    if size > _MOST_HEADER_BYTES:
        raise ContentError(f"a header of at most {_MOST_HEADER_BYTES:,} bytes", f"{size:,} bytes")
    end = start + size
    try:
        shape, order, dtype = _parsed(bytes(buffer[start:end]))
    except (KeyError, RecursionError, SyntaxError, TypeError, ValueError) as error:
        raise ContentError("an array in NPY's format", f"a header that says {error!r}") from error
    size = math.prod(shape) * dtype.itemsize
    if len(buffer) - end != size:
        raise ContentError(f"{size} bytes of {dtype} {shape}", f"{len(buffer) - end}")
    array: NDArray[Any] = np.frombuffer(buffer, np.uint8)[end:].view(dtype)
    return array.reshape(shape, order=order)


def write(array: NDArray[Any]) -> bytes:
    """Encode an array, in C order; ``np.save`` takes ten times as long for an image."""
    header = _header(array.shape, array.dtype.str)
    return b"".join((header, np.asarray(array, order="C").data))


@functools.lru_cache(maxsize=64)
def _header(shape: tuple[int, ...], dtype: str) -> bytes:
    stream, npy_format = io.BytesIO(), cast(Any, np.lib.format)  # It has no types.
    about = {"descr": dtype, "fortran_order": False, "shape": shape}
    npy_format.write_array_header_1_0(stream, about)
    return stream.getvalue()


@functools.lru_cache(maxsize=64)
def _parsed(header: bytes) -> tuple[tuple[int, ...], Literal["C", "F"], np.dtype[Any]]:
    fields = ast.literal_eval(header.decode("latin-1").strip())
    shape, dtype = fields["shape"], np.dtype(str(fields["descr"]))
    if not all(type(side) is int and side >= 0 for side in shape) or dtype.kind not in "biufc":
        raise ValueError(f"{dtype} {shape}")
    return tuple(shape), "F" if fields["fortran_order"] else "C", dtype
