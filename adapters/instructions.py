"""Facts about one function, read from its bytecode: names, and how they are used.

Used by ``bytecode``, which walks from function to function. Differences between Python versions
are handled here only.
"""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

# Names in ``numpy.random`` and ``random`` that create new generators.
MAKERS = {"default_rng", "Generator", "RandomState", "SeedSequence", "BitGenerator"} | {
    *("PCG64", "PCG64DXSM", "Philox", "MT19937", "SFC64", "Random", "SystemRandom")
}
LOADS_NAME = {"LOAD_GLOBAL", "LOAD_NAME"}
_LOADS_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}
_LOADS_LOCAL = ("LOAD_FAST", "LOAD_DEREF")
_CALLS = {"CALL", "CALL_FUNCTION"}


def names_in(code: types.CodeType) -> Iterator[str]:
    """Names of attributes, globals and imports, nested functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)


def steps_of(code: types.CodeType) -> list[dis.Instruction]:
    """Instructions, in order, without ``CACHE``."""
    return [step for step in dis.get_instructions(code) if step.opname != "CACHE"]


def only_names_types(steps: list[dis.Instruction]) -> bool:
    """True if ``type`` is used only to name types in messages, never to create objects."""
    for at, step in enumerate(steps):
        if step.argval == "type":
            calls = (place for place in range(at, len(steps)) if steps[place].opname in _CALLS)
            behind = steps[next(calls, -2) + 1]
            named = behind.argval in ("__name__", "__qualname__") or "FORMAT" in behind.opname
            if step.opname != "LOAD_GLOBAL" or not named:
                return False
    return True


def draws_by_attribute(code: types.CodeType) -> bool:
    """True if the code uses ``something.random``, other than to create a generator.

    A method call ``something.random()`` doesn't count: it is a draw from such a generator.
    """
    steps = steps_of(code)
    names = [*(step.argval for step in steps[1:]), ""]
    return any(
        step.argval == "random" and after not in MAKERS and not _loads_method(step)
        for step, after in zip(steps, names)
    )


def loads_to_call(step: dis.Instruction) -> bool:
    """True if the name is loaded to be called at once; always False before Python 3.11."""
    return (
        sys.version_info >= (3, 11) and step.opname == "LOAD_GLOBAL" and bool((step.arg or 0) & 1)
    )


def attribute_loaded(
    module: types.ModuleType, steps: Sequence[dis.Instruction], at: int
) -> tuple[Any, types.ModuleType]:
    """Resolve the attribute of a module, or of its submodules, loaded from step ``at`` on.

    Returns:
        The attribute, and the module it is in. The module itself if no attribute is loaded; None if
        there is no such attribute.
    """
    reached: Any = module
    owner = module
    for step in (steps[place] for place in range(at, len(steps))):
        if step.opname not in _LOADS_ATTRIBUTE or not isinstance(reached, types.ModuleType):
            break
        owner, reached = reached, vars(reached).get(step.argval)
    return reached, owner


def loads_local(step: dis.Instruction, name: str | None) -> bool:
    """True if this local variable is loaded; Python 3.13 loads two at once."""
    last = step.argval[-1:] if isinstance(step.argval, tuple) else (step.argval,)
    return step.opname.startswith(_LOADS_LOCAL) and last == (name,)


def _loads_method(step: dis.Instruction) -> bool:
    if sys.version_info >= (3, 12):
        return step.opname == "LOAD_ATTR" and bool((step.arg or 0) & 1)
    return step.opname == "LOAD_METHOD"
