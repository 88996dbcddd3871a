"""Ratios for maintainers: ours to ourselves, transforms, pictures, a cluster, HTTP."""

from __future__ import annotations

import pytest

from benchmarks.harness.ratios import Ratio, run_ratio
from benchmarks.harness.sweeps import Session
from benchmarks.lab.experiments import (
    cluster_ratios,
    own_ratios,
    pictures_ratios,
    storage_ratios,
    table_ratios,
    transforms_ratios,
)

TABLES = (
    own_ratios,
    table_ratios,
    transforms_ratios,
    pictures_ratios,
    cluster_ratios,
    storage_ratios,
)
ROWS = [
    pytest.param(module.__name__, name, ratio, id=name)
    for module in TABLES
    for name, ratio in module.TABLE.items()
]


@pytest.mark.parametrize(("program", "name", "ratio"), ROWS)
def test_ratio(session: Session, program: str, name: str, ratio: Ratio) -> None:
    """The row ends well, and loses, repeats and changes no sample; its speed is information."""
    run_ratio(session, program, name, ratio)
