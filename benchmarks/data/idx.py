"""The idx format, in which MNIST is published, read and written for bytes.

    offset 0   00 00          always zero
           2   08             element type: unsigned byte, the only one that MNIST uses
           3   n              number of dimensions
           4   n x u32        their sizes, big-endian
       4+4n   data            row-major

Source: http://yann.lecun.com/exdb/mnist/, "the IDX file format".
"""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

UNSIGNED_BYTE = 0x08
GZIP_MAGIC = b"\x1f\x8b"


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """The array in an idx file, plain or gzip (told from the content, not from the name).

    Args:
        path: The file.

    Returns:
        uint8, as many dimensions as the file says; writable, in memory.

    Raises:
        ValueError: It isn't an idx file of bytes, or its length isn't what its header says.
    """
    content = path.read_bytes()
    if content.startswith(GZIP_MAGIC):
        content = gzip.decompress(content)
    if len(content) < 4 or content[:2] != b"\x00\x00" or content[2] != UNSIGNED_BYTE:
        raise ValueError(f"{path}: expected 00 00 08 at offset 0, found {content[:3].hex(' ')}")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise ValueError(f"{path}: expected a header of {start} bytes, found {len(content)}")
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], dtype=">u4"))
    expected = start + math.prod(shape)
    if len(content) != expected:
        raise ValueError(f"{path}: shape {shape} needs {expected} bytes, found {len(content)}")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape).copy()


def write_idx(path: Path, array: npt.NDArray[np.uint8]) -> None:
    """Write bytes as a plain idx file.

    Args:
        path: The file, replaced where it is there; not atomic, which is the caller's to arrange.
        array: uint8, 1 to 255 dimensions.

    Raises:
        ValueError: The array isn't of bytes.
    """
    if array.dtype != np.uint8:
        raise ValueError(f"array must be uint8, got {array.dtype}")
    with path.open("wb") as file:
        file.write(bytes([0, 0, UNSIGNED_BYTE, array.ndim]))
        file.write(np.array(array.shape, dtype=">u4").tobytes())
        file.write(np.ascontiguousarray(array).data)
