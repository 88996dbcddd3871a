"""Data as people look at them: contact sheets and tables of batches, statistics of sources."""

from __future__ import annotations

from adapters.viewing.mistakes import Inspection
from adapters.viewing.peeked import Peek, peeked
from adapters.viewing.sheet import contact_sheet, images_in
from adapters.viewing.survey import FieldStatistics, Statistics, statistics

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
