"""What a metric of MXNet's has counted so far, whatever it counts in.

A metric keeps numbers, arrays, lists of them, other metrics (``CompositeEvalMetric``) and objects
that count for it (``F1``, ``MCC``): all its attributes that are plain values are taken, and those
of the objects within it. Functions are settings, and stay as they are. What else there is can't be
saved, which is a WARNING, once for each.
"""

from __future__ import annotations

import logging
from typing import Any

import mxnet as mx
import numpy as np

log = logging.getLogger("adapters")

_ARRAYS = (mx.nd.NDArray, mx.np.ndarray) if hasattr(mx, "np") else (mx.nd.NDArray,)
_PLAIN = (type(None), bool, int, float, str, np.ndarray, np.generic)
_warned: set[str] = set()


class _Unknown(Exception):
    """Nobody knows how to save it."""


def states_of(metrics: Any) -> list[Any]:
    """A copy of what each has counted, for ``restore``."""
    return [(type(each).__name__, _attributes(each, type(each).__name__, ())) for each in metrics]


def restore(metrics: Any, states: list[Any]) -> None:
    """Have metrics go on from there.

    Raises:
        ValueError: They aren't those that were saved.
    """
    here, saved = [type(each).__name__ for each in metrics], [name for name, _ in states]
    if here != saved:
        raise ValueError(
            f"train_metrics must be {saved}, as when the training was saved within an epoch, got "
            f"{here}: give the same, or give Resume a new folder"
        )
    for metric, (_, attributes) in zip(metrics, states):
        _restore(metric, attributes)


def _attributes(owner: Any, path: str, above: tuple[int, ...]) -> dict[str, Any]:
    kept = {}
    for name, value in vars(owner).items():
        if callable(value) and not isinstance(value, _ARRAYS):
            continue
        try:
            kept[name] = _kept(value, f"{path}.{name}", (*above, id(owner)))
        except _Unknown:
            if path + name not in _warned:
                _warned.add(path + name)
                log.warning(
                    "%s.%s, a %s, can't be saved: after a crash within an epoch, that metric "
                    "doesn't go on exactly; keep numbers and arrays in it",
                    path,
                    name,
                    type(value).__name__,
                )
    return kept


def _kept(value: Any, path: str, above: tuple[int, ...]) -> Any:
    """A pair: what kind of value it is, and a copy that can be saved."""
    if type(value) in _PLAIN or isinstance(value, np.generic):
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            raise _Unknown
        return ("plain", value.copy() if isinstance(value, np.ndarray) else value)
    if isinstance(value, _ARRAYS):
        return ("numpy" if type(value) is not mx.nd.NDArray else "ndarray", value.asnumpy())
    if type(value) in (list, tuple):
        members = [_kept(each, f"{path}[{place}]", above) for place, each in enumerate(value)]
        return (type(value).__name__, members)
    if isinstance(value, dict):
        if not all(type(name) in (bool, int, float, str) for name in value):
            raise _Unknown
        pairs = {name: _kept(each, f"{path}[{name!r}]", above) for name, each in value.items()}
        return ("dict", pairs)
    if callable(value):
        return ("setting", None)
    if not hasattr(value, "__dict__") or id(value) in above or isinstance(value, type(mx)):
        raise _Unknown
    return ("object", _attributes(value, path, above))


def _restore(owner: Any, attributes: dict[str, Any]) -> None:
    for name, kept in attributes.items():
        setattr(owner, name, _back(kept, getattr(owner, name, None)))


def _back(kept: Any, here: Any) -> Any:
    """The value again; ``here`` is what stands in its place, where that is changed as it lies."""
    kind, value = kept
    if kind == "setting":
        return here
    if kind == "object":
        if here is not None:
            _restore(here, value)
        return here
    if kind in ("list", "tuple"):
        places = here if isinstance(here, (list, tuple)) and len(here) == len(value) else None
        members = [_back(each, places and places[place]) for place, each in enumerate(value)]
        return members if kind == "list" else tuple(members)
    if kind == "dict":
        named = here if isinstance(here, dict) else {}
        return {name: _back(each, named.get(name)) for name, each in value.items()}
    if kind == "ndarray":
        return mx.nd.array(value, dtype=value.dtype)
    if kind == "numpy":
        return mx.np.array(value, dtype=value.dtype)
    return value.copy() if isinstance(value, np.ndarray) else value
