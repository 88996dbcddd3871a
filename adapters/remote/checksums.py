"""CRC-32C of bytes, by the native kernel or google-crc32c."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from adapters.images.kernel import load

try:
    from google_crc32c import extend as _extend
    from google_crc32c import value as _value
except ImportError:

    def _extend(crc: int, data: bytes) -> int:
        raise ImportError(
            "TFRecord files and caches need google-crc32c: pip install 'loader-adapters[records]'"
        )

    def _value(data: bytes) -> int:
        if load() is None:
            return int(_extend(0, data))
        begin, end = np.array([[0], [len(data)]], np.int64)
        return int(crcs_of(memoryview(data), begin, end)[0])


def crc32c(data: bytes | memoryview) -> int:
    """Compute the CRC-32C; an ``ImportError`` names the package that does."""
    return int(_value(data if isinstance(data, bytes) else bytes(data)))


def extended(crc: int, data: bytes | memoryview) -> int:
    """Compute the CRC-32C of bytes whose first part has this one."""
    return int(_extend(crc, bytes(data)))


def crcs_of(
    view: memoryview, begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Compute the CRC-32C of each range of ``view``, ``(ranges,)``."""
    kernel = load()
    if kernel is None:
        parts = zip(begins.tolist(), ends.tolist())
        return np.array([crc32c(view[begin:end]) for begin, end in parts], np.uint32)
    return np.frombuffer(kernel.crcs(view, begins, ends), np.uint32)
