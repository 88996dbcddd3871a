"""What SafeSequence must be worth against a peer, or against itself with other workers."""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks.experiments.keras_ratios import RATIOS
from benchmarks.harness.ratios import hold
from benchmarks.harness.sweeps import Session


@pytest.mark.flaky(reruns=0)  # Measuring until it is right would prove nothing.
@pytest.mark.parametrize("name", RATIOS)
def test_ratio(session: Session, name: str) -> None:
    """Our median reaches the bar over the peer's best round; at parity, its middle half."""
    if RATIOS[name].backend == "torch" and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is in no extra, as its default wheel pulls gigabytes")
    hold(session, "Keras", "benchmarks.experiments.keras_ratios", name, RATIOS[name])
