"""Ratios of ``SafeSequence`` to its peers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.harness.backends import CPU
from benchmarks.harness.installed import Peer
from benchmarks.harness.ratios import BATCH, DIGITS, Contestant, Ratio, endless, measure_ratio, pace
from benchmarks.harness.row import Measurement


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one ratio, in a process of its own."""
    ratio = TABLE[options["loader"]]
    measured = measure_ratio(ratio, options)
    if ratio.backend is not None:
        from benchmarks.harness.keras_training import describe_device

        device = describe_device()
        if device != CPU:
            measured["device"] = device
    return measured


def ours_of(
    counted: int, amount: Callable[[Any], float], source: Any, skipped: int = 14, **arguments: Any
) -> Contestant:
    """`SafeSequence`, made anew in each round."""
    from adapters import SafeSequence
    from adapters.diagnosis.front_end import settled_of

    def contestant() -> float:
        with SafeSequence(source, BATCH, **arguments, thread_safe=True) as sequence:
            # Batches don't wait for processes that start.
            return pace(endless(sequence), skipped, counted, amount, settled_of(sequence))

    return contestant


def samples_of(batch: Any) -> float:
    """How many a batch has."""
    return float(len(batch[0] if isinstance(batch, tuple) else batch))


def _bytes(batch: Any) -> float:
    return float(batch[0].nbytes) / 1e9


# --- moving batches between processes ---


def _photographs() -> Mapping[str, Contestant]:
    import keras
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    class Photographs(keras.utils.PyDataset):  # type: ignore[misc]
        """Batches that cost nothing but their way."""

        batch = np.zeros((BATCH, 224, 224, 3), np.uint8)

        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: int) -> tuple[Any]:
            return (self.batch,)

    def plain(workers: int) -> Contestant:
        def contestant() -> float:
            adapter = PyDatasetAdapter(Photographs(workers=workers, use_multiprocessing=True))
            adapter.on_epoch_begin()
            try:
                return pace(adapter._get_iterator(), 14, 16, _bytes)
            finally:
                adapter.on_epoch_end()

        return contestant

    return {
        "SafeSequence, 2 processes": ours_of(
            200, _bytes, Photographs(), workers=2, use_multiprocessing=True
        ),
        "PyDataset, 1 process": plain(1),
        "PyDataset, 2 processes": plain(2),
    }


# --- arrays ---


def scale(batch: tuple[Any, Any]) -> tuple[Any, Any]:
    """What both do to a batch."""
    return batch[0].astype(np.float32) / 255, batch[1]


def _arrays() -> Mapping[str, Contestant]:
    import tensorflow as tf

    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (DIGITS, 28, 28), dtype=np.uint8)
    y = rng.integers(0, 10, DIGITS)
    counted = 4 * DIGITS // BATCH

    def peer(parallel: int | None) -> Contestant:
        def scaled(images: Any, labels: Any) -> tuple[Any, Any]:
            return tf.cast(images, tf.float32) / 255.0, labels

        data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(DIGITS).repeat().batch(BATCH)
        data = data.map(scaled, num_parallel_calls=parallel).prefetch(tf.data.AUTOTUNE)
        return lambda: pace(iter(data), 14, counted, lambda batch: float(batch[0].shape[0]))

    own = ours_of(8 * counted, samples_of, (x, y), shuffle=True, batch_transform=scale)
    return {
        "SafeSequence, auto": own,
        "tf.data": peer(None),
        "tf.data, parallel map": peer(tf.data.AUTOTUNE),
    }


# --- fit ---


def _fit(same: bool) -> Mapping[str, Contestant]:
    import keras

    from adapters import SafeSequence

    # A round shall take most of a second, so that a moment's noise doesn't make it the best.
    steps = 1500 if keras.backend.backend() == "jax" else 200
    samples = steps * BATCH
    x, y = np.zeros((samples, 8), np.float32), np.zeros((samples, 1), np.float32)
    order = np.random.default_rng(0).permutation(samples)
    kept = x[:BATCH].copy(), y[:BATCH].copy()

    class Free(keras.utils.PyDataset):  # type: ignore[misc]
        """Batches that cost next to nothing: rows of two arrays, or always the same batch."""

        thread_safe = True

        def __len__(self) -> int:
            return steps

        def __getitem__(self, index: int) -> Any:
            if same:
                return kept
            rows = order[index * BATCH : (index + 1) * BATCH]
            return x[rows], y[rows]

    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(Free(), verbose=0)

    def fit(make: Callable[[], Any], epochs: int = 4) -> Contestant:
        def contestant() -> float:
            data = make()
            started = time.perf_counter()
            model.fit(data, epochs=epochs, verbose=0)
            seconds = time.perf_counter() - started
            if isinstance(data, SafeSequence):
                data.close()
            return epochs * steps / seconds

        return contestant

    return {
        "SafeSequence, auto": fit(lambda: SafeSequence(Free())),
        "PyDataset": fit(Free),
        "PyDataset, 2 threads": fit(lambda: Free(workers=2), epochs=1),
    }


def _fit_new() -> Mapping[str, Contestant]:
    """New arrays for each batch, as data sets give that read or compute something."""
    return _fit(same=False)


def _fit_same() -> Mapping[str, Contestant]:
    """The same arrays for each batch."""
    return _fit(same=True)


KERAS = Peer("Keras", "keras", "keras")
TENSORFLOW = Peer("Keras", "tensorflow", "tensorflow")
TORCH = Peer("Keras", "torch", "torch")
TABLE: Mapping[str, Ratio] = {
    "batches through processes": Ratio(KERAS, "GB/s", _photographs, 3, default=True),
    "arrays, shuffled and scaled": Ratio(TENSORFLOW, "samples/s", _arrays, 3, default=True),
    "fit for nothing, new arrays, jax": Ratio(KERAS, "batches/s", _fit_new, 9, "jax"),
    # Parity is out of reach: a batch that is kept never changes, so SafeSequence copies arrays that
    # it is handed again, and Keras doesn't. That shows next to a step of JAX, which takes 0.1 ms,
    # and not next to one of the others, which takes 1 ms.
    "fit for nothing, the same arrays, jax": Ratio(KERAS, "batches/s", _fit_same, 9, "jax"),
    "fit for nothing, the same arrays, tensorflow": Ratio(
        TENSORFLOW, "batches/s", _fit_same, 5, "tensorflow"
    ),
    "fit for nothing, the same arrays, torch": Ratio(TORCH, "batches/s", _fit_same, 5, "torch"),
}
