"""CRC-32C as used by TFRecord."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images.kernel import load

_MASK_DELTA = 0xA282EAD8

try:
    from google_crc32c import extend as _extend
    from google_crc32c import value as _value

    available = True
except ImportError:  # Only TFRecord needs it.
    available = False

    def _value(data: Any) -> int:
        raise ImportError(
            "TFRecord files need google-crc32c: pip install 'loader-adapters[records]'"
        )

    def _extend(crc: int, data: Any) -> int:
        raise ImportError("google-crc32c")


def masked_crc(data: bytes | memoryview) -> int:
    """Compute the CRC-32C of ``data``, masked as TFRecord does.

    Masking keeps the CRC useful for data that contain CRCs themselves. Source: TensorFlow,
    ``tensorflow/core/lib/hash/crc32c.h``.
    """
    return masked(_value(data if isinstance(data, bytes) else bytes(data)))


def masked(crc: int) -> int:
    """Mask a CRC-32C for storage."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def extended(crc: int, data: memoryview) -> int:
    """Extend ``crc``, the unmasked CRC-32C of the data before ``data``; 0 if there are none."""
    longer: int = _extend(crc, bytes(data))
    return longer


def masked_crcs_of(
    view: memoryview, begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Compute the masked CRC-32C of each range of ``view``, ``(ranges,)``."""
    kernel = load()
    if kernel is None:
        parts = zip(begins.tolist(), ends.tolist())
        return np.array([masked_crc(view[begin:end]) for begin, end in parts], np.uint32)
    crc = np.frombuffer(kernel.crcs(view, begins, ends), np.uint32)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA).astype(np.uint32)
