"""Planning of storage and workers for training: arithmetic before anything is bought or copied."""

from __future__ import annotations

from adapters.planning.examples import Comparison, published_examples
from adapters.planning.published import (
    DEVICES,
    MODELS,
    STORAGE,
    THROUGHPUTS,
    Step,
    Storage,
    step_of,
)
from adapters.planning.report import comparison_lines, plan_lines
from adapters.planning.requirement import Workload

__all__ = [
    "DEVICES",
    "MODELS",
    "STORAGE",
    "THROUGHPUTS",
    "Comparison",
    "Step",
    "Storage",
    "Workload",
    "comparison_lines",
    "plan_lines",
    "published_examples",
    "step_of",
]
