"""Checkpoints of a training, and how it resumes from them: what both front ends share.

``values.py`` turns nested values into JSON and arrays, ``checkpoint_dir.py`` has the files,
``writer.py`` the thread that writes them, ``schedule.py`` says how often, ``fingerprint.py``
compares the training with the one that was saved, and ``lock.py`` keeps a second training out of
the folder. No module here knows a framework.
"""

from __future__ import annotations

from adapters.resuming.checkpoint_dir import CheckpointDir
from adapters.resuming.fingerprint import check_fingerprint, check_order, unnumbered
from adapters.resuming.lock import Lock, read_only
from adapters.resuming.schedule import Schedule
from adapters.resuming.writer import Writer

__all__ = [
    "CheckpointDir",
    "Lock",
    "Schedule",
    "Writer",
    "check_fingerprint",
    "check_order",
    "read_only",
    "unnumbered",
]
