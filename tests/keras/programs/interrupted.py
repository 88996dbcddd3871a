"""Trains for ever, as often as it is told to, and says when it is at it.

Lives on after every Ctrl-C but the last.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

import keras

from adapters import SafeSequence
from tests.keras.recording import PROCESSES, TWO_THREADS, AfterBatch
from tests.keras.samples import numbered


def slow(sample: Any) -> Any:
    """So slow that the trainer waits for its workers nearly always."""
    time.sleep(0.01)
    return sample


def say(model: keras.Model, batches: int) -> None:
    if batches == 5:
        print("ready", flush=True)


def train(workers: Any) -> None:
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    sequence = SafeSequence(numbered(400), 4, transform=slow, **workers)
    model.fit(sequence, epochs=10**6, callbacks=[AfterBatch(say)], verbose=0)


if __name__ == "__main__":
    # Whoever is started in the background of a shell is told to ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kind, count = sys.argv[1:]
    for number in range(1, int(count) + 1):
        try:
            train(PROCESSES if kind == "processes" else TWO_THREADS)
        except KeyboardInterrupt:
            if number == int(count):
                raise
