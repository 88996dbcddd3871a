"""One timed epoch of a Keras model, with the time that it waited for each batch.

The same clock for every loader and backend: `fit` fetches a batch, then computes a step. On
TensorFlow and JAX the model's train function does both, so the fetch is timed there; on PyTorch
`fit` fetches before it calls the train function, so there it is the time between two steps.

The time waited is what the training loop stood in the fetch. Where steps are dispatched
asynchronously (JAX, any GPU), the device may still have been computing.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import keras
import numpy as np

from benchmarks.harness.backends import CPU, TITLES
from benchmarks.harness.cpu_seconds import tree_cpu_seconds
from benchmarks.harness.rounds import rounds_of
from benchmarks.harness.row import Measurement


class TimedModel(keras.Model):
    """A functional `keras.Model` that notes how long it waited for each training batch.

    Attributes:
        clock: Holds the waits, in seconds, since it was last started; its `step_seconds` may be
            set before the model is compiled.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.clock = Clock()  # Keras sets the functions below, to None at first.
        super().__init__(*args, **kwargs)

    @property
    def train_function(self) -> Any:
        """Keras's train function of this backend, its fetches timed."""
        return self._timed_train_function

    @train_function.setter
    def train_function(self, function: Any) -> None:
        timed = self.clock.between if keras.backend.backend() == "torch" else self.clock.fetching
        self._timed_train_function = function and timed(function)

    @property
    def test_function(self) -> Any:
        """Keras's test function, fetching in the same way, so that one warm-up serves all."""
        return self._timed_test_function

    @test_function.setter
    def test_function(self, function: Any) -> None:
        if function is not None and keras.backend.backend() != "torch":
            function = Clock().fetching(function)
        self._timed_test_function = function


class Clock:
    """Notes waits, and when they ended; used by the thread that trains.

    Args:
        step_seconds: How long a training step lasts at least: the rest of it, the thread sleeps, as
            if it waited for an accelerator.
    """

    def __init__(self, step_seconds: float = 0.0) -> None:
        self.step_seconds = step_seconds
        self.start()

    def start(self) -> None:
        """Forget what was noted; the first wait of `between` begins now."""
        self.waits_seconds: list[float] = []
        self.moments: list[float] = []
        self._ready = time.perf_counter()

    def fetching(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """For a function whose last argument is the iterator from which it takes its batch."""

        @functools.wraps(function)
        def step(*arguments: Any) -> Any:
            *state, batches = arguments
            begin = time.perf_counter()
            batch = next(batches)
            self._note(begin)
            # Given any other iterator than tf.data's, Keras on TensorFlow takes the batch outside
            # of the graph and calls the same compiled step.
            found = function(*state, iter((batch,)))
            self._last()
            return found

        return step

    def between(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """For a function that is given its batch."""

        @functools.wraps(function)
        def step(batch: Any) -> Any:
            self._note(self._ready)
            logs = function(batch)
            self._last()
            self._ready = time.perf_counter()
            return logs

        return step

    def _last(self) -> None:
        """Stay in the step, which began when the batch was there, until its time is over."""
        if self.step_seconds:
            rest = self.moments[-1] + self.step_seconds - time.perf_counter()
            time.sleep(max(0.0, rest))

    def _note(self, begin: float) -> None:
        self.moments.append(time.perf_counter())
        self.waits_seconds.append(self.moments[-1] - begin)


class _End(keras.callbacks.Callback):  # type: ignore[misc]
    """Notes when an epoch, or an evaluation, ended.

    On TensorFlow, `fit` itself may return seconds later: it waits for tf.data's thread that tunes,
    which looks up after 10 ms, 20 ms, 40 ms and so on.
    """

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """The loss is a number by now: steps that were only dispatched have been computed."""
        float(logs["loss"])
        self.moment = time.monotonic()
        self.cpu_seconds = tree_cpu_seconds()

    def on_test_end(self, logs: Any = None) -> None:
        """Likewise."""
        float(logs["loss"])
        self.moment = time.monotonic()


class Zeros(keras.utils.PyDataset):
    """Batches of zeros, one of each size given, to compile on: as the timed epoch's in all else."""

    def __init__(self, batch_sizes: Iterable[int], sample_shape: tuple[int, ...]) -> None:
        super().__init__()
        self._batch_sizes = list(batch_sizes)
        self._sample_shape = sample_shape

    def __len__(self) -> int:
        return len(self._batch_sizes)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        size = self._batch_sizes[index]
        return np.zeros((size, *self._sample_shape), np.float32), np.zeros(size, np.int32)


def use_native_layout() -> str:
    """Set and return the layout that the backend trains in: "NHWC", or "NCHW" on PyTorch."""
    native = "NCHW" if keras.backend.backend() == "torch" else "NHWC"
    keras.config.set_image_data_format("channels_first" if native == "NCHW" else "channels_last")
    return native


def measure_training(
    model: TimedModel,
    load_train: Callable[[], Any],
    load_test: Callable[[], Any],
    *,
    train_samples: int,
    test_samples: int,
    batch_size: int,
    seed: int,
    learns: bool = True,
) -> Measurement:
    """Compile, then time one epoch of training and one evaluation.

    Args:
        model: Compiled, with one input and "accuracy" among its metrics.
        load_train: Makes what `fit` takes; called on the clock, so that making a loader and
            starting its workers is part of the epoch.
        load_test: Makes what `evaluate` takes, likewise.
        train_samples: How many samples `load_train` delivers.
        test_samples: How many `load_test` delivers.
        batch_size: Of both.
        seed: Set just before the epoch.
        learns: Whether the model is one whose accuracy says something.

    Returns:
        The measurement, with the metrics of `TRAINING_COLUMNS`.
    """
    _warm_up(model, train_samples, test_samples, batch_size)
    keras.utils.set_random_seed(seed)
    with ExitStack() as stack:
        window_begin, cpu_begin = time.monotonic(), tree_cpu_seconds()
        model.clock.start()
        train = _closing(stack, load_train())
        end = _End()
        model.fit(train, epochs=1, verbose=0, callbacks=[end])
        trained, cpu_end = end.moment, end.cpu_seconds
        evaluation_begin = time.monotonic()
        test = _closing(stack, load_test())
        tested = model.evaluate(test, verbose=0, return_dict=True, callbacks=[end])
        accuracy, window_end = float(tested["accuracy"]), end.moment
    train_seconds = trained - window_begin
    p50, p99 = np.percentile(model.clock.waits_seconds, [50, 99])
    measured: Measurement = {
        "software": describe_software(),
        "device": describe_device(),
        "metrics": {
            "train_seconds": train_seconds,
            "eval_seconds": window_end - evaluation_begin,
            "accuracy": accuracy,
            "samples_per_second": train_samples / train_seconds,
            "waited_share": sum(model.clock.waits_seconds) / train_seconds,
            "wait_p50_ms": 1000 * float(p50),
            "wait_p99_ms": 1000 * float(p99),
            "cpu_percent": 100 * (cpu_end - cpu_begin) / train_seconds,
        },
        "window": (window_begin, window_end),
        "busy": (window_begin, trained),
        "seed": seed,
        "rounds": rounds_of(
            model.clock.moments, batch_size, model.clock.waits_seconds, train_samples
        ),
    }
    if not learns:
        del measured["metrics"]["accuracy"]
    return measured


def describe_software() -> str:
    """Keras and its backend, with versions."""
    backend = keras.backend.backend()
    version = importlib.import_module(backend).__version__
    return f"Keras {keras.__version__} on {TITLES[backend]} {version}"


def describe_device() -> str:
    """What the backend trains on: the GPU's name, or `CPU`."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        gpus = tf.config.list_physical_devices("GPU")
        if gpus:
            details = tf.config.experimental.get_device_details(gpus[0])
            return str(details.get("device_name", gpus[0].name))
    elif backend == "jax":
        import jax

        device = jax.devices()[0]
        if device.platform != "cpu":
            return str(device.device_kind)
    else:
        import torch

        if torch.cuda.is_available():
            return str(torch.cuda.get_device_name())
    return CPU


def _warm_up(model: TimedModel, train_samples: int, test_samples: int, batch_size: int) -> None:
    """Compile the steps for every batch size that will come, and put the weights back.

    On TensorFlow, a step is traced once for batches of `tf.data`, and once for `SafeSequence`'s.
    """
    from adapters import SafeSequence

    sample_shape = model.input_shape[1:]
    initial = model.get_weights()
    for kind in (lambda zeros: zeros, lambda zeros: SafeSequence(zeros, workers=0)):
        zeros = (
            Zeros(_sizes(count, batch_size), sample_shape)
            for count in (train_samples, test_samples)
        )
        train, test = map(kind, zeros)
        model.fit(train, shuffle=False, verbose=0)
        model.evaluate(test, verbose=0)
    model.set_weights(initial)


def _sizes(samples: int, batch_size: int) -> list[int]:
    """Two full batches, and the last one where it is smaller."""
    rest = samples % batch_size
    return [min(samples, batch_size)] * 2 + ([rest] if rest else [])


def _closing(stack: ExitStack, data: Any) -> Any:
    """Close the loader at the end, if it is one that can be closed."""
    if hasattr(data, "close"):
        stack.callback(data.close)
    return data
