"""What a Dask cluster on this machine is worth, against its two threads and tf.data service."""

from __future__ import annotations

import pytest

from benchmarks.data.photographs import find_photographs
from benchmarks.lab.experiments import cluster_ratios
from benchmarks.harness.ratios import hold, skip_without
from benchmarks.harness.sweeps import Session


@pytest.mark.flaky(reruns=0)  # Measuring until it is right would prove nothing.
@pytest.mark.parametrize("name", cluster_ratios.TABLE)
def test_ratio(session: Session, name: str) -> None:
    """Our median reaches the bar over the peer's best round; at parity, its middle half."""
    peer, ratio = cluster_ratios.TABLE[name]
    skip_without(session, peer, name)
    with session.uncaptured():
        find_photographs()
    hold(session, peer.framework, cluster_ratios.__name__, name, ratio)
