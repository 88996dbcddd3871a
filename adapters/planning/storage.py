"""Which kinds of storage give what is required, for loose files and for packed records."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from adapters.planning.published import STORAGE, Storage
from adapters.planning.requirement import Requirement


class Verdict(enum.Enum):
    """Whether storage of a kind gives enough; its value is for people."""

    FITS = "fits"
    AT_BEST = "at best"
    TOO_SLOW = "too slow"


@dataclass(frozen=True)
class Fit:
    """What a kind of storage does for a requirement.

    Args:
        storage: The kind.
        files: With a file for each example.
        packed: With records that are read in the order in which they are stored.
    """

    storage: Storage
    files: Verdict
    packed: Verdict


def storage_that_fits(need: Requirement, kinds: Sequence[Storage] = STORAGE) -> list[Fit]:
    """Judge each kind of storage: by reads a second and by bytes a second, the worse of the two.

    Args:
        need: What is required.
        kinds: What there is.

    Returns:
        One for each kind: ``FITS`` where the least that it gives is enough, ``AT_BEST`` where the
        most is, else ``TOO_SLOW``.
    """
    return [
        Fit(
            kind,
            _verdict(kind, need.file_iops, need.bytes_per_second),
            _verdict(kind, need.packed_iops, need.bytes_per_second),
        )
        for kind in kinds
    ]


def _verdict(kind: Storage, iops: float, bytes_per_second: float) -> Verdict:
    for place, verdict in enumerate((Verdict.FITS, Verdict.AT_BEST)):
        if iops <= kind.iops[place] and bytes_per_second <= kind.bytes_per_second[place]:
            return verdict
    return Verdict.TOO_SLOW
