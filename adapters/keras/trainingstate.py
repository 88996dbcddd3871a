"""State of a training: variables of model, optimizers and metrics, generators, and callbacks.

Variables are matched by order. Their names (without numbers, which differ between processes),
shapes and dtypes must equal the saved ones. The saved state is a copy, as the next step overwrites
the variables.

Keras's callbacks have no API for their state, so ``internals.CALLBACK_STATES`` lists their
attributes. Other callbacks may have ``state_dict()`` and ``load_state_dict(state)``.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from adapters.keras import internals
from adapters.seeding import process_generators, set_process_generators

log = logging.getLogger("adapters")

_METRICS = "metric variables"
_RATE = "/learning_rate"
_NUMBERED = re.compile(r"_\d+(?=[/_.]|$)")  # Numbers that a process appends to names of layers.
_warned: set[str] = set()
"""Metrics and attributes of callbacks that were warned of."""
_Group = list[tuple[str, Any]]
CallbackStates = list[tuple[str, dict[str, Any]]]


def state_of(model: Any) -> dict[str, Any]:
    """Copy everything that training changes."""
    internals.sync_state(model)
    _warn_of_metrics(model)
    groups = dict(_groups(model))
    return {
        "variables": {
            name: [(label, np.array(_to_numpy(value))) for label, value in group]
            for name, group in groups.items()
        },
        "dtypes": {name: [_dtype(value) for _, value in group] for name, group in groups.items()},
        "optimizers": _classes(model),
        "generators": _generators(),
    }


def set_state(model: Any, state: dict[str, Any], metrics: bool, generators: bool = True) -> None:
    """Restore the state of a model whose variables are all built, within an epoch with metrics."""
    saved, here = (", ".join(names) or "none" for names in (state["optimizers"], _classes(model)))
    if saved != here:
        raise ValueError(_differs(f"the optimizer {saved}", here))
    pairs = {name: _paired(name, state, group) for name, group in _groups(model)}
    if not metrics:
        del pairs[_METRICS]
    for group in pairs.values():
        for variable, array in group:
            _assign(variable, array)
    if generators:
        _set_generators(state["generators"])


@contextlib.contextmanager
def restored(model: Any) -> Iterator[None]:
    """Restore the variables of a model, and reset ``stop_training``, at the end of the block."""
    optimizer = model.optimizer
    if optimizer is not None and model.built and not optimizer.built:
        optimizer.build(model.trainable_variables)
    variables = [variable for _, group in _groups(model) for _, variable in group]
    saved = [(variable, np.array(_to_numpy(variable))) for variable in variables]
    try:
        yield
    finally:
        model.stop_training = False
        for variable, array in saved:
            _assign(variable, array)


def not_finite(model: Any, state: dict[str, Any]) -> str | None:
    """Return the name of the first trained weight with NaN or infinite values; or None."""
    # Others, such as a mask, may be infinite.
    trained = state["variables"]["model variables"][: len(model.trainable_variables)]
    for label, array in trained:
        with np.errstate(all="ignore"):
            # The sum needs no temporary array. It is finite if all values are, barring overflow.
            if not np.isfinite(array.sum()) and not np.isfinite(array).all():
                return str(label)
    return None


def unbuilt(model: Any) -> str | None:
    """Part of a model that lacks variables that training changes; None if all exist."""
    if not model.built:
        return "the model"
    optimizer = next((each for each in _members(model)[0] if not each.built), None)
    if optimizer is not None:
        return f"its optimizer {optimizer.name!r}"
    metrics = internals.compiled_metrics(model)
    return None if metrics is None or metrics.built else "its compiled metrics"


def _differs(saved: str, here: str) -> str:
    return (
        f"the model must be made as it was when the training was saved, which had {saved}, here "
        f"it is {here}: make the same model, or give Resume another folder"
    )


def _paired(name: str, state: dict[str, Any], group: _Group) -> list[tuple[Any, Any]]:
    """Pair each variable of a group with its saved value, and check that they fit."""
    saved, dtypes = (state[key].get(name, []) for key in ("variables", "dtypes"))
    there = [(*each, dtype) for each, dtype in zip(saved, dtypes)]
    counts = len(there), len(group)
    if counts[0] != counts[1]:  # A learning rate is a variable only if it is no schedule.
        there = [each for each in there if not each[0].endswith(_RATE)]
        group = [each for each in group if not each[0].endswith(_RATE)]
    if len(there) != len(group):
        raise ValueError(_differs(f"{counts[0]} {name}", f"{counts[1]}"))
    for (label, variable), (before, array, dtype) in zip(group, there):
        if not _fits(variable.shape, array.shape):
            raise ValueError(_differs(f"{before} of shape {array.shape}", f"{variable.shape}"))
        # On TensorFlow, the scopes around a variable depend on where its optimizer is built.
        names = [_NUMBERED.sub("", each) for each in (before, label)]
        if name == "optimizer variables":
            names = [each.rsplit("/", 1)[-1] for each in names]
        if names[0] != names[1]:
            raise ValueError(_differs(f"{before} among its {name}", label))
        if dtype != _dtype(variable):
            raise ValueError(_differs(f"{before} of {dtype}", _dtype(variable)))
    return [(variable, array) for (_, variable), (_, array, _) in zip(group, there)]


def _fits(shape: Any, saved: tuple[int, ...]) -> bool:
    """True if a variable may have the saved shape; a ``tf.Variable`` may lack some dimensions."""
    if hasattr(shape, "is_compatible_with"):
        return bool(shape.is_compatible_with(saved))
    return tuple(shape) == saved


def _members(model: Any) -> tuple[list[Any], list[Any]]:
    """Find the optimizers and ``tf.Variable``s that the model holds, in containers too.

    Of nested models, only optimizers that have been used: a loaded model may have one that is
    needless.
    """
    optimizers: list[Any] = []
    variables: list[Any] = []
    holders: tuple[Any, ...] = (keras.optimizers.Optimizer, keras.layers.Layer)
    tf = internals.tensorflow() if keras.backend.backend() == "tensorflow" else None
    if tf is not None:
        holders += (tf.Module, tf.random.Generator)
    seen: set[int] = set()
    waiting: list[tuple[Any, bool]] = [(model, True), (model.optimizer, True)]
    while waiting:
        each, own = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        inside: Any = each if isinstance(each, (list, tuple)) else ()
        if isinstance(each, keras.layers.Layer):
            own = each is model
        if isinstance(each, keras.optimizers.Optimizer) and (own or each.built):
            optimizers.append(each)
        if isinstance(each, holders):
            inside = vars(each).values()
        elif isinstance(each, dict):
            inside = each.values()
        elif tf is not None and isinstance(each, tf.Variable) and each.dtype != tf.string:
            on_read = each.synchronization == tf.VariableSynchronization.ON_READ
            # Under a tf.distribute strategy, each replica has its own value.
            variables += getattr(each, "values", [each]) if on_read else [each]
        waiting.extend((member, own) for member in reversed(list(inside)))
    return optimizers, variables


def _classes(model: Any) -> list[str]:
    return [type(each).__name__ for each in _members(model)[0]]


def _groups(model: Any) -> Iterator[tuple[str, _Group]]:
    variables = [*model.trainable_variables, *model.non_trainable_variables]
    yield "model variables", [(each.path, each) for each in variables]
    optimizers, of_tensorflow = _members(model)
    kept = {id(each): each for held in optimizers for each in held.variables}
    yield "optimizer variables", [(each.path, each) for each in kept.values()]
    yield _METRICS, [(each.path, each) for each in model.metrics_variables]
    yield "variables of TensorFlow", [(each.name, each) for each in of_tensorflow]
    if keras.backend.backend() == "torch":
        yield "buffers of PyTorch", [(name, each) for name, each in model.named_buffers()]


def _warn_of_metrics(model: Any) -> None:
    """Warn once of each metric whose counts can't be saved, as they are in no variable."""
    compiled = internals.compiled_metrics(model)
    plain = vars(keras.metrics.Metric())
    for metric in [*model.metrics, *(getattr(compiled, "metrics", None) or ())]:
        values = [value for name, value in vars(metric).items() if name not in plain]
        counts = (int, float, list, dict, np.ndarray)
        own = [each for each in values if isinstance(each, counts) or hasattr(each, "assign")]
        if metric is not compiled and own and not metric.variables and metric.name not in _warned:
            _warned.add(metric.name)
            log.warning(
                "the metric %s keeps count in no Keras variable: after a crash within an epoch, it "
                "doesn't resume exactly; count in self.add_weight(...)",
                metric.name,
            )


def _dtype(variable: Any) -> str:
    return str(getattr(variable.dtype, "name", variable.dtype)).removeprefix("torch.")


def _to_numpy(value: Any) -> Any:
    if hasattr(value, "detach"):
        return value.detach().cpu().numpy()
    return keras.ops.convert_to_numpy(value)


def _assign(variable: Any, array: Any) -> None:
    if hasattr(variable, "assign"):
        variable.assign(array)
    else:
        variable.copy_(keras.ops.convert_to_tensor(array))


def _generators() -> dict[str, Any]:
    kept = process_generators()
    seeds = internals.global_seed()
    if seeds is not None:
        kept["keras"] = np.array(keras.ops.convert_to_numpy(seeds))
    if keras.backend.backend() == "torch":  # Dropout without a seed uses these generators.
        import torch

        kept["torch"] = torch.get_rng_state().numpy().copy()
        if torch.cuda.is_available():
            kept["cuda"] = [each.cpu().numpy().copy() for each in torch.cuda.get_rng_state_all()]
    return kept


def _set_generators(state: dict[str, Any]) -> None:
    set_process_generators(state)
    seeds = internals.global_seed()
    if seeds is not None and "keras" in state:
        seeds.assign(state["keras"])
    if keras.backend.backend() == "torch" and "torch" in state:
        import torch

        torch.set_rng_state(torch.from_numpy(state["torch"].copy()))
        devices = state.get("cuda", [])
        if devices and torch.cuda.device_count() == len(devices):
            torch.cuda.set_rng_state_all([torch.from_numpy(each.copy()) for each in devices])


# --- callbacks ---


def callback_states(callbacks: Sequence[Any]) -> CallbackStates:
    """Copy the states of callbacks, each with its class name."""
    states: CallbackStates = []
    for callback in callbacks:
        state: dict[str, Any] = {}
        name = type(callback).__name__
        for kind, field in _fields_of(callback):
            if hasattr(callback, field):
                state[field] = _plain(getattr(callback, field))
            elif f"{name}.{field}" not in _warned:
                _warned.add(f"{name}.{field}")
                log.warning(
                    "Keras %s has no %s.%s, which Resume saves of a %s: after a crash, that "
                    "callback doesn't resume exactly; use a version of Keras that "
                    "docs/keras-internals.md names",
                    keras.__version__,
                    kind,
                    field,
                    name,
                )
        if hasattr(callback, "state_dict") and hasattr(callback, "load_state_dict"):
            state["state_dict"] = copy.deepcopy(callback.state_dict())
        states.append((name, state))
    return states


def restore_callbacks(callbacks: Sequence[Any], states: CallbackStates) -> None:
    """Restore the states of callbacks, matched by class name and order."""
    waiting = list(states)
    for callback in callbacks:
        name = type(callback).__name__
        found = next((each for each in waiting if each[0] == name), None)
        if found is None:
            if _fields_of(callback) or hasattr(callback, "load_state_dict"):
                log.warning("no state of a %s was saved: it starts from its beginning", name)
            continue
        waiting.remove(found)
        # Copied, as a loaded state may be restored twice.
        state = copy.deepcopy(found[1])
        for _, field in _fields_of(callback):
            if field in state and hasattr(callback, field):
                setattr(callback, field, state[field])
        if "state_dict" in state and hasattr(callback, "load_state_dict"):
            callback.load_state_dict(state["state_dict"])


def _fields_of(callback: Any) -> list[tuple[str, str]]:
    """Names of the classes of Keras that a callback derives from, and of their attributes."""
    return [
        (name, field)
        for name, fields in internals.CALLBACK_STATES.items()
        for field in fields
        if isinstance(callback, getattr(keras.callbacks, name, ()))
    ]


def _plain(value: Any) -> Any:
    """Convert a backend's tensors and variables in a value to NumPy arrays."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    if value is None or isinstance(value, (bool, int, float, str, np.ndarray, np.generic)):
        return value
    return np.array(keras.ops.convert_to_numpy(value))
