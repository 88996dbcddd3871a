"""Argument checks of transforms; errors name the argument, the rule and the value."""

from __future__ import annotations

import math
from typing import Any


def number(name: str, value: Any, least: float, most: float = math.inf) -> float:
    """Check a finite number within bounds.

    Raises:
        TypeError: It is no number.
        ValueError: It is out of range.
    """
    try:
        given = float(value)
    except (TypeError, ValueError):
        given = math.nan
    except OverflowError:  # A large integer.
        given = math.inf
    if isinstance(value, (bool, str)) or math.isnan(given):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if math.isinf(given) and most == math.inf:
        raise ValueError(f"{name} must be finite, got {value!r}")
    if not least <= given <= most:
        bound = f">= {least:g}" if most == math.inf else f"in [{least:g}, {most:g}]"
        raise ValueError(f"{name} must be {bound}, got {value!r}")
    return given


def interval(name: str, value: Any, least: float, most: float = math.inf) -> tuple[float, float]:
    """Check two numbers within bounds, the smaller one first.

    Raises:
        TypeError: They are no pair of numbers.
        ValueError: They are out of range, or the wrong way round.
    """
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"{name} must be (low, high), got {value!r}")
    low, high = (number(name, each, least, most) for each in value)
    if low > high:
        raise ValueError(f"{name} must be (low, high) with low <= high, got {value!r}")
    return low, high
