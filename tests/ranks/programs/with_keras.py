"""The model as Keras has it, and a callback that tells."""

from __future__ import annotations

import keras
import numpy as np

from adapters import SafeSequence
from tests.ranks.programs.training import RATE, Job


def model_of(weights: np.ndarray) -> keras.Model:
    """Compiled, with these weights."""
    # What is drawn at random would have to be the same on all processes.
    dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((2,)), dense])
    model.set_weights([weights])
    model.compile(keras.optimizers.SGD(RATE), "mse")
    return model


class Steps(keras.callbacks.Callback):
    """Tells of each step of ``fit``."""

    def __init__(self, job: Job, train: SafeSequence) -> None:
        super().__init__()
        self.job, self.train = job, train

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        self.job.begin_step()

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self.job.end_step(self.model.get_weights()[0], self.train.state_dict())
