"""A row program that knows all digits."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from benchmarks.harness.row import Measurement


def measure(options: Mapping[str, Any]) -> Measurement:
    """A row of the MNIST sweep, at once."""
    now = time.monotonic()
    return Measurement(
        software="none",
        device="the CPU",
        metrics={"accuracy": 1.0},
        window=(now, now),
        seed=options["seed"],
    )
