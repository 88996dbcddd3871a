"""A run that is killed in the middle of an epoch, and one that continues it to the same weights.

It trains three times: without a break, until it is killed, and from there on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
from shapes import arrays_of

from adapters import SafeSequence

EPOCHS, KILLED_AFTER = 3, 40


class Checkpoint(keras.callbacks.Callback):
    """Keeps model and position together, after every tenth batch."""

    def __init__(self, folder: Path, train: SafeSequence, killed: bool) -> None:
        super().__init__()
        self.folder, self.train, self.left = folder, train, KILLED_AFTER if killed else None
        self.batches = 0

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Save; then, if it was asked for, die as a machine does."""
        self.batches += 1
        if self.batches % 10 == 0:
            self.model.save(self.folder / "model.keras")
            (self.folder / "position.json").write_text(json.dumps(self.train.state_dict()))
        if self.batches == self.left:
            os._exit(9)


def run(folder: Path, killed: bool) -> None:
    """Train what is left, and keep the weights."""
    x, y = arrays_of(1600)
    train = SafeSequence((x.astype("float32") / 255, y), batch_size=32, shuffle=True, seed=1)
    if (folder / "model.keras").exists():
        model = keras.saving.load_model(folder / "model.keras")
        train.load_state_dict(json.loads((folder / "position.json").read_text()))
    else:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Flatten()])
        model.add(keras.layers.Dense(2, "softmax"))
        model.compile("adam", "sparse_categorical_crossentropy")
    callbacks = [Checkpoint(folder, train, killed)]
    batch = train.state_dict()["batch"]
    if batch:  # First what is left of an epoch, which Keras must know to be shorter.
        left, epoch = len(train) - batch, train.epoch
        model.fit(train, steps_per_epoch=left, callbacks=callbacks, verbose=0)
        assert train.epoch == epoch + 1
    model.fit(train, initial_epoch=train.epoch, epochs=EPOCHS, callbacks=callbacks, verbose=0)
    np.save(folder / "weights.npy", np.concatenate([w.ravel() for w in model.get_weights()]))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        run(Path(sys.argv[1]), sys.argv[2] == "killed")
        sys.exit()
    with tempfile.TemporaryDirectory() as made:
        outcomes = {}
        for name, kinds in {"whole": ["whole"], "continued": ["killed", "continued"]}.items():
            folder = Path(made, name)
            folder.mkdir()
            for kind in kinds:
                code = subprocess.call([sys.executable, __file__, str(folder), kind])
                print(f"{kind}: exit status {code}")
            outcomes[name] = np.load(folder / "weights.npy")
        same = np.array_equal(outcomes["whole"], outcomes["continued"])
        print("the weights are", "the same to the last bit" if same else "different")
        sys.exit(not same)
