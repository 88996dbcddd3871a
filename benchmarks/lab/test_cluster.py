"""What a Dask cluster on this machine is worth, against its two threads and tf.data service."""

from __future__ import annotations

import pytest

from benchmarks.harness.ratios import run_ratio
from benchmarks.harness.sweeps import Session
from benchmarks.lab.experiments import cluster_ratios


@pytest.mark.parametrize("name", cluster_ratios.TABLE)
def test_ratio(session: Session, name: str) -> None:
    """The row ends well."""
    run_ratio(session, cluster_ratios.__name__, name, cluster_ratios.TABLE[name])
