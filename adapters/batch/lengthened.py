"""Batches padded beyond their true length, to find the axes that vary between batches.

TensorFlow's ``fit`` infers that from a few batches before it trains on the first one. If samples of
unequal lengths are padded, the padded lengths may be equal by chance.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from adapters.alignment import aligned_empty
from adapters.batch.key import BatchKey


class Probe:
    """Lengths that vary, as seen in some batches."""

    def __init__(self) -> None:
        self.varied = False
        """True if the samples of a batch had unequal lengths."""
        self.everywhere = False
        """Pad members with equal lengths too, except for a length of 1, by which Keras tells labels
        from one-hot vectors."""

    def asks(self, longest: int, varies: bool) -> bool:
        """True if a member is to be padded further."""
        self.varied |= varies
        return varies or (self.everywhere and longest > 1)


def lengthened(plan: Any, epoch: int) -> list[Any]:
    """Make batches of a ``SourcePlan``, padded further along axes whose lengths may vary.

    A length that is equal within each of three batches is fixed if other lengths vary. If none
    vary, all may: longer samples are rare then. Batches that fail are left out.
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
    """Compute the first, the middle and the last batch."""
    batches, last = [], len(plan.order) - 1
    for index in sorted({0, last // 2, last}):
        with contextlib.suppress(Exception):  # The real batch raises it when it is computed.
            batches.append(plan.batch(BatchKey(epoch, index), aligned_empty).batch)
    return batches
