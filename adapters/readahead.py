"""Prefetch hints: an order that reads in large stretches tells its source what to read next."""

from __future__ import annotations

from typing import NamedTuple


class Window(NamedTuple):
    """A window of blocks, read together."""

    order: int
    """Distinguishes the orders over the same samples."""
    number: int
    """Number of the window, counted over all epochs."""
    over: int
    """Number up to which all windows have been read, if not ``asked``."""
    asked: bool
    """True if hinted when a batch is requested in this process, which will read it; False if hinted
    when it is computed, in any process."""
