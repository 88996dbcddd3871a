"""Release of readers that TensorFlow waits for: on Ctrl-C, and when the interpreter exits.

Python handles signals in the main thread, between two bytecode instructions. While that thread
waits in TensorFlow's C++ code for a batch, Python executes none. But Python writes each signal
number to the wakeup descriptor at once. A watcher thread reads it and releases the waiting readers.
TensorFlow then returns, and Python handles the signal.

At exit, TensorFlow destroys its iterators, and waits for batches that these wait for. So the
workers of all sequences are shut down before the interpreter stops their threads.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

from adapters.engine import close_engines
from adapters.keras.progress import running

# How long the exit waits for a batch that is being computed.
_PATIENCE_SECONDS = 10.0
# No signal has this number.
_END = 0
_wakeup = -1
"""Our wakeup descriptor; -1 if none is set."""


@contextlib.contextmanager
def released_by_interrupts(release: Callable[[], None]) -> Iterator[None]:
    """Call ``release`` from a thread when Ctrl-C is pressed, in the main thread on POSIX.

    It makes readers that wait for a batch return without one. If another wakeup descriptor or
    SIGINT handler is set, nothing changes.
    """
    global _wakeup
    in_main = threading.current_thread() is threading.main_thread()
    if os.name != "posix" or not in_main or not _python_handles_interrupts():
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
    _wakeup = writing
    came = threading.Event()

    def watch() -> None:
        while _END not in (received := os.read(reading, 512)):
            # A callback may have set another handler since.
            if signal.SIGINT in received and _python_handles_interrupts():
                came.set()
                release()

    watcher = threading.Thread(target=watch, name="adapters-interrupts", daemon=True)
    watcher.start()
    try:
        yield
    except RuntimeError:
        # The interrupt may have arrived while TensorFlow created an exception.
        if came.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        if _wakeup == writing:  # Else this is a forked process, which has no watcher.
            signal.set_wakeup_fd(-1)
            _wakeup = -1
            os.set_blocking(writing, True)
            os.write(writing, bytes([_END]))  # A forked process may hold the pipe open.
            watcher.join()
        os.close(writing)
        os.close(reading)


def _python_handles_interrupts() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _leave_to_parent() -> None:
    """Stop reporting the signals of a forked process to its parent's watcher."""
    global _wakeup
    if _wakeup != -1:
        signal.set_wakeup_fd(-1)
        _wakeup = -1


os.register_at_fork(after_in_child=_leave_to_parent)


def _close_all() -> None:
    for call in list(running):
        if not call.thread.daemon and call.thread is not threading.main_thread():
            call.ended.wait()  # Python waits for the thread.
    close_engines(_PATIENCE_SECONDS)


# Must run before the executors of concurrent.futures shut down; atexit runs too late.
getattr(threading, "_register_atexit", atexit.register)(_close_all)
