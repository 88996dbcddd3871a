"""A row program that computes for some seconds, then sleeps as long."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from benchmarks.harness.row import Measurement


def measure(options: Mapping[str, Any]) -> Measurement:
    """Hold memory and the CPU for `seconds`, which is the busy part of the window."""
    begin, held = time.monotonic(), bytearray(options["bytes"])
    held[::4096] = b"x" * len(held[::4096])
    while time.monotonic() - begin < options["seconds"]:
        pass
    busy = time.monotonic()
    time.sleep(options["seconds"])
    return {
        "software": "",
        "device": "",
        "metrics": {},
        "window": (begin, time.monotonic()),
        "busy": (begin, busy),
    }
