"""One row of the comparison over CPU cores: DCGAN on digits, or ResNet-20 on CIFAR-10, in Keras.

The arrays are in memory, scaled to float32 before the clock starts. ResNet-20 is the one of the
paper on CIFAR-10: three stages of three blocks of two 3x3 convolutions, 16, 32 and 64 filters.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import layers

from benchmarks.data.digits import load_digits
from benchmarks.harness.cpu_seconds import tree_cpu_seconds
from benchmarks.harness.keras_training import (
    TimedModel,
    describe_device,
    describe_software,
    use_native_layout,
)
from benchmarks.harness.rounds import rounds_of
from benchmarks.harness.row import Measurement
from benchmarks.lab.experiments.cifar import load_cifar
from benchmarks.lab.experiments.dcgan import make_dcgan

DCGAN, RESNET = "DCGAN", "ResNet-20"
BATCH_SIZES = {DCGAN: 32, RESNET: 64}
SEED = 20

# The images, and for ResNet-20 the labels.
Arrays = tuple[npt.NDArray[Any], ...]


class Slices(keras.utils.PyDataset):
    """What people write for arrays: a PyDataset that shuffles them between epochs.

    Args:
        arrays: Of equal length.
        batch_size: By which that can be divided.
        workers: Keras's threads.
    """

    def __init__(self, arrays: Arrays, batch_size: int, workers: int) -> None:
        super().__init__(workers=workers)
        self.arrays, self.batch_size = arrays, batch_size
        self.order = np.random.default_rng(SEED).permutation(len(arrays[0]))

    def __len__(self) -> int:
        return len(self.order) // self.batch_size

    def __getitem__(self, index: int) -> Arrays:
        chosen = self.order[index * self.batch_size : (index + 1) * self.batch_size]
        return tuple(array[chosen] for array in self.arrays)

    def on_epoch_end(self) -> None:
        """Shuffle for the next epoch."""
        self.order = np.random.default_rng(SEED).permutation(self.order)


class EpochEnd(keras.callbacks.Callback):
    """Notes when the last step was computed.

    `fit` itself can return seconds later: TensorFlow's thread that tunes a tf.data pipeline looks
    5, 10, 20 ... seconds after its start, and the pipeline isn't taken down before, now and then.
    """

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Take the loss as a number: a step that was only dispatched must have been computed."""
        self.loss = float(logs["loss"])
        self.moment, self.cpu_seconds = time.monotonic(), tree_cpu_seconds()


# What `fit` takes as x, and as y, of arrays, the batch size and the number of cores.
Contestant = Callable[[Arrays, int, int], tuple[Any, Any]]


def as_arrays(arrays: Arrays, batch_size: int, cores: int) -> tuple[Any, Any]:
    """Keras's own, in the thread that trains, or as the backend does it."""
    return arrays[0], arrays[1] if len(arrays) > 1 else None


def as_dataset(arrays: Arrays, batch_size: int, cores: int) -> tuple[Any, Any]:
    """A PyDataset, with a worker for each core."""
    return Slices(arrays, batch_size, cores), None


def as_safe_sequence(arrays: Arrays, batch_size: int, cores: int) -> tuple[Any, Any]:
    """The package's own; it chooses its workers."""
    from adapters import SafeSequence

    source = arrays if len(arrays) > 1 else arrays[0]
    return SafeSequence(source, batch_size, shuffle=True, seed=SEED), None


CONTESTANTS: dict[str, Contestant] = {
    "SafeSequence auto": as_safe_sequence,
    "PyDataset": as_dataset,
    "arrays": as_arrays,
}
OURS = "SafeSequence auto"


def load_arrays(network: str, path: Path, count: int, layout: str) -> Arrays:
    """The first `count` samples, float32: digits from -1 to 1; pictures from 0 to 1, and labels."""
    if network == DCGAN:
        digits = load_digits(path, "train", count)[0].astype(np.float32) / 127.5 - 1
        return (digits[:, np.newaxis] if layout == "NCHW" else digits[..., np.newaxis],)
    images, labels = load_cifar(path, count)
    if layout == "NCHW":
        images = images.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(images, np.float32) / 255, labels


def make_resnet(layout: str) -> TimedModel:
    """ResNet-20, compiled."""
    channels = 1 if layout == "NCHW" else -1
    inputs = keras.Input((3, 32, 32) if layout == "NCHW" else (32, 32, 3))

    def convolve(tensor: Any, filters: int, kernel: int, strides: int) -> Any:
        convolution = layers.Conv2D(filters, kernel, strides, padding="same", use_bias=False)
        return layers.BatchNormalization(axis=channels)(convolution(tensor))

    hidden = layers.ReLU()(convolve(inputs, 16, 3, 1))
    for filters in (16, 32, 64):
        for block in range(3):
            strides = 2 if filters > 16 and block == 0 else 1
            inner = layers.ReLU()(convolve(hidden, filters, 3, strides))
            inner = convolve(inner, filters, 3, 1)
            if strides == 2:
                hidden = convolve(hidden, filters, 1, strides)
            hidden = layers.ReLU()(layers.Add()([hidden, inner]))
    outputs = layers.Dense(10)(layers.GlobalAveragePooling2D()(hidden))
    model = TimedModel(inputs, outputs)
    model.compile(
        optimizer=keras.optimizers.SGD(0.1, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def measure(options: Mapping[str, Any]) -> Measurement:
    """One row.

    Args:
        options: `network`, `loader`, `cpus`, `data` (the path of the digits or the pictures),
            `samples` (how many are trained on).
    """
    keras.utils.set_random_seed(SEED)
    layout = use_native_layout()
    network, contestant = options["network"], CONTESTANTS[options["loader"]]
    batch_size = BATCH_SIZES[network]
    # Whole batches only: another size would be compiled on the clock.
    samples = options["samples"] // batch_size * batch_size
    arrays = load_arrays(network, Path(options["data"]), samples, layout)
    samples = len(arrays[0])
    model = make_dcgan(layout, SEED) if network == DCGAN else make_resnet(layout)

    def train(chosen: Arrays) -> EpochEnd:
        end = EpochEnd()
        with ExitStack() as stack:
            x, y = contestant(chosen, batch_size, options["cpus"])
            if hasattr(x, "close"):
                stack.callback(x.close)
            size = batch_size if isinstance(x, np.ndarray) else None
            model.fit(x, y, batch_size=size, callbacks=[end], verbose=0)
        return end

    train(tuple(array[: 2 * batch_size] for array in arrays))  # compiles
    window_begin, cpu_begin = time.monotonic(), tree_cpu_seconds()
    model.clock.start()
    end = train(arrays)
    if not math.isfinite(end.loss):
        raise ArithmeticError(f"the loss must be finite after {samples} samples, got {end.loss}")
    seconds = end.moment - window_begin
    p50, p99 = np.percentile(model.clock.waits_seconds, [50, 99])
    return {
        "software": describe_software(),
        "device": describe_device(),
        "metrics": {
            "train_seconds": seconds,
            "samples_per_second": samples / seconds,
            "waited_share": sum(model.clock.waits_seconds) / seconds,
            "wait_p50_ms": 1000 * float(p50),
            "wait_p99_ms": 1000 * float(p99),
            "cpu_percent": 100 * (end.cpu_seconds - cpu_begin) / seconds,
        },
        "window": (window_begin, end.moment),
        "rounds": rounds_of(model.clock.moments, batch_size, model.clock.waits_seconds, samples),
    }
