"""Batches of other lengths than the real ones: which axes differ between batches shows there.

TensorFlow's ``fit`` takes that from a few batches before it trains on the first one. Where samples
of unequal lengths are made equally long, the lengths of these may be equal by chance.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from adapters.alignment import aligned_empty
from adapters.batch.key import BatchKey


class Probe:
    """Which lengths vary, as far as some batches tell."""

    def __init__(self) -> None:
        self.varied = False
        """Whether the samples of a batch had unequal lengths."""
        self.everywhere = False
        """Whether other lengths are given to members that had equal ones, too. But for a length of
        1, by which Keras tells labels from one-hot vectors."""

    def asks(self, longest: int, varies: bool) -> bool:
        """Whether a member is to have another length."""
        self.varied |= varies
        return varies or (self.everywhere and longest > 1)


def lengthened(plan: Any, epoch: int) -> list[Any]:
    """Batches of a ``SourcePlan`` whose members have other lengths where these may vary.

    Lengths that are equal within each of three batches are fixed, if others aren't. If all are, all
    may vary: longer samples are rare, then. What fails for a batch that isn't real is left out.
    """
    if (probing := getattr(plan.collate, "probing", None)) is not None:
        probe = Probe()
        other = replace(plan, collate=probing(probe))
        batches = _made(other, epoch)
        if not probe.varied:
            probe.everywhere = True
            batches = _made(other, epoch)
        return batches
    if plan.collate is None and plan.transform is None and plan.source.pads:
        return _made(replace(plan, lengthened=1), epoch)
    return []


def _made(plan: Any, epoch: int) -> list[Any]:
    """The first, the middle and the last batch."""
    batches, last = [], len(plan.order) - 1
    for index in sorted({0, last // 2, last}):
        with contextlib.suppress(Exception):  # A real batch raises it when it is computed.
            batches.append(plan.batch(BatchKey(epoch, index), aligned_empty).batch)
    return batches
