"""Size limits as numbers or text: ``"200GB"``, ``"64 GiB"``."""

from __future__ import annotations

import operator
import re
from typing import Any

_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_TEXT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?i?B)?\s*", re.IGNORECASE)
_LEAST_LIMIT_BYTES = 1 << 20


def bytes_of(limit: Any) -> int:
    """Parse a limit in bytes.

    Raises:
        TypeError: Neither a number nor text.
        ValueError: The text can't be parsed, or the limit is below 1 MiB.
    """
    if isinstance(limit, str):
        match = _TEXT.fullmatch(limit)
        if match is None:
            raise ValueError(f'limit must be bytes, or a text like "200GB", got {limit!r}')
        number, unit = match.groups()
        limit = int(float(number) * _UNITS[(unit or "").lower()])
    try:
        number_of_bytes = operator.index(limit)
    except TypeError:
        number_of_bytes = None
    if number_of_bytes is None or isinstance(limit, bool):
        raise TypeError(f'limit must be bytes, or a text like "200GB", got {limit!r}')
    if number_of_bytes < _LEAST_LIMIT_BYTES:
        raise ValueError(f"limit must be >= {_LEAST_LIMIT_BYTES} bytes (1 MiB), got {limit}")
    return number_of_bytes
