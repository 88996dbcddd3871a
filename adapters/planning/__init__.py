"""Planning of storage and workers for training: arithmetic before anything is bought or copied."""

from __future__ import annotations

from adapters.planning.examples import Comparison, published_examples
from adapters.planning.hosts import Demand, Hosts, Limit, Reach, blocks_for, reach
from adapters.planning.link import CONNECTIONS, Arrival, Link, Reading, arrival
from adapters.planning.published import DEVICES, MODELS, STORAGE, THROUGHPUTS
from adapters.planning.reachreport import arrival_lines, reach_lines
from adapters.planning.report import comparison_lines, plan_lines
from adapters.planning.requirement import (
    Met,
    Requirement,
    Workload,
    meets,
    required,
    suggested_shard_bytes,
)
from adapters.planning.step import Step, step_of
from adapters.planning.storage import Fit, Verdict, storage_that_fits

__all__ = [
    "CONNECTIONS",
    "DEVICES",
    "MODELS",
    "STORAGE",
    "THROUGHPUTS",
    "Arrival",
    "Comparison",
    "Demand",
    "Fit",
    "Hosts",
    "Limit",
    "Link",
    "Met",
    "Reach",
    "Reading",
    "Requirement",
    "Step",
    "Verdict",
    "Workload",
    "arrival",
    "arrival_lines",
    "blocks_for",
    "comparison_lines",
    "meets",
    "plan_lines",
    "published_examples",
    "reach",
    "reach_lines",
    "required",
    "step_of",
    "storage_that_fits",
    "suggested_shard_bytes",
]
