"""What gluon_loader must be worth against MXNet's DataLoader, or itself with other workers."""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks.harness.ratios import hold
from benchmarks.harness.sweeps import Session

if importlib.util.find_spec("mxnet") is None:
    pytest.skip("MXNet has no wheels for this Python", allow_module_level=True)

from benchmarks.experiments.gluon_ratios import RATIOS


@pytest.mark.flaky(reruns=0)  # Measuring until it is right would prove nothing.
@pytest.mark.parametrize("name", RATIOS)
def test_ratio(session: Session, name: str) -> None:
    """Our median reaches the bar over the peer's best round; at parity, its middle half."""
    hold(session, "Gluon", "benchmarks.experiments.gluon_ratios", name, RATIOS[name])
