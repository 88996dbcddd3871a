"""Planning of storage and workers for training: arithmetic before anything is bought or copied."""

from __future__ import annotations

from adapters.planning.published import published_examples, step_of
from adapters.planning.requirement import Workload

__all__ = ["Workload", "published_examples", "step_of"]
