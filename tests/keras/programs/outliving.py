"""Trains in an ordinary thread, which goes on when the main thread has come to its end."""

from __future__ import annotations

import threading
import time

import keras
import numpy as np

from adapters import SafeSequence
from tests.keras.recording import built_recorder

begun, ending = threading.Event(), threading.Event()


def slow(sample: np.ndarray) -> np.ndarray:
    """Take long enough for the main thread to end in between."""
    time.sleep(0.005)
    return sample


def train() -> None:
    """Fit, and say so."""
    data = np.arange(80, dtype=np.float32).reshape(-1, 1)
    begin = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: begun.set())
    sequence = SafeSequence((data, -data), 4, batch_transform=slow, workers=2)
    built_recorder().fit(sequence, epochs=3, callbacks=[begin], verbose=0)
    print("trained", flush=True)


threading.Thread(target=train).start()
begun.wait()
