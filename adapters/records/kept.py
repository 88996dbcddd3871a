"""How much of remote files is kept in memory, and fetched ahead: an account of all files together.

Any thread may ask; it is for this process alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

# Kept of all files that have no cache: twice this. A window of 10 batches of 256 pictures of 47 kB,
# which are fetched ahead, has 120 MB.
HALF_BYTES = 256 << 20
# Fetched ahead of who asks, of all files.
MOST_EXPECTED_BYTES = 128 << 20

_lock = threading.Lock()
# Of what lies in memory since all files last began new regions.
_young_bytes = 0
# Of what is fetched ahead, and wasn't asked for yet.
_ahead_bytes = 0


def came(size: int, turn: Callable[[], None]) -> None:
    """Note what was put into memory; when it is half of what may be kept, have files ``turn``."""
    global _young_bytes, _ahead_bytes
    with _lock:
        _young_bytes += size
        if _young_bytes < HALF_BYTES:
            return
        _young_bytes = _ahead_bytes = 0
    turn()


def expected(size: int) -> bool:
    """Whether there is room to fetch so many bytes ahead; they are noted then."""
    global _ahead_bytes
    with _lock:
        if _ahead_bytes + size > MOST_EXPECTED_BYTES:
            return False
        _ahead_bytes += size
        return True


def used(size: int) -> None:
    """Note that so many bytes were asked for."""
    global _ahead_bytes
    if _ahead_bytes:
        with _lock:
            _ahead_bytes = max(0, _ahead_bytes - size)


def forget() -> None:
    """Begin anew, in a forked process."""
    global _lock, _young_bytes, _ahead_bytes
    _lock, _young_bytes, _ahead_bytes = threading.Lock(), 0, 0
