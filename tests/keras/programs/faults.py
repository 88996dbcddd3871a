"""Does what goes wrong with ``PyDataset`` and ``workers > 1``, and prints how it went: JSON lines.

``faults plain|safe SECONDS ROW...``: with the data set as it is, or inside a ``SafeSequence``. A
row that takes longer is said to hang; the ones after it are done by a new interpreter.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import psutil

from adapters import SafeSequence
from tests.keras.py_datasets import Gaps, Numbered
from tests.keras.recording import AfterBatch, Recorder, built_recorder, echo
from tests.leftovers import command_line

THREADS, PROCESSES = 4, 2
SAFE = False


def sequence_of(source: Numbered, processes: bool = False) -> Any:
    """The sequence that is looked at, with workers."""
    workers = PROCESSES if processes else THREADS
    if SAFE:
        return SafeSequence(source, workers=workers, use_multiprocessing=processes)
    source.workers, source.use_multiprocessing = workers, processes
    return source


def first_numbers(batches: list[list[int]]) -> list[int]:
    """Which batches those are."""
    return [batch[0] // 4 for batch in batches]


def children() -> list[psutil.Process]:
    """Worker processes."""
    return [c for c in psutil.Process().children() if "tracker" not in command_line(c)]


# --- batches that are lost, repeated, or of another epoch ---


def fresh_fit() -> Any:
    """(missing, repeated) batches of two epochs of a first ``fit``."""
    recorder = Recorder()
    recorder.fit(sequence_of(Numbered(40)), epochs=2, shuffle=False, verbose=0)
    found = first_numbers(recorder.trained)
    epochs = found[:40], found[40:]
    return [[40 - len(set(epoch)), len(epoch) - len(set(epoch))] for epoch in epochs]


def fresh_evaluate() -> Any:
    """Batches that a first ``evaluate`` doesn't see."""
    recorder = Recorder()
    recorder.evaluate(sequence_of(Numbered(40)), verbose=0)
    return sorted(set(range(40)) - set(first_numbers(recorder.tested)))


def predict_unbuilt() -> Any:
    """Order of what an unbuilt model predicts."""
    predicted = echo().predict(sequence_of(Numbered(20)), verbose=0)
    return [int(number) // 4 for number in predicted[::4, 0]]


def validation_steps() -> Any:
    """Batches of three validations of four steps."""
    recorder, validation = built_recorder(), sequence_of(Numbered(10))
    recorder.fit(Numbered(2), epochs=3, validation_data=validation, validation_steps=4, verbose=0)
    return first_numbers(recorder.tested)


def few_steps_per_epoch() -> Any:
    """Batches of four epochs of 3 out of 10 batches."""
    return _batches_per_epoch(steps=3, epochs=4)


def many_steps_per_epoch() -> Any:
    """Batches of two epochs of 15 out of 10 batches."""
    return _batches_per_epoch(steps=15, epochs=2)


def _batches_per_epoch(steps: int, epochs: int) -> list[int]:
    recorder, ends = built_recorder(), [0]
    note_end = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: ends.append(len(recorder.trained))
    )
    recorder.fit(
        sequence_of(Numbered(10)),
        epochs=epochs,
        steps_per_epoch=steps,
        callbacks=[note_end],
        verbose=0,
    )
    return np.diff(ends).tolist()


class Stamped(Numbered):
    """Its labels say how often ``on_epoch_begin`` has come to its end; it takes a while."""

    def __init__(self, batches: int) -> None:
        super().__init__(batches)
        self.begun = 0
        self._asked = threading.Event()

    def __getitem__(self, index: int) -> Any:
        stamp = self.begun
        self._asked.set()
        features, labels = super().__getitem__(index)
        return features, np.full_like(labels, stamp)

    def on_epoch_begin(self) -> None:
        self._asked.clear()
        self._asked.wait(0.3)
        self.begun += 1


def batches_before_on_epoch_begin() -> Any:
    """How many of 20 batches were computed before ``on_epoch_begin`` of their epoch was over."""
    recorder = built_recorder()
    recorder.fit(sequence_of(Stamped(10)), epochs=2, shuffle=False, verbose=0)
    stamps = [int(labels[0, 0]) for _, labels in recorder.lists.trained]
    return sum(stamp != first for stamp, first in zip(stamps, [1] * 10 + [2] * 10))


# --- errors and ends ---


class Broken(Numbered):
    """Can't give one batch."""

    def __getitem__(self, index: int) -> Any:
        if index == 7:
            raise LookupError("there is no batch 7")
        return super().__getitem__(index)


def exception_type() -> Any:
    """As what a ``LookupError`` arrives."""
    try:
        built_recorder().fit(sequence_of(Broken(10)), shuffle=False, verbose=0)
    except Exception as error:
        return type(error).__name__
    return "no error"


def none_for_a_batch() -> Any:
    """What becomes of ``None`` from ``__getitem__``."""
    try:
        built_recorder().fit(sequence_of(Gaps(10, missing=7)), shuffle=False, verbose=0)
    except Exception as error:
        return type(error).__name__
    return "no error"


class Slow(Numbered):
    """Its batches take so long that a worker is at one at any moment."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.05)
        return super().__getitem__(index)


def killed_worker() -> Any:
    """Batches of an epoch in which a worker process is killed."""

    def kill(model: Any, batches: int) -> None:
        if batches == 5:
            os.kill(children()[0].pid, signal.SIGKILL)

    recorder, sequence = built_recorder(), sequence_of(Slow(40), processes=True)
    recorder.fit(sequence, shuffle=False, callbacks=[AfterBatch(kill)], verbose=0)
    return len(recorder.trained)


def ctrl_c() -> Any:
    """What becomes of ``fit`` when the process group gets a SIGINT."""

    def say(model: Any, batches: int) -> None:
        if batches == 5:
            print("ready", flush=True)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    sequence = sequence_of(Slow(1000), processes=True)
    try:
        built_recorder().fit(sequence, epochs=100, callbacks=[AfterBatch(say)], verbose=0)
    except KeyboardInterrupt:
        return "KeyboardInterrupt"
    return "no interrupt"


def survivors() -> Any:
    """Threads left by (stop_training, a callback's error, a worker's error)."""
    left = []
    for source, action in (
        (Numbered(40), lambda model: setattr(model, "stop_training", True)),
        (Numbered(40), lambda model: [].pop()),
        (Broken(40), lambda model: None),
    ):
        before = set(threading.enumerate())
        _fit_in_vain(sequence_of(source), action)
        gc.collect()
        # Those of the rows before may still be ending.
        left.append(len(set(threading.enumerate()) - before))
    return left


def _fit_in_vain(sequence: Any, action: Callable[[Any], Any]) -> None:
    act = AfterBatch(lambda model, batches: batches == 3 and action(model))
    with contextlib.suppress(Exception):
        built_recorder().fit(sequence, epochs=2, shuffle=False, callbacks=[act], verbose=0)


# --- random numbers ---


class Draws(Numbered):
    """Its features are drawn from NumPy's global generator."""

    def __getitem__(self, index: int) -> Any:
        features, labels = super().__getitem__(index)
        time.sleep(0.01)
        return np.full_like(features, np.random.randint(10**6)), labels


def draws_of_processes() -> Any:
    """Different draws in 20 batches."""
    recorder = built_recorder()
    recorder.fit(sequence_of(Draws(20), processes=True), shuffle=False, verbose=0)
    return len({batch[0] for batch in recorder.trained})


def image_data_generator() -> Any:
    """Whether two runs over randomly rotated images give the same pixels."""
    from keras.src.legacy.preprocessing.image import ImageDataGenerator

    pixels = []
    for _ in range(2):
        images = np.random.default_rng(0).random((64, 8, 8, 1), np.float32)
        flow = ImageDataGenerator(rotation_range=90).flow(images, batch_size=2, seed=1)
        predicted = echo().predict(sequence_of(flow), verbose=0)
        pixels.append(np.sort(predicted.ravel()))
    return bool((pixels[0] == pixels[1]).all())


def order_at_the_defaults_of_fit() -> Any:
    """Whether two runs deliver batches in one order, and whether they leave ``random`` alone."""
    orders, untouched = [], True
    for _ in range(2):
        recorder, before = built_recorder(), random.getstate()
        recorder.fit(sequence_of(Numbered(20)), verbose=0)
        untouched &= random.getstate() == before
        orders.append(first_numbers(recorder.trained))
    return [orders[0] == orders[1], untouched]


def fork_warnings() -> Any:
    """Warnings of JAX about processes that are forked."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        built_recorder().fit(sequence_of(Numbered(10), processes=True), verbose=0)
    return sum("os.fork()" in str(warning.message) for warning in caught)


def _say(row: str, outcome: Any) -> None:
    print(json.dumps([row, outcome]), flush=True)


def _hangs(row: str, later: list[str]) -> None:
    _say(row, "hangs")
    for child in psutil.Process().children(recursive=True):
        child.kill()
    if not later:
        os._exit(0)
    os.environ["KERAS_BACKEND"] = keras.backend.backend()
    os.execv(sys.executable, [sys.executable, "-m", __spec__.name, *sys.argv[1:3], *later])


if __name__ == "__main__":
    SAFE, seconds, rows = sys.argv[1] == "safe", float(sys.argv[2]), sys.argv[3:]
    warnings.simplefilter("ignore")
    # What workers import of Keras needs no framework.
    os.environ["KERAS_BACKEND"] = "numpy"
    for number, row in enumerate(rows, 1):
        watch = threading.Timer(seconds, _hangs, [row, rows[number:]])
        watch.start()
        _say(row, globals()[row]())
        watch.cancel()
    # Threads that were left behind would keep the interpreter.
    os._exit(0)
