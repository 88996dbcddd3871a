"""Leaves the interpreter right after ``fit``, with workers under way and nothing closed.

Does so in forks of itself, as many as it is told to, which spares TensorFlow's import; prints their
exit codes.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import keras

from adapters import SafeSequence
from tests.keras.recording import INLINE, PROCESSES, TWO_THREADS, AfterBatch
from tests.keras.samples import numbered

# Takes 10 s on two idle cores, and 40 s beside six busy processes.
_FORK_SECONDS = 100


def slow(sample: Any) -> Any:
    """So slow that batches are under way when the trainer stops."""
    time.sleep(0.01)
    return sample


def slower(sample: Any) -> Any:
    """So slow that the next batch is being made when the interpreter exits."""
    time.sleep(0.1)
    return sample


def stop(model: keras.Model, batches: int) -> None:
    model.stop_training = batches == 5


def fork(count: int) -> bool:
    """Whether this is one of so many forks; the other one waits and prints how they ended."""
    forks = []
    for _ in range(count):
        forks.append(os.fork())
        if not forks[-1]:
            signal.alarm(_FORK_SECONDS)  # Ends a fork that hangs.
            return True
    print(*(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in forks))
    return False


if __name__ == "__main__":
    workers = {"processes": PROCESSES, "threads": TWO_THREADS, "inline": INLINE}[sys.argv[1]]
    # Nothing of the backend has run so far, and no thread been started.
    if fork(int(sys.argv[2])):
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
        made = slower if workers is INLINE else slow
        sequence = SafeSequence(numbered(400), 4, transform=made, **workers)
        model.fit(sequence, callbacks=[AfterBatch(stop)], verbose=0)
