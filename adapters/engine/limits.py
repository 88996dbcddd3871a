"""How many batches fit into what the system gives to this process."""

from __future__ import annotations

import logging
import os
import resource
from typing import NamedTuple

log = logging.getLogger("adapters")

# Of a slot in the trainer's process: its own, and its mapping's.
_DESCRIPTORS_OF_A_SLOT = 2
# Of a worker: its socket and its process; and while it starts, their other ends.
_DESCRIPTORS_OF_A_WORKER = 4
# What the rest of the program may open meanwhile: an eighth of all, and that many at the least.
_SPARE_DESCRIPTORS = 24


class Room(NamedTuple):
    """Slots that worker processes may use."""

    window: int
    """Batches under way ahead of the consumer."""
    held: int
    """Delivered batches that lie in their slots; further ones are copied out."""


def room_for(window: int, workers: int) -> Room:
    """How much of a window of batches fits; said in the log where that is not all of it.

    Args:
        window: Batches that shall be under way.
        workers: Processes that compute them.
    """
    held = 2 * window + 8
    free = descriptors_left() - _DESCRIPTORS_OF_A_WORKER * workers
    slots = free // _DESCRIPTORS_OF_A_SLOT
    if window + held <= slots:
        return Room(window, held)
    fits = max(1, min(window, slots // 2))
    if fits < window:
        log.warning(
            "batches that may be ready ahead are bounded to %d, not %d: this process may open %d "
            "files, and each batch of a worker process takes %d; raise the limit by `ulimit -n`, "
            "or use threads",
            fits,
            window,
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            _DESCRIPTORS_OF_A_SLOT,
        )
    return Room(fits, max(0, slots - fits))


def descriptors_left() -> int:
    """Descriptors that this process may still open, less what the rest of the program may need."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return 1 << 30
    try:
        used = len(os.listdir("/proc/self/fd"))
    except OSError:
        used = 64
    return limit - used - max(_SPARE_DESCRIPTORS, limit // 8)
