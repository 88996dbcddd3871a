"""Shutdown of the workers of all open sequences before the interpreter exits.

This must happen before the interpreter stops their threads. At exit, TensorFlow destroys its
iterators and waits for batches that they wait for or that its threads are computing.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from typing import Any

from adapters.engine import wait_for_readers

# How long the exit waits for a batch that is being computed.
_PATIENCE_SECONDS = 10.0

opened: weakref.WeakSet[Any] = weakref.WeakSet()
"""Sequences that may have workers."""
calls_of_threads: set[threading.Event] = set()
"""Events of the calls of Keras in non-daemon threads, for which Python waits at exit."""


def _close_all() -> None:
    for ended in list(calls_of_threads):
        ended.wait()
    for sequence in list(opened):
        sequence._engine.end_with_main_thread()
    if all(
        thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()
    ):
        wait_for_readers(_PATIENCE_SECONDS)


# Must run before the executors of concurrent.futures shut down; atexit runs too late.
getattr(threading, "_register_atexit", atexit.register)(_close_all)
