"""One row of the Caltech-256 experiment: pictures of 224x224 for ResNet-50, original or packed.

Whatever they lie in, the network gets the same of them: of each picture, in random order, a random
box (area 0.08 to 1, width / height 3/4 to 4/3), resized to 224x224, every other one turned left to
right, uint8. *naive* reads and decodes the original file with OpenCV, *packed* what was resized to
256 pixels beforehand.

On a GPU, Keras trains ResNet-50. Without one, a paced consumer asks for batches as a V100, an A100
or H100s would, as fast as they were published to train it.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data.caltech_pictures import files_in
from benchmarks.harness.cpu_seconds import tree_cpu_seconds
from benchmarks.harness.gpu_utilisation import GpuUtilisation
from benchmarks.harness.paced_consumer import consume
from benchmarks.harness.ratios import endless
from benchmarks.harness.rounds import PARTS, rounds_of
from benchmarks.harness.row import Measurement
from benchmarks.peers.pictures import SIDE, with_opencv

EPOCH = 30_600  # images, as published
CLASSES = 257
NAIVE_KERAS = "naive PyDataset"
NAIVE = "naive SafeSequence"
PACKED = "packed SafeSequence"
# Batches before the clock starts: workers start, and "auto" takes up to a dozen to choose.
SKIPPED = {False: 2, True: 14}


@dataclass(frozen=True)
class Demand:
    """How fast a network takes images, as an accelerator was published to; or how a GPU trains it.

    Args:
        paced: What the table calls the paced consumer.
        trained: What it calls the training on a GPU.
        batch_size: Images.
        step_seconds: Of the paced consumer.
        policy: Of the training: Keras's name of the precision.
        source: Where the rate was published.
    """

    paced: str
    trained: str
    batch_size: int
    step_seconds: float
    policy: str
    source: str = ""


# Published: some 300 images/s while the GPU was busy for 95 % of the time, so 316 where it never
# waits; and 1,457 in mixed precision, 128 in 88 ms.
SINGLE = Demand("V100 at 316/s", "ResNet-50 in float32", 32, 32 / 316, "float32")
MIXED = Demand("V100 at 1,457/s", "ResNet-50 in mixed precision", 128, 128 / 1457, "mixed_float16")
# What ResNet-50 v1.5 trains at in mixed precision on a newer one.
H100 = Demand(
    "H100 at 2,791/s",
    "",
    128,
    128 / 2791,
    "",
    "Lambda, deeplearning-benchmark, pytorch-train-throughput-fp16.csv: one H100 80GB SXM5, 2,791 "
    "images/s",
)
DEMANDS = {"single": SINGLE, "mixed": MIXED, "h100": H100}
# A GPU trains at its own pace, in these precisions.
TRAINED = ("single", "mixed")


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one row.

    Args:
        options: `loader`, `workers`, `demand` (a key of `DEMANDS`), `folder` and `packed` (as in
            `Pictures`), `batches` and `seconds` (the most of both), `trained` (on a GPU).
    """
    if options["trained"]:
        return _train(options)
    # No network runs; of the backends, this one is imported fastest.
    os.environ["KERAS_BACKEND"] = "jax"
    return _pace(options)


def decode_file(sample: tuple[str, int], rng: np.random.Generator) -> tuple[Any, int]:
    """The naive transform of `SafeSequence`: a file to uint8 (224, 224, 3), and its label."""
    path, label = sample
    return with_opencv(Path(path).read_bytes(), rng.uniform), label


def make_loader(options: Mapping[str, Any]) -> Any:
    """The row's loader: a PyDataset, which SafeSequence is too."""
    batch_size = DEMANDS[options["demand"]].batch_size
    if options["loader"] == NAIVE_KERAS:
        # In one pass: its workers begin anew with each.
        count = options["batches"] + SKIPPED[False]
        files = files_in(Path(options["folder"]))
        return _naive_dataset(files, batch_size, count, options["workers"])
    from adapters import ImageDecoder, SafeSequence, open_records

    if options["loader"] == NAIVE:
        source, transform = files_in(Path(options["folder"])), decode_file
    else:
        decoder = ImageDecoder(SIDE, crop="random_resized", flip=True)
        source, transform = open_records(options["packed"], decode=decoder), None
    return SafeSequence(
        source,
        batch_size,
        transform=transform,
        shuffle=True,
        drop_remainder=True,
        workers=options["workers"],
        thread_safe=True,
    )


def _naive_dataset(files: list[tuple[str, int]], batch_size: int, count: int, workers: int) -> Any:
    import keras

    class Originals(keras.utils.PyDataset):  # type: ignore[misc]
        """What people write today: the original, decoded and resized when it is asked for."""

        def __init__(self) -> None:
            super().__init__(workers=workers)
            shuffled = random.Random(0).sample(files, len(files))
            self.files = list(islice(cycle(shuffled), count * batch_size))

        def __len__(self) -> int:
            return count

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            chosen = self.files[index * batch_size : (index + 1) * batch_size]
            pictures = [with_opencv(Path(path).read_bytes(), random.uniform) for path, _ in chosen]
            return np.stack(pictures), np.array([label for _, label in chosen])

    return Originals()


@contextmanager
def _batches(loader: Any) -> Iterator[Iterator[Any]]:
    """The loader's batches, as Keras takes them."""
    if hasattr(loader, "close"):
        with closing(loader):
            yield endless(loader)
        return
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    adapter = PyDatasetAdapter(loader)
    adapter.on_epoch_begin()
    try:
        yield adapter._get_iterator()
    finally:
        adapter.on_epoch_end()


def _pace(options: Mapping[str, Any]) -> Measurement:
    import keras

    demand = DEMANDS[options["demand"]]
    with _batches(make_loader(options)) as batches:
        for _ in range(SKIPPED[options["workers"] == "auto"]):
            next(batches)
        window_begin, cpu_begin = time.monotonic(), tree_cpu_seconds()
        steps = consume(
            batches,
            demand.step_seconds,
            most_batches=options["batches"],
            most_seconds=options["seconds"],
        )
        window_end, cpu_end = time.monotonic(), tree_cpu_seconds()
    speed = len(steps.starts) * demand.batch_size / steps.total_seconds
    return {
        "software": f"Keras {keras.__version__}, batches of {demand.batch_size}",
        "device": f"no accelerator: a step is a wait of {1000 * demand.step_seconds:.0f} ms",
        "metrics": {
            "samples_per_second": speed,
            "epoch_seconds": EPOCH / speed,
            "waited_share": 1 - steps.utilisation,
            "utilisation": steps.utilisation,
            "wait_p99_ms": 1000 * float(np.percentile(steps.waits_seconds, 99)),
            "on_time_share": steps.on_time_share,
            "cpu_percent": 100 * (cpu_end - cpu_begin) / (window_end - window_begin),
        },
        "window": (window_begin, window_end),
        "rounds": _rounds(steps.starts, demand, steps.waits_seconds),
    }


def _rounds(starts: list[float], demand: Demand, waits: list[float]) -> dict[str, list[float]]:
    rounds = rounds_of(starts, demand.batch_size, waits)
    if rounds:
        rounds["epoch_seconds"] = [EPOCH / speed for speed in rounds["samples_per_second"]]
        rounds["utilisation"] = [1 - share for share in rounds["waited_share"]]
        parts = np.array_split(waits, PARTS)
        rounds["on_time_share"] = [float(np.mean(part == 0)) for part in parts]
    return rounds


def _train(options: Mapping[str, Any]) -> Measurement:
    from benchmarks.harness.keras_training import describe_device, describe_software

    demand = DEMANDS[options["demand"]]
    model, loader = _resnet(demand), make_loader(options)
    with ExitStack() as stack:
        if hasattr(loader, "close"):
            stack.callback(loader.close)
        # Compiles, too.
        skipped = SKIPPED[options["workers"] == "auto"]
        model.fit(loader, steps_per_epoch=skipped, verbose=0)
        model.clock.start()
        window_begin, cpu_begin = time.monotonic(), tree_cpu_seconds()
        with GpuUtilisation() as gpu:
            watch = watch_of(model, options["seconds"], gpu)
            model.fit(loader, steps_per_epoch=options["batches"], callbacks=[watch], verbose=0)
    seconds = watch.end - window_begin
    waits = model.clock.waits_seconds
    speed = len(waits) * demand.batch_size / seconds
    metrics = {
        "samples_per_second": speed,
        "epoch_seconds": EPOCH / speed,
        "waited_share": sum(waits) / seconds,
        "wait_p99_ms": 1000 * float(np.percentile(waits, 99)),
        "cpu_percent": 100 * (watch.cpu_seconds - cpu_begin) / seconds,
    }
    if watch.utilisation is not None:
        metrics["utilisation"] = watch.utilisation
    return {
        "software": f"{describe_software()}, batches of {demand.batch_size}",
        "device": describe_device(),
        "metrics": metrics,
        "window": (window_begin, watch.end),
        "rounds": rounds_of(model.clock.moments, demand.batch_size, waits),
    }


def _resnet(demand: Demand) -> Any:
    """ResNet-50 for uint8 pictures, compiled."""
    import keras

    from benchmarks.harness.keras_training import TimedModel

    keras.mixed_precision.set_global_policy(demand.policy)
    inputs = keras.Input((SIDE, SIDE, 3), dtype="uint8")
    network = keras.applications.ResNet50(
        weights=None, classes=CLASSES, classifier_activation=None, input_shape=(SIDE, SIDE, 3)
    )
    hidden = network(keras.layers.Rescaling(1 / 127.5, offset=-1)(inputs))
    # The loss in single precision, whatever the policy.
    model = TimedModel(inputs, keras.layers.Activation("linear", dtype="float32")(hidden))
    model.compile(
        optimizer=keras.optimizers.SGD(0.01, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def watch_of(model: Any, seconds: float, gpu: GpuUtilisation) -> Any:
    """A callback that ends the epoch after so many seconds, and notes what was measured then.

    `fit` itself can return seconds later, when TensorFlow has taken its pipeline down.

    Args:
        model: What is trained.
        seconds: From the first epoch's begin.
        gpu: Its utilisation.
    """
    import keras

    class Watch(keras.callbacks.Callback):  # type: ignore[misc]
        # Keras may call it later, in a thread, so that no step waits for it. On JAX, `self.model`
        # would take the training's state there, which the step being computed has given away.
        async_safe = True

        def on_train_begin(self, logs: Any = None) -> None:
            self.deadline = time.monotonic() + seconds

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if time.monotonic() > self.deadline:
                model.stop_training = True

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            # A step that was only dispatched must have been computed.
            float(logs["loss"])
            self.end, self.cpu_seconds = time.monotonic(), tree_cpu_seconds()
            self.utilisation = gpu.share

    return Watch()
