"""Memory budget for remote data, both stored and prefetched, shared by all files.

Thread-safe. Each process has its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

# Files without a cache keep twice this together. For scale: a window of 10 prefetched batches of
# 256 images of 47 kB has 120 MB.
HALF_BYTES = 256 << 20
# Most bytes prefetched for all files.
MOST_EXPECTED_BYTES = 128 << 20

_lock = threading.Lock()
# Stored since all files last started new regions.
_young_bytes = 0
# Prefetched and not yet requested.
_ahead_bytes = 0


def came(size: int, turn: Callable[[], None]) -> None:
    """Account for stored bytes; call ``turn`` for all files when half the budget is used."""
    global _young_bytes, _ahead_bytes
    with _lock:
        _young_bytes += size
        if _young_bytes < HALF_BYTES:
            return
        _young_bytes = _ahead_bytes = 0
    turn()


def expected(size: int) -> bool:
    """Reserve ``size`` bytes of the prefetch budget; False if they don't fit."""
    global _ahead_bytes
    with _lock:
        if _ahead_bytes + size > MOST_EXPECTED_BYTES:
            return False
        _ahead_bytes += size
        return True


def used(size: int) -> None:
    """Account for bytes that were requested."""
    global _ahead_bytes
    if _ahead_bytes:
        with _lock:
            _ahead_bytes = max(0, _ahead_bytes - size)


def forget() -> None:
    """Reset the budget in a forked process."""
    global _lock, _young_bytes, _ahead_bytes
    _lock, _young_bytes, _ahead_bytes = threading.Lock(), 0, 0
