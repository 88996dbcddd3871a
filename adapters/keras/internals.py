"""Private names of Keras that this package uses. No other file uses one.

They are looked up when this module is imported. A missing name is None and is listed by
``missing``. Keras then reads a ``SafeSequence`` through its own adapter, see ``patches``.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras

_ADAPTERS = "keras.src.trainers.data_adapters"
_NEEDED_ARGUMENTS = {"x", "y", "sample_weight", "steps_per_epoch", "shuffle", "class_weight"}
_NEEDED_METHODS = (
    "_get_iterator",
    "_standardize_batch",
    "get_numpy_iterator",
    "get_tf_dataset",
    "get_torch_dataloader",
    "on_epoch_begin",
    "on_epoch_end",
)


def _found(module: str, name: str | None = None) -> Any:
    """Module, or a name in it; None if Keras doesn't have it."""
    try:
        there = importlib.import_module(module)
    except ImportError:
        return None
    return there if name is None else getattr(there, name, None)


data_adapters: Any = _found(_ADAPTERS)
"""Module whose ``get_data_adapter`` Keras's trainers call."""
PyDatasetAdapter: Any = _found(f"{_ADAPTERS}.py_dataset_adapter", "PyDatasetAdapter")
"""Keras's adapter of a ``PyDataset``."""
get_tensor_spec: Any = _found(f"{_ADAPTERS}.data_adapter_utils", "get_tensor_spec")
"""Function that computes the common ``tf.TensorSpec`` of batches; TensorFlow only."""
get_jax_iterator: Any = _found(f"{_ADAPTERS}.data_adapter_utils", "get_jax_iterator")
"""Function that converts the leaves of batches for JAX; without it they are passed unchanged."""


_Base: Any = PyDatasetAdapter if isinstance(PyDatasetAdapter, type) else object


class Adapter(_Base):  # type: ignore[misc]
    """``PyDatasetAdapter`` that takes its batches from ``batches()``."""

    def batches(self) -> Iterator[Any]:
        """Iterator of one pass."""
        raise NotImplementedError

    def standardized(self, batch: Any) -> Any:
        """Return the batch in Keras's structure, with sample weights from class weights."""
        return self._standardize_batch(batch)

    def _get_iterator(self) -> Iterator[Any]:
        return self.batches()


EpochIterator: Any = _found("keras.src.trainers.epoch_iterator", "EpochIterator")
"""Keras's iterator over an epoch. Its ``_enumerate_iterator`` counts the batches."""
SPLITS_EXECUTIONS = (
    EpochIterator is not None
    and not hasattr(EpochIterator, "_enumerate_iterator")
    and keras.backend.backend() == "jax"
)
"""True if the last execution of ``steps_per_epoch`` has fewer steps, as in Keras 3.6 on JAX."""
RAISES_AT_THE_END = hasattr(EpochIterator, "_interrupted_warning")
"""True if Keras, from 3.9 on, says where the data have ended before the steps did."""
_global_attribute: Any = _found("keras.src.backend.common.global_state", "get_global_attribute")
_get_data_adapter = getattr(data_adapters, "get_data_adapter", None)
patched = False
"""True once ``patches.install`` has replaced that function."""


def by_keras_adapter() -> bool:
    """True if Keras's own adapter reads a ``SafeSequence``, see ``patches``."""
    return not patched or data_adapters.get_data_adapter is _get_data_adapter


def missing() -> list[str]:
    """Private names needed on this backend that Keras lacks or has in another form."""
    absent = []
    stock = getattr(data_adapters, "get_data_adapter", None)
    if not (callable(stock) and set(inspect.signature(stock).parameters) >= _NEEDED_ARGUMENTS):
        absent.append("get_data_adapter")
    if not (
        isinstance(PyDatasetAdapter, type)
        and set(inspect.signature(PyDatasetAdapter).parameters) >= {"x", "class_weight", "shuffle"}
    ):
        absent.append("PyDatasetAdapter")
    else:
        methods = [name for name in _NEEDED_METHODS if not hasattr(PyDatasetAdapter, name)]
        absent += [f"PyDatasetAdapter.{name}" for name in methods]
    if keras.backend.backend() == "tensorflow" and not callable(get_tensor_spec):
        absent.append("get_tensor_spec")
    return absent


def shard_of(stock: Any) -> tuple[int, int] | None:
    """Shard of the data that Keras gives to this process, ``(index, count)``; None if it has all.

    From Keras 3.16 on, the ``PyDatasetAdapter`` that Keras made (``stock``) reads every
    ``count``-th batch under a ``keras.distribution`` with ``auto_shard_dataset``.
    """
    count = getattr(stock, "_num_data_shards", 1)
    return (int(stock._data_shard_id), int(count)) if count > 1 else None


def tensorflow_shards(model: Any) -> bool:
    """True if a ``tf.distribute`` strategy over several processes shards the data of this model."""
    if keras.backend.backend() != "tensorflow":
        return False
    strategy = getattr(model, "distribute_strategy", None) or tensorflow().distribute.get_strategy()
    resolver = getattr(strategy, "cluster_resolver", None)
    jobs = resolver.cluster_spec().as_dict() if resolver is not None else {}
    return sum(len(jobs.get(name, ())) for name in ("chief", "worker")) > 1


_TensorFlowTrainer: Any = (
    _found("keras.src.backend.tensorflow.trainer", "TensorFlowTrainer")
    if keras.backend.backend() == "tensorflow"
    else None
)
_trace_types: Any = (
    _found("tensorflow.core.function.trace_type")
    if keras.backend.backend() == "tensorflow"
    else None
)
_METHODS = ("_make_function", "make_train_function", "make_test_function", "make_predict_function")


def takes_elements(model: Any) -> bool:
    """True if the steps of a model on TensorFlow are Keras's own, one per execution.

    From Keras 3.7 on, such steps get their batches from any iterator, for ``train_on_batch``. With
    a GPU, TensorFlow itself copies the batches of a ``tf.data.Dataset`` there.
    """
    if not (
        hasattr(_TensorFlowTrainer, "_make_function")
        and hasattr(_trace_types, "from_value")
        and hasattr(_trace_types, "InternalTracingContext")
    ):
        return False
    tf = tensorflow()
    methods = (getattr(getattr(model, name, None), "__func__", None) for name in _METHODS)
    return (
        model.steps_per_execution == 1
        and model.distribute_strategy is tf.distribute.get_strategy()
        and not tf.distribute.has_strategy()
        and not tf.config.list_logical_devices("GPU")
        and all(own is getattr(_TensorFlowTrainer, name) for own, name in zip(methods, _METHODS))
        and _reads_in_python(model.train_function)
        and _reads_in_python(model.test_function)
    )


def trace_type(signature: Any) -> Any:
    """Type for which TensorFlow traces a function, of values with a signature, nested specs."""
    context = _trace_types.InternalTracingContext(is_legacy_signature=True)
    return _trace_types.from_value(signature, context)


def runs_eagerly(model: Any) -> bool:
    """True if the steps of a model on TensorFlow get arrays, and no symbols for them."""
    return bool(model.run_eagerly or tensorflow().config.functions_run_eagerly())


def is_end_of_data(error: BaseException) -> bool:
    """True if Keras would take a batch's error for the end of the data, on TensorFlow."""
    on_tensorflow = keras.backend.backend() == "tensorflow"
    return on_tensorflow and isinstance(error, tensorflow().errors.OutOfRangeError)


def _reads_in_python(function: Any) -> bool:
    """True if a step is Keras's, wraps it, or isn't made yet; a compiled one is traced once."""
    if function is None:
        return True
    is_function = isinstance(function, types.FunctionType)
    return is_function and function.__module__ == _TensorFlowTrainer.__module__


def tensorflow() -> Any:
    """Return the TensorFlow module, which Keras has imported if it is the backend."""
    return sys.modules["tensorflow"]


# --- continuing a training ---


def missing_to_continue() -> list[str]:
    """Private names that Keras lacks to start within an epoch."""
    there = hasattr(EpochIterator, "_enumerate_iterator")
    return missing() + ([] if there else ["EpochIterator._enumerate_iterator"])


def count_from_position(ours: Any) -> None:
    """Make ``EpochIterator`` count the batches of an epoch from the sequence's position.

    It also raises a batch's error instead of warning that the data ended early, and on JAX reads
    batches that are on the device. Iterators over other adapters than ``ours`` aren't changed.
    """
    stock: Any = EpochIterator._enumerate_iterator

    @functools.wraps(stock)
    def _enumerate_iterator(self: Any) -> Any:
        adapter: Any = self.data_adapter
        if type(adapter) is not ours:
            return stock(self)
        this, kind = weakref.ref(self), type(self)

        def warning() -> None:
            adapter.raise_error()
            kind._interrupted_warning(this())

        def iterator() -> Any:
            there = adapter.on_the_device()
            return kind._get_iterator(this()) if there is None else there

        if hasattr(kind, "_interrupted_warning"):  # From Keras 3.9 on.
            self._interrupted_warning = warning
        if keras.backend.backend() == "jax" and hasattr(kind, "_get_iterator"):
            self._get_iterator = iterator
        steps, num_batches = self.steps_per_epoch, adapter.num_batches
        if adapter.done or (None not in (steps, num_batches) and steps <= num_batches):
            return _rest_of_epoch(self, stock, adapter.done)
        return stock(self)

    EpochIterator._enumerate_iterator = _enumerate_iterator


def _rest_of_epoch(
    iterator: Any, stock: Callable[[Any], Iterator[Any]], done: int
) -> Iterator[Any]:
    """Enumerate an epoch without its first ``done`` batches; ``stock`` counts from 0.

    If the data have an end, ``stock`` doesn't know of ``steps_per_epoch``, see ``ends_within``.
    """
    steps_per_epoch, num_batches = iterator.steps_per_epoch, iterator._num_batches
    if iterator.data_adapter.num_batches is None:
        iterator.steps_per_epoch = steps_per_epoch - done
    else:
        iterator.steps_per_epoch, iterator._num_batches = None, num_batches - done
    try:
        for *steps, batches in stock(iterator):
            yield (*(step + done for step in steps), batches)
    finally:
        iterator.steps_per_epoch, iterator._num_batches = steps_per_epoch, num_batches


def ends_within(steps: int, together: int, num_batches: int | None, may_go_on: bool) -> bool:
    """True if a pass of ``steps``, ``together`` in an execution, ends when the data do.

    With ``may_go_on``, a pass of more steps than batches goes on into the next epoch.
    """
    if num_batches is None or num_batches >= -(-steps // together) * together:
        return False
    return (steps <= num_batches or not may_go_on) and not missing_to_continue()


def has_only_empty(callback: Any, names: Iterable[str]) -> bool:
    """True if a callback inherits these hooks from ``Callback``, which marks its own."""
    return all(getattr(getattr(callback, name, None), "_is_default", False) for name in names)


def build(model: Any, batch: Any) -> None:
    """Create the variables of a compiled model, its optimizer and metrics, as training would."""
    if not hasattr(model, "_symbolic_build"):
        raise RuntimeError(
            f"Keras {keras.__version__} has no Model._symbolic_build: build the model before fit, "
            "and its optimizer, model.optimizer.build(model.trainable_variables)"
        )
    model._symbolic_build(data_batch=batch if isinstance(batch, tuple) else (batch,))


def compiled_metrics(model: Any) -> Any:
    """Metrics given to ``compile``, which have variables once built; or None."""
    return getattr(model, "_compile_metrics", None)


def sync_state(model: Any) -> None:
    """Update a model's variables during ``fit``, which keeps the state elsewhere on JAX."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()


CALLBACK_STATES = {
    "EarlyStopping": ("wait", "stopped_epoch", "best", "best_weights", "best_epoch"),
    "ReduceLROnPlateau": ("wait", "best", "cooldown_counter"),
    "ModelCheckpoint": ("best", "_batches_seen_since_last_saving", "_last_batch_seen"),
    "SwapEMAWeights": ("_ema_weights_in_model",),
    "TensorBoard": ("_global_train_batch", "_global_test_batch", "_previous_epoch_iterations"),
    "History": ("epoch", "history"),
}
"""Attributes of Keras's callbacks that hold state of a training, but none that a callback derives
from its arguments, as ``EarlyStopping`` does its ``min_delta``, once per object."""


def global_seed() -> Any:
    """State variable of ``keras.random``'s generator; None if it is unused, or kept elsewhere."""
    generator = _global_attribute("global_seed_generator") if _global_attribute else None
    return getattr(generator, "state", None)
