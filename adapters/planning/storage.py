"""Kinds of storage judged by a requirement, for loose files and for packed records."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from adapters.planning.published import STORAGE, Storage
from adapters.planning.requirement import Requirement


class Verdict(enum.Enum):
    """Verdict on a kind of storage; its value is to be displayed."""

    FITS = "fits"
    AT_BEST = "at best"
    TOO_SLOW = "too slow"


class Fit(NamedTuple):
    """Verdicts on a kind of storage: a file for each example, and records in stored order."""

    storage: Storage
    files: Verdict
    packed: Verdict


def storage_that_fits(need: Requirement, kinds: Sequence[Storage] = STORAGE) -> list[Fit]:
    """Judge each kind of storage: by reads a second and by bytes a second, the worse of the two.

    Args:
        need: Requirements.
        kinds: Kinds of storage.

    Returns:
        One for each kind: ``FITS`` if its least rates are enough, ``AT_BEST`` if its highest are,
        else ``TOO_SLOW``.
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
