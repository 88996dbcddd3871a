"""Where a training is kept, so that it can be continued: what the faces have in common.

``values.py`` says what can be kept, ``folder.py`` where and how, ``schedule.py`` how often,
``likeness.py`` whether it is the same training, ``lock.py`` who may use the folder, and
``background.py`` writes while it goes on. No file here knows a framework.
"""

from __future__ import annotations

from adapters.resuming.background import Background
from adapters.resuming.folder import Folder
from adapters.resuming.likeness import check_order, check_same, unnumbered
from adapters.resuming.lock import Lock, looking
from adapters.resuming.schedule import Schedule

__all__ = [
    "Background",
    "Folder",
    "Lock",
    "Schedule",
    "check_order",
    "check_same",
    "looking",
    "unnumbered",
]
