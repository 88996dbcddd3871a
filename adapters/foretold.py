"""What an order that reads in large stretches tells: orders say what comes, sources hear it."""

from __future__ import annotations

from typing import NamedTuple


class Window(NamedTuple):
    """What such an order reads at a time."""

    order: int
    """Tells it from other orders over the same samples."""
    number: int
    """Counted over all epochs."""
    over: int
    """Where it isn't ``asked``: all windows up to this one have been read."""
    asked: bool
    """Whether it is told as batches are asked for in this process, which is going to read it here;
    else, as they are computed, wherever that is."""
