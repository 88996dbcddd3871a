"""Data as people look at them: contact sheets and tables of batches, statistics of sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.lazily import bound
from adapters.viewing.mistakes import Inspection
from adapters.viewing.peeked import Peek, peeked
from adapters.viewing.sheet import contact_sheet, images_in

if TYPE_CHECKING:
    from adapters.viewing.survey import FieldStatistics, Statistics, statistics
else:
    _NAMES = ("FieldStatistics", "Statistics", "statistics")
    __getattr__ = bound(__name__, dict.fromkeys(_NAMES, "adapters.viewing.survey"))

__all__ = [
    "FieldStatistics",
    "Inspection",
    "Peek",
    "Statistics",
    "contact_sheet",
    "images_in",
    "peeked",
    "statistics",
]
