"""Training checkpoints and resuming from them, shared by both front ends.

``checkpoint_dir.py`` reads and writes the files and compares the training with the saved one,
``schedule.py`` decides how often, and ``lock.py`` keeps a second training out of the folder. No
module here depends on a framework.
"""

from __future__ import annotations

from adapters.resuming.checkpoint_dir import (
    CheckpointDir,
    check_fingerprint,
    check_order,
    unnumbered,
)
from adapters.resuming.lock import Lock, read_only
from adapters.resuming.schedule import Schedule

__all__ = [
    "CheckpointDir",
    "Lock",
    "Schedule",
    "check_fingerprint",
    "check_order",
    "read_only",
    "unnumbered",
]
