"""Every private name of Keras that this package uses; no other file knows one.

Each is looked up when this module is imported. What isn't there is None, and ``missing`` names it:
then Keras reads a ``SafeSequence`` by its own adapter, see ``installation``.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import keras

log = logging.getLogger("adapters")

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
    """A module, or a name in it; None where Keras hasn't got it."""
    try:
        there = importlib.import_module(module)
    except ImportError:
        return None
    return there if name is None else getattr(there, name, None)


data_adapters: Any = _found(_ADAPTERS)
"""The module whose ``get_data_adapter`` Keras's trainers call."""
PyDatasetAdapter: Any = _found(f"{_ADAPTERS}.py_dataset_adapter", "PyDatasetAdapter")
"""How Keras reads a ``PyDataset``."""
get_tensor_spec: Any = _found(f"{_ADAPTERS}.data_adapter_utils", "get_tensor_spec")
"""The ``tf.TensorSpec`` that some batches have in common; TensorFlow only."""
get_jax_iterator: Any = _found(f"{_ADAPTERS}.data_adapter_utils", "get_jax_iterator")
"""Converts the leaves of batches for JAX; without it they stay as they are."""


def _batches_by_public_names(stock: type) -> type:
    class Adapter(stock):  # type: ignore[misc]
        """A ``PyDatasetAdapter`` whose batches are those of ``batches()``."""

        def batches(self) -> Iterator[Any]:
            """The iterator of one pass."""
            raise NotImplementedError

        def standardized(self, batch: Any) -> Any:
            """The batch with Keras's structure, and with weights of its classes."""
            return self._standardize_batch(batch)

        def _get_iterator(self) -> Iterator[Any]:
            return self.batches()

    return Adapter


Adapter: Any = (
    _batches_by_public_names(PyDatasetAdapter) if isinstance(PyDatasetAdapter, type) else None
)
"""What an adapter of ours derives from."""

EpochIterator: Any = _found("keras.src.trainers.epoch_iterator", "EpochIterator")
"""Counts the batches of an epoch; its ``_enumerate_iterator`` does."""
_torch_device: Any = (
    _found("keras.src.backend.torch.core", "get_device")
    if keras.backend.backend() == "torch"
    else None
)
_global_attribute: Any = _found("keras.src.backend.common.global_state", "get_global_attribute")

by_own_adapter = True
"""Whether Keras's own adapter reads a ``SafeSequence``; ``installation.install`` changes it."""
_warned_of_stock: list[bool] = []


def missing() -> list[str]:
    """What Keras hasn't got, or has in another form, of what is needed on its backend."""
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
    """The part of the data that Keras has given to this process: ``(index, count)``.

    Args:
        stock: The ``PyDatasetAdapter`` that Keras made. From 3.16 on it reads every ``count``-th
            batch under a ``keras.distribution`` with ``auto_shard_dataset``.
    """
    count = getattr(stock, "_num_data_shards", 1)
    return (int(stock._data_shard_id), int(count)) if count > 1 else None


def tensorflow_shards(model: Any) -> bool:
    """Whether TensorFlow gives each process its part of what ``fit`` of this model reads.

    A ``tf.distribute`` strategy over several processes does; nothing may be sharded before that.
    """
    if keras.backend.backend() != "tensorflow":
        return False
    strategy = getattr(model, "distribute_strategy", None) or tensorflow().distribute.get_strategy()
    resolver = getattr(strategy, "cluster_resolver", None)
    jobs = resolver.cluster_spec().as_dict() if resolver is not None else {}
    return sum(len(jobs.get(name, ())) for name in ("chief", "worker")) > 1


def jax_lag() -> int:
    """Batches that Keras puts on JAX's device before the trainer asks for them."""
    import jax

    if keras.distribution.distribution() is not None:
        return 0
    iterator = _found("keras.src.backend.jax.trainer", "JAXEpochIterator")
    # Versions before 3.15 don't ask which device it is; where the class has moved, Keras is newer.
    code = getattr(getattr(iterator, "_get_iterator", None), "__code__", None)
    older = code is not None and "default_backend" not in code.co_names
    return int(older or jax.default_backend() != "cpu")


def read_by(iterator: Any, batches: Callable[[], Iterator[Any] | None]) -> None:
    """Have Keras on JAX read what is on the device already, without putting it there ahead.

    Args:
        iterator: The ``EpochIterator``.
        batches: The batches of a pass; None to have Keras read as usual.
    """
    kind, this = type(iterator), weakref.ref(iterator)

    def _get_iterator() -> Iterator[Any]:
        there = batches()
        return kind._get_iterator(this()) if there is None else there

    if hasattr(kind, "_get_iterator"):
        iterator._get_iterator = _get_iterator


def torch_device() -> Any:
    """Where Keras on PyTorch puts tensors; None where it doesn't say so."""
    return _torch_device() if _torch_device is not None else None


def notice_own_adapter() -> None:
    """Say once, if so, that Keras's own adapter reads a ``SafeSequence`` though ours should."""
    if not (by_own_adapter or _warned_of_stock):
        _warned_of_stock.append(True)
        log.warning(
            "Keras reads a SafeSequence by its own adapter, as somebody has put back its "
            "get_data_adapter since adapters.keras was imported: the batches are the same, none of "
            "them is computed ahead of time; import adapters.keras before the other package"
        )


def called_by_keras() -> bool:
    """Whether code of Keras's own has called the function that asks.

    That is how its adapter, which looks at ``workers`` and calls ``on_epoch_end``, is told from
    everybody else, who is to find what was asked for and what a subclass does.
    """
    module = str(sys._getframe(2).f_globals.get("__name__", ""))
    return module.partition(".")[0] == "keras"


def tensorflow() -> Any:
    """TensorFlow, which Keras has imported if it is the backend."""
    return sys.modules["tensorflow"]


# --- continuing a training ---


def missing_to_continue() -> list[str]:
    """What Keras hasn't got of what it takes to begin within an epoch."""
    absent = (
        []
        if hasattr(EpochIterator, "_enumerate_iterator")
        else ["EpochIterator._enumerate_iterator"]
    )
    return [*missing(), *absent]


def rest_of_epoch(iterator: Any, stock: Callable[[Any], Iterator[Any]], done: int) -> Iterator[Any]:
    """What ``_enumerate_iterator`` yields, for an epoch some of whose batches are done.

    Args:
        iterator: The ``EpochIterator``.
        stock: Its own way, which begins to count at 0.
        done: Batches.
    """
    name = "_num_batches" if iterator.steps_per_epoch is None else "steps_per_epoch"
    all_of_them = getattr(iterator, name)
    setattr(iterator, name, all_of_them - done)
    try:
        for *steps, batches in stock(iterator):
            yield (*(step + done for step in steps), batches)
    finally:
        setattr(iterator, name, all_of_them)


def before_a_warning(iterator: Any, act: Callable[[], None]) -> None:
    """Have something done before it is said that the data have ended before their time.

    Args:
        iterator: The ``EpochIterator``, which says so by a method from 3.9 on.
        act: May raise, and nothing is said then.
    """
    kind, this = type(iterator), weakref.ref(iterator)
    if not hasattr(kind, "_interrupted_warning"):
        return

    def warning() -> None:
        act()
        kind._interrupted_warning(this())

    iterator._interrupted_warning = warning


def count_epochs_by(
    enumerated: Callable[[Any, Callable[[Any], Iterator[Any]]], Iterator[Any]],
) -> None:
    """Have another function enumerate the batches of an epoch.

    Args:
        enumerated: Is given the ``EpochIterator``, and Keras's own way.
    """
    stock = EpochIterator._enumerate_iterator

    @functools.wraps(stock)
    def _enumerate_iterator(self: Any) -> Iterator[Any]:
        return enumerated(self, stock)

    EpochIterator._enumerate_iterator = _enumerate_iterator


def build(model: Any, batch: Any) -> None:
    """Make the variables of a model, its optimizer and its metrics, which training would make.

    Args:
        model: Compiled.
        batch: One like those that it will be given.

    Raises:
        RuntimeError: Keras has another way to do that.
    """
    if not hasattr(model, "_symbolic_build"):
        raise RuntimeError(
            f"Keras {keras.__version__} has no Model._symbolic_build: build the model before fit, "
            "and its optimizer, model.optimizer.build(model.trainable_variables)"
        )
    model._symbolic_build(data_batch=batch if isinstance(batch, tuple) else (batch,))


def compiled_metrics(model: Any) -> Any:
    """Those that ``compile`` was given, which have variables when they are built; or None."""
    return getattr(model, "_compile_metrics", None)


def sync_state(model: Any) -> None:
    """Have a model's variables hold what ``fit`` has trained, which on JAX keeps it elsewhere."""
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
"""What Keras's own callbacks know of a training, beyond their arguments: their attributes.

Nothing is in it that a callback works out by itself. (``EarlyStopping`` turns the sign of
``min_delta`` around when it first looks at a value, once per object: it isn't saved.)"""


def global_seed() -> Any:
    """The state of the generator that functions of ``keras.random`` without a seed draw from.

    None as long as nobody has, or where Keras keeps it elsewhere.
    """
    generator = _global_attribute("global_seed_generator") if _global_attribute else None
    return getattr(generator, "state", None)
