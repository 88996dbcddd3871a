"""Data as people look at them: contact sheets and tables of batches, statistics of sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.lazily import bound

if TYPE_CHECKING:
    from adapters.viewing.mistakes import Inspection
    from adapters.viewing.peeked import Peek, peeked
    from adapters.viewing.sheet import contact_sheet, images_in
    from adapters.viewing.survey import FieldStatistics, Statistics, statistics
else:
    __getattr__ = bound(
        __name__,
        {
            "FieldStatistics": "adapters.viewing.survey",
            "Inspection": "adapters.viewing.mistakes",
            "Peek": "adapters.viewing.peeked",
            "Statistics": "adapters.viewing.survey",
            "contact_sheet": "adapters.viewing.sheet",
            "images_in": "adapters.viewing.sheet",
            "peeked": "adapters.viewing.peeked",
            "statistics": "adapters.viewing.survey",
        },
    )

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
