"""Checks of arguments that the faces towards the frameworks share."""

from __future__ import annotations

import operator
from typing import Any


def check_integer(name: str, value: Any, least: int | None, otherwise: str = "") -> None:
    """Check that ``value`` is an integer, of a least size if there is one.

    Args:
        name: What the user calls it.
        value: What he gave.
        least: The smallest that is allowed.
        otherwise: What else is allowed, for the message: ``' or "auto"'``.

    Raises:
        TypeError: It is no integer.
        ValueError: It is too small.
    """
    bound = "" if least is None else f" >= {least}"
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer{bound}{otherwise}, got {value!r}")
    if least is not None and number < least:
        raise ValueError(f"{name} must be{bound}{otherwise}, got {value!r}")
