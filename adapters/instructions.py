"""What the instructions of a function tell: names, and how they are used.

Asked by ``bytecode``, which goes from function to function; each of these looks at one. Python's
versions differ in instructions, and only this file knows.
"""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

# What makes generators of one's own, of ``numpy.random`` and ``random``.
MAKERS = {"default_rng", "Generator", "RandomState", "SeedSequence", "BitGenerator"} | {
    *("PCG64", "PCG64DXSM", "Philox", "MT19937", "SFC64", "Random", "SystemRandom")
}
LOADS_NAME = {"LOAD_GLOBAL", "LOAD_NAME"}
_LOADS_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}
_LOADS_LOCAL = ("LOAD_FAST", "LOAD_DEREF")
_CALLS = {"CALL", "CALL_FUNCTION"}


def names_in(code: types.CodeType) -> Iterator[str]:
    """Of attributes, globals and imports, in the functions within it, too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)


def steps_of(code: types.CodeType) -> list[dis.Instruction]:
    """Its instructions, in order."""
    return [step for step in dis.get_instructions(code) if step.opname != "CACHE"]


def only_names_types(steps: list[dis.Instruction]) -> bool:
    """Whether ``type`` is only called for messages, and makes nothing."""
    for at, step in enumerate(steps):
        if step.argval == "type":
            calls = (place for place in range(at, len(steps)) if steps[place].opname in _CALLS)
            behind = steps[next(calls, -2) + 1]
            named = behind.argval in ("__name__", "__qualname__") or "FORMAT" in behind.opname
            if step.opname != "LOAD_GLOBAL" or not named:
                return False
    return True


def draws_by_attribute(code: types.CodeType) -> bool:
    """Whether there is ``something.random``, and not only to make a generator of one's own.

    ``something.random()`` is a method of such a generator.
    """
    steps = steps_of(code)
    names = [*(step.argval for step in steps[1:]), ""]
    return any(
        step.argval == "random" and after not in MAKERS and not _loads_method(step)
        for step, after in zip(steps, names)
    )


def loads_to_call(step: dis.Instruction) -> bool:
    """Whether a name is loaded to be called at once; before Python 3.11, nothing tells."""
    return (
        sys.version_info >= (3, 11) and step.opname == "LOAD_GLOBAL" and bool((step.arg or 0) & 1)
    )


def attribute_loaded(
    module: types.ModuleType, steps: Sequence[dis.Instruction], at: int
) -> tuple[Any, types.ModuleType]:
    """What is loaded from a module, and from modules in it, by the steps that begin at ``at``.

    Returns:
        The module itself where nothing is, None where there is no such thing; and what it lies in.
    """
    reached: Any = module
    owner = module
    for step in (steps[place] for place in range(at, len(steps))):
        if step.opname not in _LOADS_ATTRIBUTE or not isinstance(reached, types.ModuleType):
            break
        owner, reached = reached, vars(reached).get(step.argval)
    return reached, owner


def loads_local(step: dis.Instruction, name: str | None) -> bool:
    """Whether a variable of the function is loaded; Python 3.13 loads two at once."""
    last = step.argval[-1:] if isinstance(step.argval, tuple) else (step.argval,)
    return step.opname.startswith(_LOADS_LOCAL) and last == (name,)


def _loads_method(step: dis.Instruction) -> bool:
    if sys.version_info >= (3, 12):
        return step.opname == "LOAD_ATTR" and bool((step.arg or 0) & 1)
    return step.opname == "LOAD_METHOD"
