"""What callbacks know of a training, beyond their arguments.

Keras's own have no way to tell it: ``_FIELDS`` names their attributes. Nothing is in it that the
arguments of a callback say, or that it works out by itself. (``EarlyStopping`` turns the sign of
``min_delta`` around when it first looks at a value, once per object: it isn't saved.) Any other
callback may have ``state_dict()`` and ``load_state_dict(state)``.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

log = logging.getLogger("adapters")

_FIELDS = {
    "EarlyStopping": ("wait", "stopped_epoch", "best", "best_weights", "best_epoch"),
    "ReduceLROnPlateau": ("wait", "best", "cooldown_counter"),
    "ModelCheckpoint": ("best", "_batches_seen_since_last_saving", "_last_batch_seen"),
    "SwapEMAWeights": ("_ema_weights_in_model",),
    "TensorBoard": ("_global_train_batch", "_global_test_batch", "_previous_epoch_iterations"),
    "History": ("epoch", "history"),
}
_KINDS = {
    kind: fields
    for name, fields in _FIELDS.items()
    if (kind := getattr(keras.callbacks, name, None)) is not None
}

States = list[tuple[str, dict[str, Any]]]


def states_of(callbacks: Sequence[Any]) -> States:
    """What is to be saved: of each callback its class's name and state, copied.

    Raises:
        TypeError: A callback's own ``state_dict`` returned no dict.
    """
    return [(type(each).__name__, _state_of(each)) for each in callbacks]


def restore(callbacks: Sequence[Any], states: States) -> None:
    """Give callbacks their states back: the n-th of a class that of the n-th of that name."""
    waiting = list(states)
    for callback in callbacks:
        name = type(callback).__name__
        found = next((each for each in waiting if each[0] == name), None)
        if found is not None:
            waiting.remove(found)
            _restore(callback, found[1])
        elif _fields_of(callback) or hasattr(callback, "load_state_dict"):
            log.warning("no state of a %s was saved: it begins anew", name)


def _fields_of(callback: Any) -> tuple[str, ...]:
    return tuple(
        name
        for kind, fields in _KINDS.items()
        if isinstance(callback, kind)
        for name in fields
        if hasattr(callback, name)
    )


def _state_of(callback: Any) -> dict[str, Any]:
    state: dict[str, Any] = {name: _plain(getattr(callback, name)) for name in _fields_of(callback)}
    if hasattr(callback, "state_dict") and hasattr(callback, "load_state_dict"):
        state["state_dict"] = copy.deepcopy(callback.state_dict())
    return state


def _restore(callback: Any, state: dict[str, Any]) -> None:
    for name in _fields_of(callback):
        if name in state:
            setattr(callback, name, _copied(state[name]))
    if "state_dict" in state and hasattr(callback, "load_state_dict"):
        callback.load_state_dict(_copied(state["state_dict"]))


def _plain(value: Any) -> Any:
    """A copy whose numbers are Python's or NumPy's, not those of a backend."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    if value is None or isinstance(value, (bool, int, float, str, np.ndarray, np.generic)):
        return value
    return np.array(keras.ops.convert_to_numpy(value))


def _copied(value: Any) -> Any:
    """Its lists and dicts anew, as what was loaded may be restored twice."""
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_copied, value))
    return value
