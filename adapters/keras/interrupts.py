"""Ctrl-C while TensorFlow waits for a batch.

Python handles a signal in the main thread, between two of its instructions. There are none while
TensorFlow waits there, in C++, for what a thread of its own asks us for: a batch that never comes
would keep it from ever ending. But Python writes each signal's number to a descriptor at once, and
a thread can wait for that: it lets go of the batches, TensorFlow returns, and Python handles the
signal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def released_by_interrupts(release: Callable[[], None]) -> Iterator[None]:
    """Call ``release`` from a thread when Ctrl-C has come, which is about to raise.

    That is so while ``signal.default_int_handler`` handles it, in the main thread. Where somebody
    else is told of signals already, or handles this one, nothing changes.

    Args:
        release: Has whoever waits for a batch return without one.

    Raises:
        KeyboardInterrupt: In place of what TensorFlow made of it: a ``RuntimeError``, where it was
            raised while TensorFlow made an exception of its own.
    """
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    in_main = threading.current_thread() is threading.main_thread()
    if os.name != "posix" or not handled or not in_main:
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    if before != -1:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)
        yield
        return
    came = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(reading, came, release), name="adapters-interrupts", daemon=True
    )
    watcher.start()
    try:
        yield
    except RuntimeError:
        if came.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.set_wakeup_fd(-1)
        os.close(writing)  # The watcher reads to the end.
        watcher.join()
        os.close(reading)


def _watch(reading: int, came: threading.Event, release: Callable[[], None]) -> None:
    while received := os.read(reading, 512):
        # A callback may have begun to handle it itself since.
        handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if signal.SIGINT in received and handled:
            came.set()
            release()
