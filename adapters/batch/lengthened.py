"""Batches of samples that are longer than they are: which axes differ between batches shows there.

TensorFlow's ``fit`` takes that from a few batches before it trains on the first one. Where samples
of unequal lengths are made equally long, the lengths of these may be equal by chance.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from adapters.alignment import aligned_empty
from adapters.batch.key import BatchKey


def lengthened(plan: Any, epoch: int) -> list[Any]:
    """Batches of a ``SourcePlan``; members are longer whose samples have unequal lengths.

    The first, the middle and the last one: lengths that are equal in all of them are fixed.
    """
    if (make := getattr(plan.collate, "longer", None)) is not None:
        longer = replace(plan, collate=make())
    elif plan.collate is None and plan.transform is None and plan.source.pads:
        longer = replace(plan, lengthened=1)
    else:
        return []
    last = len(plan.order) - 1
    indices = sorted({0, last // 2, last})
    return [longer.batch(BatchKey(epoch, index), aligned_empty).batch for index in indices]
