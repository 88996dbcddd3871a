"""A row program whose speed is known: a plain loader over samples that take their time."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.harness.row import Measurement

SAMPLES = 5
SLEEP_SECONDS = 0.1


class SlowSamples:
    """A data set each of whose samples takes so long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, number: int) -> int:
        if not 0 <= number < SAMPLES:
            raise IndexError(number)
        time.sleep(self._seconds)
        return number


def measure(options: Mapping[str, Any]) -> Measurement:
    """One pass over the samples; with `error`, none. Tells Keras's backend, if the row has one."""
    if "error" in options:
        raise RuntimeError(options["error"])
    began = time.monotonic()
    assert list(SlowSamples(options["seconds"])) == list(range(SAMPLES))
    ended = time.monotonic()
    return Measurement(
        software=os.environ.get("KERAS_BACKEND", f"Python {platform.python_version()}"),
        device="the CPU",
        metrics={"samples_per_second": SAMPLES / (ended - began)},
        window=(began, ended),
    )
