"""Which sequences are read by Keras's calls that run in this thread.

While a ``fit`` reads a sequence, its place is that of the training: a validation over the same one,
or a callback that evaluates it or loops over it, reads *aside*. Other threads are on their own.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

from adapters.keras.progress import Progress

marked: set[CodeType] = set()
"""Of the functions that stand for a call; their local ``began`` has what reads for it."""


def is_read_by_a_call(progress: Progress) -> bool:
    """Whether a call of Keras's that runs in this thread reads the sequence of this progress.

    Calls are found by their frames: whatever ends one, at whatever place, nothing is left of it.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code in marked:
            began: list[Any] = frame.f_locals.get("began", [])
            if any(reader._progress is progress for reader in began):
                return True
        frame = frame.f_back
    return False
