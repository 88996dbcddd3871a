"""What transforms of batches must be worth against Keras's layers and albumentations."""

from __future__ import annotations

import importlib.util

import pytest

from adapters.images import kernel
from benchmarks.experiments.transforms_ratios import RATIOS
from benchmarks.harness.ratios import hold
from benchmarks.harness.sweeps import Session


@pytest.mark.flaky(reruns=0)  # Measuring until it is right would prove nothing.
@pytest.mark.parametrize("name", RATIOS)
def test_ratio(session: Session, name: str) -> None:
    """Our median reaches the bar over the peer's best round."""
    if "albumentations" in name and importlib.util.find_spec("albumentations") is None:
        pytest.skip("albumentations is in no extra, as it brings an OpenCV of its own")
    if "MixUp" in name and kernel.load() is None:
        pytest.skip("without the image kernel, NumPy mixes, at twice the pace of Keras's layer")
    shares = "albumentations" if "albumentations" in name else None
    program = "benchmarks.experiments.transforms_ratios"
    hold(session, "Keras", program, name, RATIOS[name], shares)
