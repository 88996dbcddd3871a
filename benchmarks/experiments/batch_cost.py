"""What a batch costs: a training loop's time above that of the same batch on the device.

Keras's `fit` of a network that computes next to nothing, fed by every contestant in turn, in one
process and in interleaved rounds: 100 or 200 batches of 64 digits, scaled to float32. The floor is
the same batch again and again, already on the device: Keras's own loop. A contestant's cost is its
time for a batch less the floor's of the same round; start-up and compilation are over before.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.harness.row import Measurement

BATCH = 64
# Many short rounds: the speed of a shared machine changes within seconds.
ROUNDS, SHORT_ROUNDS = 18, 1
STEPS = {"jax": 200, "tensorflow": 200, "torch": 100}
SHORT_STEPS = 4
FLOOR = "the same batch on the device"


def measure(options: Mapping[str, Any]) -> Measurement:
    """One backend.

    Args:
        options: `backend`, and `short`: a round of few batches.
    """
    backend = options["backend"]
    os.environ["KERAS_BACKEND"] = backend
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras

    from adapters import SafeSequence
    from benchmarks.experiments.mnist_keras import BATCHED, PlainDataset, network
    from benchmarks.experiments.steps import SIMULATED
    from benchmarks.harness.keras_training import (
        describe_device,
        describe_software,
        use_native_layout,
    )

    layout = use_native_layout()
    scale, scale_batch = next(
        pair for pair in BATCHED.items() if pair[0].__name__ == f"scale_{layout.lower()}"
    )
    steps = SHORT_STEPS if options["short"] else STEPS[backend]
    rng = np.random.default_rng(0)
    digits = rng.integers(0, 256, (steps * BATCH, 28, 28), np.uint8)
    labels = rng.integers(0, 10, steps * BATCH).astype(np.int32)
    sequence = {"shuffle": True, "batch_transform": scale_batch, "thread_safe": True}
    with (
        SafeSequence((digits, labels), BATCH, **sequence) as auto,
        SafeSequence((digits, labels), BATCH, **sequence, workers=0) as inline,
    ):
        feeds = {
            FLOOR: _same(scale_batch((digits[:BATCH], labels[:BATCH])), backend, steps),
            "SafeSequence, auto": auto,
            "SafeSequence, no workers": inline,
            "PyDataset, no workers": PlainDataset(digits, labels, scale, True, True),
            "PyDataset, 1 thread": PlainDataset(digits, labels, scale, True, True, workers=1),
        }
        timed = network(layout, SIMULATED)
        model = keras.Model(timed.inputs, timed.outputs)  # Keras's own steps, without a clock.
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer="sgd", loss=loss, metrics=["accuracy"])
        spent: dict[str, list[float]] = {name: [] for name in feeds}
        for _ in range(2):  # Compiles; "auto" chooses.
            for data in feeds.values():
                model.fit(data, shuffle=False, verbose=0)
        began = time.monotonic()
        for _ in range(SHORT_ROUNDS if options["short"] else ROUNDS):
            for name, data in feeds.items():
                start = time.perf_counter()
                model.fit(data, shuffle=False, verbose=0)
                spent[name].append((time.perf_counter() - start) / steps * 1e6)
    costs = {
        name: [us - floor for us, floor in zip(each, spent[FLOOR])]
        for name, each in spent.items()
        if name != FLOOR
    }
    ours, inline_cost = costs["SafeSequence, auto"], costs["SafeSequence, no workers"]
    medians = {name: statistics.median(each) for name, each in costs.items()}
    best = min((name for name in costs if "PyDataset" in name), key=lambda name: medians[name])
    measured = Measurement(
        software=f"{describe_software()}; the better PyDataset: {best.partition(', ')[2]}",
        device=describe_device(),
        metrics={
            "floor_us": statistics.median(spent[FLOOR]),
            "ours_us": statistics.median(ours),
            "ours_least_us": min(ours),
            "ours_most_us": max(ours),
            "inline_us": statistics.median(inline_cost),
            "peer_us": statistics.median(costs[best]),
            "peer_best_us": min(costs[best]),
        },
        window=(began, time.monotonic()),
    )
    if medians[best] > 0:  # Otherwise, other programs were louder.
        measured["metrics"]["share"] = statistics.median(ours) / medians[best]
    return measured


def _same(batch: Any, backend: str, steps: int) -> Any:
    """One batch again and again, where the backend trains."""
    import keras

    if backend == "tensorflow":
        import tensorflow as tf

        return tf.data.Dataset.from_tensors(batch).repeat(steps)
    if backend == "jax":
        import jax

        batch = tuple(jax.device_put(each) for each in batch)
    elif backend == "torch":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        batch = tuple(torch.as_tensor(each, device=device) for each in batch)

    class Same(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return steps

        def __getitem__(self, index: int) -> Any:
            return batch

    return Same()
