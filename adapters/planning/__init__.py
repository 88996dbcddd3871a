"""Planning of storage and workers for training: arithmetic before anything is bought or copied."""

from __future__ import annotations

from adapters.planning.examples import Comparison, published_examples
from adapters.planning.published import DEVICES, MODELS, STORAGE, THROUGHPUTS
from adapters.planning.report import comparison_lines, plan_lines
from adapters.planning.requirement import (
    Requirement,
    Workload,
    required,
    suggested_shard_bytes,
)
from adapters.planning.step import Step, step_of
from adapters.planning.storage import Fit, Verdict, storage_that_fits

__all__ = [
    "DEVICES",
    "MODELS",
    "STORAGE",
    "THROUGHPUTS",
    "Comparison",
    "Fit",
    "Requirement",
    "Step",
    "Verdict",
    "Workload",
    "comparison_lines",
    "plan_lines",
    "published_examples",
    "required",
    "step_of",
    "storage_that_fits",
    "suggested_shard_bytes",
]
