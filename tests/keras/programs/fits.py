"""Trainings in an interpreter of their own: ``python -m tests.keras.programs.fits NAME ...``."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import keras

from adapters import SafeSequence
from tests.keras.recording import INLINE, PROCESSES, TWO_THREADS, AfterBatch, built_recorder
from tests.keras.samples import numbered
from tests.keras.trainings import Losses, train

_WORKERS = {"processes": PROCESSES, "threads": TWO_THREADS, "inline": INLINE}
# A fork takes 10 s on two idle cores, and 40 s beside six busy processes.
_FORK_SECONDS = 100
_STUCK_AT = 30


def slow(sample: Any) -> Any:
    """A transform so slow that batches are under way whenever the trainer is looked at."""
    time.sleep(0.01)
    return sample


def slower(sample: Any) -> Any:
    """A transform so slow that the next batch is being made when the interpreter exits."""
    time.sleep(0.1)
    return sample


def stuck(sample: Any) -> Any:
    """A transform that waits for what never comes."""
    if int(sample[0][0]) == _STUCK_AT:
        print("ready", flush=True)
        threading.Event().wait()
    return sample


def fit(sequence: SafeSequence, **options: Any) -> None:
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    model.fit(sequence, verbose=0, **options)


def interrupted(kind: str, count: str) -> None:
    """Train for ever, so many times; live on after every Ctrl-C but the last."""

    def say(model: keras.Model, batches: int) -> None:
        if batches == 5:
            print("ready", flush=True)

    for number in range(1, int(count) + 1):
        try:
            sequence = SafeSequence(numbered(400), 4, transform=slow, **_WORKERS[kind])
            fit(sequence, epochs=10**6, callbacks=[AfterBatch(say)])
        except KeyboardInterrupt:
            if number == int(count):
                raise


def stuck_in_a_transform() -> None:
    """Train with a queue of one batch, so that the trainer soon waits for the one that is stuck."""
    sequence = SafeSequence(numbered(400), 4, transform=stuck, max_queue_size=1, **TWO_THREADS)
    try:
        fit(sequence, shuffle=False)
    except KeyboardInterrupt:
        print("interrupted", flush=True)


def leaving(kind: str, count: str) -> None:
    """Leave so many forks right after ``fit``, with workers under way; print their exit codes."""
    forks = []
    # Nothing of the backend has run so far, and no thread been started.
    for _ in range(int(count)):
        forks.append(os.fork())
        if not forks[-1]:
            signal.alarm(_FORK_SECONDS)  # Ends a fork that hangs.
            made = slower if kind == "inline" else slow
            sequence = SafeSequence(numbered(400), 4, transform=made, **_WORKERS[kind])
            fit(sequence, callbacks=[AfterBatch(_stop_at_5)])
            return
    print(*(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in forks))


def _stop_at_5(model: keras.Model, batches: int) -> None:
    model.stop_training = batches == 5


def outliving() -> None:
    """Train in a thread, which goes on when the main thread has come to its end."""
    begun = threading.Event()

    def run() -> None:
        begin = AfterBatch(lambda model, batches: begun.set())
        sequence = SafeSequence(numbered(80), 4, transform=slow, workers=2)
        built_recorder().fit(sequence, epochs=3, callbacks=[begin], verbose=0)
        print("trained", flush=True)

    threading.Thread(target=run).start()
    begun.wait()


class _Slow(Losses):
    """Takes its time, so that there are moments to be killed at, ``seconds`` after two batches."""

    def __init__(self, path: Path, seconds: float | None) -> None:
        super().__init__(path=path)
        self.seconds = seconds

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        # What comes before the second one is to a large part compiling.
        if self.seconds is not None and self.counts["train"] == 1:
            kill = threading.Timer(self.seconds, os.kill, (os.getpid(), signal.SIGKILL))
            kill.daemon = True
            kill.start()
        self.counts["train"] += 1
        time.sleep(0.02)


def killed(folder: str, losses: str, workers: str, seconds: str) -> None:
    """Train with ``Resume``, and be killed after so many seconds, or "never"."""
    slowly = _Slow(Path(losses), None if seconds == "never" else float(seconds))
    train(Path(folder), slowly, workers=int(workers))


if __name__ == "__main__":
    # A shell's background processes are started with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    globals()[sys.argv[1]](*sys.argv[2:])
