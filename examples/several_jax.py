"""Keras on JAX on several processes, by `fit`; a run can be resumed on any number of them.

    job="--coordinator 127.0.0.1:9000 --processes 2 --folder run"
    python examples/several_jax.py $job --rank 0 &
    python examples/several_jax.py $job --rank 1

Under `srun`, and on TPUs, JAX finds the three out by itself: `--processes 0`. It runs alone, too.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np
from shapes import arrays_of

from adapters import SafeSequence

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--coordinator", help="host:port of rank 0")
parser.add_argument("--processes", type=int, default=1)
parser.add_argument("--rank", type=int)
parser.add_argument("--folder", type=Path, help="where the run is saved, for all processes")
parser.add_argument("--epochs", type=int, default=3)
options = parser.parse_args()

if options.processes != 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # For CPUs.
    jax.distributed.initialize(options.coordinator, options.processes or None, options.rank)
    # Keras must not shard what is sharded already.
    everywhere = keras.distribution.DataParallel(auto_shard_dataset=False)
    keras.distribution.set_distribution(everywhere)

x, y = arrays_of(2000)
# After initialize, so that JAX can say which process this is. The batch size is that of one.
train = SafeSequence((x.astype("float32") / 255, y), 32, shuffle=True, seed=1, shard="auto")

keras.utils.set_random_seed(1)  # The same first weights on all processes.
model = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten()])
model.add(keras.layers.Dense(2, "softmax"))
model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
if options.folder and (options.folder / "run.json").exists():
    run = json.loads((options.folder / "run.json").read_text())
    with np.load(options.folder / run["weights"]) as kept:
        model.set_weights([kept[name] for name in kept.files])
    train.load_state_dict(run["position"])  # Of whichever number of processes.


class Keep(keras.callbacks.Callback):
    """Keeps weights and position, which are the same on all processes, after each tenth batch."""

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Write the weights first, and then, all at once, which they are."""
        if not options.folder or batch % 10 != 9:
            return
        # All processes ask for them, or one would wait for the others.
        weights, position = self.model.get_weights(), train.state_dict()
        if jax.process_index() == 0:
            name = "{epoch}-{samples}.npz".format(**position)
            options.folder.mkdir(exist_ok=True)
            np.savez(options.folder / name, *weights)
            new = options.folder / "run.json.new"
            new.write_text(json.dumps({"weights": name, "position": position}))
            new.replace(options.folder / "run.json")


history = model.fit(
    train, initial_epoch=train.epoch, epochs=options.epochs, callbacks=[Keep()], verbose=0
)
print(f"{jax.process_count()} processes, accuracy {history.history['accuracy'][-1]:.2f}")
