"""What a row of the MNIST sweeps trains: LeNet, or a simulated device in its place."""

from __future__ import annotations

from benchmarks.harness.row import Measurement

LENET = "LeNet"
# Keras's step of a network that computes next to nothing.
SIMULATED = "simulated device"
# The same, or Gluon's loop, with a step of this length: the article's V100 trained 60,000 digits in
# 3.765 s at best, 64 in 4.0 ms.
PACED = "paced as a V100"
STEP_SECONDS = 0.004
EPOCH = 60_000  # digits, as published


def with_epochs(measured: Measurement) -> Measurement:
    """Add what the article's epoch would take at the speed that was measured."""
    measured["metrics"]["epoch_seconds"] = EPOCH / measured["metrics"]["samples_per_second"]
    speeds = measured.get("rounds", {}).get("samples_per_second", [])
    if speeds:
        measured["rounds"]["epoch_seconds"] = [EPOCH / speed for speed in speeds]
    return measured
