"""A run that is killed in the middle of an epoch, and one that continues it to the same weights.

It trains three times: without a break, until it is killed, and from there on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
from shapes import arrays_of

from adapters import SafeSequence
from adapters.keras import Resume

EPOCHS, KILLED_AFTER = 3, 40


class Crash(keras.callbacks.Callback):
    """Dies as a machine does."""

    def __init__(self) -> None:
        super().__init__()
        self.left = KILLED_AFTER

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Count down."""
        self.left -= 1
        if not self.left:
            os._exit(9)


def run(folder: Path, killed: bool) -> None:
    """Train what is left, and keep the weights."""
    x, y = arrays_of(1600)
    train = SafeSequence((x.astype("float32") / 255, y), batch_size=32, shuffle=True, seed=1)
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten()])
    model.add(keras.layers.Dropout(0.2))
    model.add(keras.layers.Dense(2, "softmax"))
    model.compile("adam", "sparse_categorical_crossentropy")
    callbacks = [Resume(folder, every="10 batches"), *([Crash()] if killed else [])]
    model.fit(train, epochs=EPOCHS, callbacks=callbacks, verbose=0)
    np.save(folder / "weights.npy", np.concatenate([w.ravel() for w in model.get_weights()]))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        run(Path(sys.argv[1]), sys.argv[2] == "killed")
        sys.exit()
    with tempfile.TemporaryDirectory() as made:
        outcomes = {}
        for name, kinds in {"whole": ["whole"], "continued": ["killed", "continued"]}.items():
            folder = Path(made, name)
            for kind in kinds:
                code = subprocess.call([sys.executable, __file__, str(folder), kind])
                print(f"{kind}: exit status {code}")
            outcomes[name] = np.load(folder / "weights.npy")
        same = np.array_equal(outcomes["whole"], outcomes["continued"])
        print("the weights are", "the same to the last bit" if same else "different")
        sys.exit(not same)
