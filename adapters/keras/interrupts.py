"""Handling of Ctrl-C while TensorFlow waits for a batch.

Python handles signals in the main thread, between two bytecode instructions. While that thread
waits in TensorFlow's C++ code for a batch, Python executes none, so a batch that never arrives
would block Ctrl-C forever. But Python writes each signal number to the wakeup descriptor at once.
A watcher thread reads it and releases the waiting readers. TensorFlow then returns, and Python
handles the signal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def released_by_interrupts(release: Callable[[], None]) -> Iterator[None]:
    """Call ``release`` from a thread when Ctrl-C is pressed.

    This applies in the main thread, on POSIX, if ``signal.default_int_handler`` handles SIGINT. If
    another wakeup descriptor or SIGINT handler is set, nothing changes.

    Args:
        release: Makes readers that wait for a batch return without one.

    Raises:
        KeyboardInterrupt: Replaces the ``RuntimeError`` that results if the interrupt arrives while
            TensorFlow creates an exception.
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
        os.close(writing)  # The watcher reads until end of file.
        watcher.join()
        os.close(reading)


def _watch(reading: int, came: threading.Event, release: Callable[[], None]) -> None:
    while received := os.read(reading, 512):
        # A callback may have set another handler since.
        handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if signal.SIGINT in received and handled:
            came.set()
            release()
