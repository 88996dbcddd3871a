"""The row of the table of convergence: LeNet on digits sorted by class, read in three orders.

A folder with a folder per class is packed twice: by ``pack`` as it is by default, which shuffles
what comes sorted by class, and with ``seed=None``, which keeps the order. Of the first, LeNet is
trained in a full shuffle and in blocks; of the second in blocks, which is the trap. Each seed has
its first weights, which are the same for all three, and its orders.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data.digits import load_digits
from benchmarks.harness.row import Measurement

BATCH = 64
# Of 5,000 records of 2.5 KB: 75 blocks, of which a batch mixes four. In a file sorted by class
# these are of as many classes at the most.
BLOCK_BYTES, WINDOW = 160 << 10, 4
FULL, IN_BLOCKS, SORTED = "full", "blocks", "sorted"


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run the row, in a process of its own.

    Args:
        options: ``digits`` (a path of ``data.digits``), ``train`` and ``test`` (how many of each),
            ``epochs``, ``seeds`` (how many).
    """
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    from adapters import Blocks, SafeSequence, open_records
    from benchmarks.experiments.mnist_keras import network
    from benchmarks.experiments.steps import LENET

    began, path = time.monotonic(), Path(options["digits"])
    images, labels = load_digits(path, "test", options["test"])
    test = _scaled((images[..., None], labels))
    accuracies: dict[str, list[float]] = {name: [] for name in (FULL, IN_BLOCKS, SORTED)}
    blocks, classes = Blocks(BLOCK_BYTES, WINDOW), {}
    with tempfile.TemporaryDirectory() as folder:
        packed, kept = _packed(Path(folder), *load_digits(path, "train", options["train"]))
        model = network("NHWC", LENET)
        # The sweeps' SGD of 0.1 learns little from so few batches.
        model.compile("adam", model.loss, metrics=["accuracy"])
        model.optimizer.build(model.trainable_variables)
        unmoved = [np.array(each) for each in model.optimizer.variables]
        for seed in range(options["seeds"]):
            keras.utils.set_random_seed(seed)
            first = network("NHWC", LENET).get_weights()
            for name, files, order in (
                (FULL, packed, True),
                (IN_BLOCKS, packed, blocks),
                (SORTED, kept, blocks),
            ):
                model.set_weights(first)
                for variable, value in zip(model.optimizer.variables, unmoved):
                    variable.assign(value)
                with (
                    open_records(files, decode="image") as source,
                    SafeSequence(
                        source, BATCH, shuffle=order, seed=seed, batch_transform=_scaled
                    ) as sequence,
                ):
                    classes[name] = len(np.unique(sequence[0][1]))
                    model.fit(sequence, epochs=options["epochs"], verbose=0)
                accuracies[name].append(model.evaluate(*test, batch_size=500, verbose=0)[1])
    metrics = {name: statistics.mean(values) for name, values in accuracies.items()}
    metrics |= {f"{name}_classes": float(count) for name, count in classes.items()}
    differences = [ours - full for ours, full in zip(accuracies[IN_BLOCKS], accuracies[FULL])]
    for name in (FULL, IN_BLOCKS):
        metrics[f"{name}_deviation"] = _deviation(accuracies[name])
    metrics["difference"] = statistics.mean(differences)
    metrics["error"] = _deviation(differences) / len(differences) ** 0.5
    return Measurement(
        software=f"keras {keras.__version__}",
        device="the CPU",
        metrics=metrics,
        rounds=accuracies,
        window=(began, time.monotonic()),
    )


def _deviation(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _packed(folder: Path, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> Any:
    """Record files of a folder of pictures: shuffled by ``pack``, and as they come."""
    import cv2

    from adapters import pack

    for number, (image, label) in enumerate(zip(images, labels.tolist())):
        name = folder / "digits" / str(label) / f"{number:05}.png"
        name.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(name), image)
    files = []
    for name, seed in (("packed", "auto"), ("kept", None)):
        out = folder / f"{name}.tfrecord"
        pack(folder / "digits", out, format="tfrecord", encoding="raw", seed=seed)
        files.append(str(folder / f"{name}*.tfrecord"))
    return files


def _scaled(batch: Any) -> Any:
    """Of pictures, one channel from 0 to 1."""
    images, labels = batch
    return images[..., :1].astype(np.float32) / 255, labels
