"""What callbacks know of a training, beyond their arguments.

Keras's own have no way to tell it: ``internals.CALLBACK_STATES`` names their attributes. Any other
callback may have ``state_dict()`` and ``load_state_dict(state)``.
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


def _fields_of(callback: Any) -> list[str]:
    """The attributes that are its state; warns once of one that this Keras hasn't got."""
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
