"""Keras on PyTorch on several processes, by `fit`; a run can be resumed on any number of them.

    torchrun --nproc-per-node 2 examples/several_torch_fit.py --folder run
    torchrun --nproc-per-node 3 examples/several_torch_fit.py --folder run --epochs 4

It runs alone, too.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ["KERAS_BACKEND"] = "torch"

import keras
import torch
import torch.distributed as dist
from shapes import arrays_of

from adapters import SafeSequence
from adapters.keras import Resume

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--folder", type=Path, help="where the run is saved, for all processes")
parser.add_argument("--epochs", type=int, default=2)
options = parser.parse_args()

several = "RANK" in os.environ
if several:
    dist.init_process_group("gloo")  # On GPUs: "nccl", and torch.cuda.set_device(the local rank).
x, y = arrays_of(2000)
# The batch size is that of one process.
train = SafeSequence((x, y), 32, shuffle=True, seed=1, shard="auto")

keras.utils.set_random_seed(1)  # The same first weights on all processes.
model = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Rescaling(1 / 255)])
model.add(keras.layers.Flatten())
model.add(keras.layers.Dense(2, "softmax"))
model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])


def averaged(gradient: torch.Tensor) -> torch.Tensor:
    """Average a gradient over all processes, which Keras doesn't."""
    dist.all_reduce(gradient)
    return gradient / dist.get_world_size()


if several:
    for variable in model.trainable_variables:
        variable.value.register_hook(averaged)
callbacks = [Resume(options.folder, "10 batches")] if options.folder else []
model.fit(train, epochs=options.epochs, callbacks=callbacks, verbose=2)
total = sum(float(abs(weights).sum()) for weights in model.get_weights())
print(f"sum of absolute weights {total:.6f}, position {train.state_dict()}")
if several:
    dist.destroy_process_group()
