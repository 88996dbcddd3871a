"""What is ended before the interpreter exits: the workers of every sequence that is open.

Sequences with workers must be closed before the interpreter takes the threads down under them:
TensorFlow destroys its iterators then, and waits for the batch that one of them waits for, or that
a thread of TensorFlow's is making.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from typing import Any

from adapters.engine import wait_for_readers

# How long a batch that is being made keeps the program from its end.
_PATIENCE_SECONDS = 10.0

opened: weakref.WeakSet[Any] = weakref.WeakSet()
"""Sequences that may have workers."""
calls_of_threads: set[threading.Event] = set()
"""What Python waits for before it exits, other than in daemon threads: calls of ``fit``."""


def _close_all() -> None:
    for ended in list(calls_of_threads):
        ended.wait()
    for sequence in list(opened):
        sequence._engine.end_with_main_thread()
    if all(
        thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()
    ):
        wait_for_readers(_PATIENCE_SECONDS)


# Before the executors of concurrent.futures are taken down, which atexit is too late for.
getattr(threading, "_register_atexit", atexit.register)(_close_all)
