"""A row program that never ends, and holds shared memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from multiprocessing.shared_memory import SharedMemory
from typing import Any

from benchmarks.harness.row import Measurement


def measure(options: Mapping[str, Any]) -> Measurement:
    """Make a segment of that name, say so, and wait."""
    memory = SharedMemory(options["name"], create=True, size=1)
    print(f"made {memory.name}", flush=True)
    threading.Event().wait()
    raise AssertionError("nobody sets the event")
