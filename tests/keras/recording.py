"""What ``fit``, ``evaluate`` and ``predict`` give a model, batch by batch, on any backend."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.keras import internals
from tests.keras.samples import BATCH_SIZE, numbered

BACKEND = keras.backend.backend()
ON_TENSORFLOW = pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow's own")
VERSION = tuple(int(part) for part in keras.__version__.split(".")[:2])

Options = dict[str, Any]
INLINE: Options = {"workers": 0}
TWO_THREADS: Options = {"workers": 2}
FOUR_THREADS: Options = {"workers": 4}
PROCESSES: Options = {"workers": 2, "use_multiprocessing": True}
AUTO: Options = {"workers": "auto"}

ALL_WORKERS = [
    pytest.param(INLINE, id="inline"),
    pytest.param(TWO_THREADS, id="2 threads"),
    pytest.param(PROCESSES, id="processes"),
    pytest.param(AUTO, id="auto"),
]
# Nothing is read ahead; read ahead in this process; out of memory shared with another one.
KINDS_OF_WORKERS = ALL_WORKERS[:3]


class Recorder(keras.Model):
    """Trains nothing; keeps the batches that reach its steps: copies of them if ``on_host``."""

    def __init__(self, *, on_host: bool = True, steps_per_execution: int = 1) -> None:
        super().__init__()
        self._keep = to_host if on_host else lambda batch: batch
        self.layer = keras.layers.Dense(1)
        # Keras replaces a model's own lists by tracked ones.
        self.lists = SimpleNamespace(trained=[], tested=[])
        # Eager steps see arrays, and not the symbols that stand for them.
        self.compile(
            optimizer="sgd",
            loss="mse",
            run_eagerly=True,
            steps_per_execution=steps_per_execution,
        )

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.layer(keras.ops.cast(keras.tree.flatten(inputs)[0], "float32"))

    def train_step(self, *arguments: Any) -> Any:
        return self._record(self.lists.trained, arguments)

    def test_step(self, *arguments: Any) -> Any:
        return self._record(self.lists.tested, arguments)

    def _record(self, batches: list[Any], arguments: Any) -> Any:
        batches.append(self._keep(arguments[-1]))
        logs = {"loss": 0.0}
        return (logs, arguments[0]) if BACKEND == "jax" else logs

    @property
    def trained(self) -> list[list[int]]:
        return [numbers(batch) for batch in self.lists.trained]

    @property
    def tested(self) -> list[list[int]]:
        return [numbers(batch) for batch in self.lists.tested]

    def forget(self) -> None:
        self.lists.trained.clear()
        self.lists.tested.clear()


def to_host(batch: Any) -> Any:
    """The same structure of NumPy arrays."""
    return keras.tree.map_structure(
        lambda leaf: None if leaf is None else np.array(keras.ops.convert_to_numpy(leaf)), batch
    )


def numbers(batch: Any) -> list[int]:
    features = batch[0] if isinstance(batch, (tuple, list)) else batch
    return [int(number) for number in np.ravel(to_host(features))]


def samples_of(batches: list[list[int]]) -> list[int]:
    return sorted(number for batch in batches for number in batch)


def built_recorder() -> Recorder:
    """A recorder that Keras has nothing left to build of."""
    recorder = Recorder()
    internals.build(recorder, numbered(2))
    return recorder


def linear(**compile_options: Any) -> keras.Model:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", **compile_options)
    return model


def echo() -> keras.Model:
    model = keras.Sequential([keras.layers.Activation("linear")])
    model.compile()
    return model


def sequence_of(batches: int, **options: Any) -> SafeSequence:
    return SafeSequence(numbered(batches * BATCH_SIZE), BATCH_SIZE, **options)


def epochs_of(sequence: SafeSequence, epochs: int, first: int = 0) -> list[list[int]]:
    """Sample numbers of all batches of these epochs, by the sequence's own word."""
    try:
        batches = []
        for epoch in range(first, first + epochs):
            sequence.set_epoch(epoch)
            batches += [numbers(sequence[index]) for index in range(len(sequence))]
        return batches
    finally:
        sequence.close()


class Boom(Exception):
    """What a callback may raise."""


def stop(model: keras.Model) -> None:
    model.stop_training = True


def fail(model: keras.Model) -> None:
    raise Boom


def after(count: int, act: Callable[[keras.Model], Any]) -> AfterBatch:
    return AfterBatch(lambda model, batches: act(model) if batches == count else None)


class AfterBatch(keras.callbacks.Callback):
    def __init__(self, action: Callable[[keras.Model, int], Any]) -> None:
        super().__init__()
        self._action = action
        self._count = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._count += 1
        self._action(self.model, self._count)


# --- what some versions of Keras can't do with any data set, as marks for the tests of it ---
# Keras 3.6 keeps the iterator of the pass that builds the model, on JAX and PyTorch.


def jax_platform() -> str:
    """What JAX computes on, as Keras asks for it."""
    import jax

    return str(jax.default_backend())


_BUILDS_BY_ITERATING = VERSION < (3, 7) and BACKEND != "tensorflow"

LOSES_THE_FIRST_BATCH = pytest.mark.xfail(
    _BUILDS_BY_ITERATING, reason="Keras 3.6 drops the batch that it built the model with"
)
TAKES_THE_BUILD_FOR_AN_EPOCH = pytest.mark.xfail(
    _BUILDS_BY_ITERATING, reason="Keras 3.6 doesn't end the pass that it built the model with"
)
VALIDATES_ON_WHERE_IT_STOPPED = pytest.mark.xfail(
    VERSION < (3, 7), reason="Keras 3.6 keeps the iterator of validation_data with its steps"
)
WARNS_BEFORE_IT_RAISES = BACKEND == "tensorflow" and VERSION < (3, 9)
_AHEAD_ON_JAX = BACKEND == "jax" and (VERSION < (3, 15) or jax_platform() != "cpu")
READS_A_BATCH_AHEAD = pytest.mark.xfail(
    # On a GPU, batches are there ahead without Keras's help.
    _AHEAD_ON_JAX and jax_platform() == "cpu",
    reason="on a GPU, and before 3.15 on all, Keras asks JAX's iterator for a batch more before "
    "it trains on one",
)
# How many batches Keras has asked for before it trains on one.
BATCHES_AHEAD = 3 if BACKEND == "tensorflow" else int(_AHEAD_ON_JAX)
LOSES_A_LAST_PART = pytest.mark.xfail(
    VERSION < (3, 7) and BACKEND == "tensorflow",
    reason="Keras 3.6 drops the metrics and updates of a last execution with fewer steps",
)
SEVERAL_STEPS = pytest.mark.skipif(
    BACKEND == "torch", reason="Keras runs one step at a time on PyTorch"
)
NEEDS_RESUME = pytest.mark.skipif(
    bool(internals.missing_to_continue()), reason="Resume is refused with this Keras"
)
