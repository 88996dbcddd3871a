"""Trains on a transform that never returns; says when it is in it, and when that has ended."""

from __future__ import annotations

import signal
import threading
from typing import Any

import keras

from adapters import SafeSequence
from tests.keras.recording import TWO_THREADS
from tests.keras.samples import numbered

STUCK_AT = 30


def stuck(sample: Any) -> Any:
    """Waits for what never comes."""
    if int(sample[0][0]) == STUCK_AT:
        print("ready", flush=True)
        threading.Event().wait()
    return sample


if __name__ == "__main__":
    # Whoever is started in the background of a shell is told to ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    # A queue of one batch: the trainer soon waits for the one that is stuck.
    sequence = SafeSequence(numbered(400), 4, transform=stuck, max_queue_size=1, **TWO_THREADS)
    try:
        model.fit(sequence, shuffle=False, verbose=0)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
