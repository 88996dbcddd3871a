"""How many examples a fuzz takes: all of them with ``--full``, a quarter without.

Its own module, since the number is needed where a test is defined, before any fixture is.
"""

from __future__ import annotations

_LEAST = 20
_whole = False


def take_all() -> None:
    """From now on; conftest says so before it imports a test."""
    global _whole
    _whole = True


def examples(count: int) -> int:
    """Of a count with ``--full``, what this run takes."""
    return count if _whole else min(count, max(count // 4, _LEAST))
