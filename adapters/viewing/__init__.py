"""Views of data for people: contact sheets and tables of batches, statistics of sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.lazily import bound

if TYPE_CHECKING:
    from adapters.viewing.mistakes import Inspection
    from adapters.viewing.peek import Peek
    from adapters.viewing.survey import FieldStatistics, Statistics, statistics
else:
    __getattr__ = bound(
        __name__,
        {
            "FieldStatistics": "adapters.viewing.survey",
            "Inspection": "adapters.viewing.mistakes",
            "Peek": "adapters.viewing.peek",
            "Statistics": "adapters.viewing.survey",
            "statistics": "adapters.viewing.survey",
        },
    )

__all__ = ["FieldStatistics", "Inspection", "Peek", "Statistics", "statistics"]
