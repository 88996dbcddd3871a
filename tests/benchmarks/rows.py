"""Row programs: one whose speed is known, and one that never ends."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Mapping
from multiprocessing.shared_memory import SharedMemory
from typing import Any

from benchmarks.harness.row import Measurement

SAMPLES = 5
SLEEP_SECONDS = 0.1


def sleep(options: Mapping[str, Any]) -> Measurement:
    """Samples that take so long each; with `error`, none. Tells Keras's backend, if any."""
    if "error" in options:
        raise RuntimeError(options["error"])
    began = time.monotonic()
    time.sleep(SAMPLES * options["seconds"])
    ended = time.monotonic()
    return Measurement(
        software=os.environ.get("KERAS_BACKEND", f"Python {platform.python_version()}"),
        device="the CPU",
        metrics={"samples_per_second": SAMPLES / (ended - began)},
        window=(began, ended),
    )


def hang(options: Mapping[str, Any]) -> Measurement:
    """Make a segment of that name, say so, and wait."""
    memory = SharedMemory(options["name"], create=True, size=1)
    print(f"made {memory.name}", flush=True)
    threading.Event().wait()
    raise AssertionError("nobody sets the event")


def measure(options: Mapping[str, Any]) -> Measurement:
    """What `does` names; else, sleep."""
    return {"sleep": sleep, "hang": hang}[options.get("does", "sleep")](options)
