"""What an order that reads in large stretches tells: orders say what comes, sources hear it."""

from __future__ import annotations

from typing import NamedTuple


class Window(NamedTuple):
    """What such an order reads at a time."""

    number: int
    """Counted over all epochs."""
    over: int
    """All windows up to this one have been read by the time that this one is told."""
    share: float
    """Of all samples, those in it that this process reads, at most."""
