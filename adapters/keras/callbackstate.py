"""Saving and restoring the state of callbacks.

Keras's callbacks have no API for it, so ``internals.CALLBACK_STATES`` lists their attributes. Other
callbacks may have ``state_dict()`` and ``load_state_dict(state)``.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from adapters.keras.internals import CALLBACK_STATES

log = logging.getLogger("adapters")

_KINDS = {
    kind: fields
    for name, fields in CALLBACK_STATES.items()
    if (kind := getattr(keras.callbacks, name, None)) is not None
}
_warned: set[tuple[str, str]] = set()

States = list[tuple[str, dict[str, Any]]]


def states_of(callbacks: Sequence[Any]) -> States:
    """Copy the states of callbacks, each with its class name.

    Raises:
        TypeError: A callback's own ``state_dict`` returned no dict.
    """
    return [(type(each).__name__, _state_of(each)) for each in callbacks]


def restore(callbacks: Sequence[Any], states: States) -> None:
    """Restore the states of callbacks, matched by class name and order."""
    waiting = list(states)
    for callback in callbacks:
        name = type(callback).__name__
        found = next((each for each in waiting if each[0] == name), None)
        if found is not None:
            waiting.remove(found)
            _restore(callback, found[1])
        elif _fields_of(callback) or hasattr(callback, "load_state_dict"):
            log.warning("no state of a %s was saved: it starts from its beginning", name)


def _fields_of(callback: Any) -> list[str]:
    """Names of the attributes that are its state. Warns once if this Keras lacks one."""
    found, name = [], type(callback).__name__
    for kind, fields in _KINDS.items():
        for field in fields if isinstance(callback, kind) else ():
            if hasattr(callback, field):
                found.append(field)
            elif (name, field) not in _warned:
                _warned.add((name, field))
                log.warning(
                    "Keras %s has no %s.%s, which Resume saves of a %s: after a crash, that "
                    "callback doesn't go on exactly; use a version of Keras that "
                    "docs/keras-internals.md names",
                    keras.__version__,
                    kind.__name__,
                    field,
                    name,
                )
    return found


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
    """Copy a value, with a backend's tensors and variables converted to NumPy arrays."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    if value is None or isinstance(value, (bool, int, float, str, np.ndarray, np.generic)):
        return value
    return np.array(keras.ops.convert_to_numpy(value))


def _copied(value: Any) -> Any:
    """Copy lists and dicts, because a loaded state may be restored twice."""
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_copied, value))
    return value
