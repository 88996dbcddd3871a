"""One row of start-up: what a short program waits for, from its first call to its third.

Sweeps measure loaders that run; this measures programs that are over before a pool of processes
pays: a few batches, folds with a loader each, calls of `fit` one after the other. Each row is one
program in a fresh process, whose imports and data are there before the clock starts. Everything
else is on the clock: threads and processes that start, a trial of workers, a model that compiles.
Where imports are the question, each call is a process of its own, and all of it is on the clock.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.harness.row import Measurement

CALLS = ("first", "second", "third")
BATCHES, BATCH_SIZE, BATCH_SECONDS = 7, 32, 0.005
READS, READ_SECONDS, READERS = 40, 0.1, 4
DIGITS, FOLD_BATCH = 2_000, 64

# Does the program once more.
Call = Callable[[], Any]


def _small_batches(**options: Any) -> Any:
    """A `PyDataset` that says nothing of threads, as people write it: 5 ms of Python a batch."""
    import keras

    class Batches(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return BATCHES

        def __getitem__(self, index: int) -> Any:
            ends = time.thread_time() + BATCH_SECONDS
            while time.thread_time() < ends:
                pass
            features = np.full((BATCH_SIZE, 8), index, np.float32)
            return features, features[:, :1]

    return Batches(**options)


def _reads(**options: Any) -> Any:
    """A `PyDataset` that waits for its storage and does nothing else, with workers of its own."""
    import keras

    class Reads(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return READS

        def __getitem__(self, index: int) -> Any:
            time.sleep(READ_SECONDS)
            features = np.full((BATCH_SIZE, 8), index, np.float32)
            return features, features[:, :1]

    return Reads(**options)


def _model() -> Any:
    import keras

    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    return model


def _small_fit(ours: bool) -> Call:
    """Three epochs of seven batches, each validated: a newcomer's first program."""
    from adapters import SafeSequence

    wrap = SafeSequence if ours else lambda batches: batches
    model, training, validation = _model(), wrap(_small_batches()), wrap(_small_batches())
    return lambda: model.fit(training, validation_data=validation, epochs=3, verbose=0)


def _fit_with_processes(ours: bool) -> Call:
    """The same without validation, with two processes, because somebody asked for them."""
    from adapters import SafeSequence

    options: dict[str, Any] = {"workers": 2, "use_multiprocessing": True}
    data = SafeSequence(_small_batches(), **options) if ours else _small_batches(**options)
    model = _model()
    return lambda: model.fit(data, epochs=3, verbose=0)


def _fit_that_reads(declared: bool) -> Callable[[bool], Call]:
    """One epoch of what only waits, with the four threads that its author gave it.

    Args:
        declared: Ours is told that several threads may read at once, as the author knows. Without
            that it starts processes, which takes half as long as this whole epoch.
    """

    def program(ours: bool) -> Call:
        from adapters import SafeSequence

        data = _reads(workers=READERS)
        wrapped = SafeSequence(data, thread_safe=declared or None) if ours else data
        model = _model()
        return lambda: model.fit(wrapped, verbose=0)

    return program


def _loader_for_each_fold(ours: bool) -> Call:
    """A new loader with two workers, read once and dropped."""
    from adapters.gluon import gluon_loader, import_mxnet

    mx = import_mxnet()
    pixels = np.random.default_rng(0).integers(0, 256, (DIGITS, 28, 28, 1), np.uint8)
    data = mx.gluon.data.ArrayDataset(mx.nd.array(pixels, dtype="uint8"), np.arange(DIGITS))
    digits = data.transform_first(lambda image: image.astype("float32") / 255)
    loader = gluon_loader if ours else mx.gluon.data.DataLoader

    def fold() -> None:
        for _ in loader(digits, FOLD_BATCH, shuffle=True, num_workers=2):
            pass

    return fold


# Programs that train with Keras up to their first batch, by who gives it.
_FIRST_BATCH = {
    "SafeSequence": """
from adapters import SafeSequence
x, y = next(iter(SafeSequence((images, labels), 32, shuffle=True)))
""",
    "PyDataset": """
class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        rows = slice(32 * index, 32 * index + 32)
        return images[rows], labels[rows]

x, y = Batches()[0]
""",
    "tf.data": """
import tensorflow as tf
data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(512).batch(32).prefetch(2)
x, y = next(iter(data))
""",
}
_FIRST_BATCH_DATA = """
import keras, numpy as np
images, labels = np.zeros((512, 28, 28, 1), "uint8"), np.arange(512)
"""


def _to_first_batch(stock: str) -> Callable[[bool], Call]:
    """A process from its start to its first batch of images, by ours or by another loader."""

    def program(ours: bool) -> Call:
        text = _FIRST_BATCH_DATA + _FIRST_BATCH["SafeSequence" if ours else stock]
        command = [sys.executable, "-c", text + "assert x.shape == (32, 28, 28, 1)"]
        return lambda: subprocess.run(command, check=True, stderr=subprocess.DEVNULL)

    return program


PROGRAMS: dict[str, Callable[[bool], Call]] = {
    "small fit": _small_fit,
    "fit with 2 processes": _fit_with_processes,
    "fit that reads": _fit_that_reads(declared=True),
    "fit that reads, undeclared": _fit_that_reads(declared=False),
    "loader for each fold": _loader_for_each_fold,
    "import to first batch": _to_first_batch("PyDataset"),
    "import to first batch of tf.data": _to_first_batch("tf.data"),
}


def measure(options: Mapping[str, Any]) -> Measurement:
    """One row.

    Args:
        options: `case`, of `PROGRAMS`; `backend`, Keras's, or "mxnet"; whether it is `ours`; and
            how many `calls` there are.
    """
    if options["backend"] == "mxnet":
        from adapters.gluon import import_mxnet

        software, device = f"MXNet {import_mxnet().__version__}", "the CPU"
    else:
        os.environ["KERAS_BACKEND"] = options["backend"]
        from benchmarks.harness.keras_training import describe_device, describe_software

        software, device = describe_software(), describe_device()
    call = PROGRAMS[options["case"]](options["ours"])
    began = time.monotonic()
    metrics = {}
    for name in CALLS[: options["calls"]]:
        started = time.perf_counter()
        call()
        metrics[name] = time.perf_counter() - started
    return {
        "software": software,
        "device": device,
        "metrics": metrics,
        "window": (began, time.monotonic()),
    }
