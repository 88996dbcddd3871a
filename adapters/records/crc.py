"""CRC-32C, as TFRecord has it."""

from __future__ import annotations

from typing import Any

_MASK_DELTA = 0xA282EAD8

try:
    from google_crc32c import value as _value

    available = True
except ImportError:  # Only TFRecord needs it.
    available = False

    def _value(data: Any) -> int:
        raise ImportError(
            "TFRecord files need google-crc32c: pip install 'loader-adapters[records]'"
        )


def masked_crc(data: bytes | memoryview) -> int:
    """The CRC-32C of ``data``, masked so that a CRC of data that hold CRCs stays a good one.

    Source: TensorFlow, ``tensorflow/core/lib/hash/crc32c.h``.
    """
    crc: int = _value(data if isinstance(data, bytes) else bytes(data))
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF
