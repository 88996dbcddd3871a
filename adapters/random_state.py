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

# Generators of libraries that may not be imported: package and name of their class.
_OF_LIBRARIES = {("torch", "Generator"), ("keras", "SeedGenerator")}
_KINDS = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
USE_RNG = "draw from rng in transform(sample, rng), or reseed it from that"
_MOST_STEPS = 4


def is_generator(value: Any) -> bool:
    """True for a random generator with a state of its own."""
    # By its type: isinstance would ask an object that warns of each access to its attributes.
    if issubclass(type(value), _KINDS):
        return not issubclass(type(value), random.SystemRandom)
    kinds = type(value).__mro__
    # A metaclass has a descriptor for its __module__.
    return any(
        (str(each.__module__).split(".")[0], each.__name__) in _OF_LIBRARIES for each in kinds
    )


def generators_of(value: Any) -> list[Any]:
    """List an object's generators that pickle doesn't show: itself, or those of a Keras layer.

    Keras pickles a layer by its configuration, so all copies start with the same seeds.
    """
    if is_generator(value):
        return [value]
    if not hasattr(type(value), "_flatten_layers"):
        return []
    layers = value._flatten_layers()
    return [each for layer in layers for each in getattr(layer, "_seed_generators", ())]


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
        within = [value, *generators_of(value)] if found else []
        if any(each is one for each in held for one in within):
            is_plain = isinstance(holder, (dict, types.FunctionType))
            return name if is_plain else f"{type(holder).__name__}.{name}"
    return None
