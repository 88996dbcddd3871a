"""Random generators in user code: recognising them, and finding the variables that hold them.

A generator is sent to worker processes with its state, so each process draws the same numbers, and
draws them again in every epoch.
"""

from __future__ import annotations

import gc
import random
import sys
import types
from collections.abc import Iterable
from typing import Any

import numpy as np

_KINDS = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
USE_RNG = "draw from rng in transform(sample, rng), or reseed it from that"
_MOST_STEPS = 4


def is_generator(value: Any) -> bool:
    """True for a random generator with a state of its own."""
    if isinstance(value, _KINDS):
        return not isinstance(value, random.SystemRandom)
    kind = type(value)
    return kind.__name__ == "Generator" and kind.__module__.startswith("torch")


def generator_name(generator: Any, owners: Iterable[Any] = ()) -> str:
    """Name the attribute or variable that holds a generator, if it can be found.

    Args:
        generator: The generator.
        owners: Objects that may have it as an attribute, in case the collector doesn't track them.
    """
    kind = f"{type(generator).__module__.partition('.')[0]}'s {type(generator).__name__}"
    for owner in owners:
        if name := _name_in(owner, [generator]):
            return f"{name} ({kind})"
    held, last = [generator], [generator]
    for _ in range(_MOST_STEPS):  # Through lists, dicts and closures.
        known = {id(each) for each in held} | {id(held), id(last)}
        referrers = [each for each in gc.get_referrers(*last) if id(each) not in known]
        for each in referrers:
            if name := _name_in(each, held):
                return f"{name} ({kind})"
        last = [each for each in referrers if isinstance(each, (list, tuple, dict, types.CellType))]
        held += last
    # The collector doesn't track frozen objects, such as a program's modules.
    for module in list(sys.modules.values()):
        if name := _name_in(getattr(module, "__dict__", {}), [generator]):
            return f"{name} ({kind})"
    return f"a generator ({kind})"


def _name_in(holder: Any, held: list[Any]) -> str | None:
    """Name under which an object, a closure or a dict holds one of ``held``."""
    if isinstance(holder, (list, tuple, types.FrameType, types.CellType)):
        return None
    members: Any = holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})
    if isinstance(holder, types.FunctionType):
        members = dict(zip(holder.__code__.co_freevars, holder.__closure__ or ()))
    for name, value in list(members.items()):
        found = isinstance(name, str) and not name.startswith("__")
        if found and any(value is each for each in held):
            is_plain = isinstance(holder, (dict, types.FunctionType))
            return name if is_plain else f"{type(holder).__name__}.{name}"
    return None
