"""Limits from the system: the number of batches that this process has descriptors for."""

from __future__ import annotations

import logging
import os
import resource
from typing import NamedTuple

log = logging.getLogger("adapters")

# Per slot in the trainer's process: its own descriptor, and its mapping's.
_DESCRIPTORS_OF_A_SLOT = 2
# Per worker: its socket and its process, and during its start their other ends.
_DESCRIPTORS_OF_A_WORKER = 4
# Reserved for the rest of the program: an eighth of all descriptors, but at least this many.
_SPARE_DESCRIPTORS = 24


class Room(NamedTuple):
    """Slots available to worker processes."""

    window: int
    """Batches under way ahead of the consumer."""
    held: int
    """Delivered batches that stay in their slots; further ones are copied out."""


def room_for(window: int, workers: int) -> Room:
    """Reduce a window to the slots that fit, and warn if it had to be reduced.

    Args:
        window: Requested number of batches under way.
        workers: Number of worker processes.
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
    """Descriptors that this process may still open, minus a reserve for the program."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return 1 << 30
    try:
        used = len(os.listdir("/proc/self/fd"))
    except OSError:
        used = 64
    return limit - used - max(_SPARE_DESCRIPTORS, limit // 8)
