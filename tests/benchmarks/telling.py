"""A row program that tells which process it runs in."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.harness.row import Measurement


def measure(options: Mapping[str, Any]) -> Measurement:
    """Say something; with `error`, fail; with `at_exit`, end with that code when all is over."""
    print(options.get("says", ""), flush=True)
    if "error" in options:
        raise RuntimeError(options["error"])
    if "at_exit" in options:
        atexit.register(os._exit, int(options["at_exit"]))
    moment = time.monotonic()
    return Measurement(
        software="",
        device="",
        metrics={"process": float(os.getpid())},
        window=(moment, moment),
    )
